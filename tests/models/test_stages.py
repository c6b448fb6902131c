"""Stages: a range of blocks as a file of its own gives what the whole model gives there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from framepool.models.cut_check import compare, open_session, random_inputs, run
from framepool.models.errors import ModelError, ModelInvalidError
from framepool.models.graph import index_graph, load_graph
from framepool.models.graph_extract import edge_tensors
from framepool.models.graph_shapes import infer_shapes
from framepool.models.partition import Cut, Partition
from framepool.models.stages import extract_stage

ZOO = Path(__file__).parents[2] / "models" / "zoo"

CHAIN = "g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> { a = Add(x, w) b = Mul(a, w) y = Sub(b, a) }"


def parsed(graph: str, head: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17{head}]>\n{graph}')


def saved(model: onnx.ModelProto, folder: Path, **settings: Any) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path, **settings)
    return path


def cut_at(path: Path, *cuts: tuple[str, ...]) -> Partition:
    """A partition of the model at `path` with the named tensors at its cuts."""
    graph = load_graph(path)
    shapes = infer_shapes(graph, path.parent)
    found: list[Cut] = []
    crossed: set[str] = set()
    for index, names in enumerate(cuts, start=1):
        tensors = edge_tensors(graph, [shapes.samples[name] for name in names], index, crossed)
        crossed.update(names)
        found.append(Cut(index, tensors, sum(t.bytes_per_sample or 0 for t in tensors), False, 0.0))
    edges = [tuple(shapes.edge(name) for name in names) for names in (graph.inputs, graph.outputs)]
    weights = (1.0 / (len(cuts) + 1),) * (len(cuts) + 1)
    return Partition("d" * 64, len(cuts) + 1, tuple(found), weights, *edges)


def run_stages(
    path: Path, partition: Partition, folder: Path, feeds: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Every block as a stage of its own, one after another; checks the edges on the way."""
    values = feeds
    for block in range(partition.n_blocks):
        stage = extract_stage(path, partition, block, block + 1, folder / f"{block}.onnx")
        session = open_session(stage.path)
        assert {entry.name for entry in session.get_inputs()} == {info.name for info in stage.inputs}
        values = run(session, values)
        assert set(values) == {info.name for info in stage.outputs}
        for info in partition.stage_outputs(block + 1) if block + 1 < partition.n_blocks else ():
            assert values[info.name].shape[1:] == info.shape
            assert str(values[info.name].dtype) == info.dtype
    return values


def assert_same(path: Path, partition: Partition, folder: Path, *, batches: tuple[int, ...] = (1, 3)) -> None:
    whole = open_session(path)
    for batch in batches:
        feeds = random_inputs(partition.inputs, batch, seed=batch)
        assert compare(run(whole, feeds), run_stages(path, partition, folder, feeds)).exact


@pytest.mark.parametrize(
    ("model", "tensors", "size_bytes", "exact"),
    [
        ("nanodet", ("stem",), 1_384_448, True),
        ("nanodet", ("c2",), 692_224, True),
        ("nanodet", ("c3",), 1_384_448, True),
        ("nanodet", ("c3", "c4", "c5"), 2_422_784, True),
        ("nanodet", ("p3", "p4", "p5"), 1_817_088, True),
        ("nanodet", ("boxes", "scores"), 1_192_464, True),
        ("nanodet", ("lat3", "lat4", "lat5"), 1_817_088, False),
        ("nanodet_int8", ("c2_QuantizeLinear_Output",), 173_056, True),
        ("nanodet_int8", ("c3_QuantizeLinear_Output",), 346_112, True),
        ("nanodet_int8", tuple(f"c{i}_QuantizeLinear_Output" for i in (3, 4, 5)), 605_696, True),
        ("nanodet_int8", tuple(f"p{i}_QuantizeLinear_Output" for i in (3, 4, 5)), 454_272, True),
    ],
)
def test_named_cuts_of_the_bundled_detectors(
    model: str, tensors: tuple[str, ...], size_bytes: int, exact: bool, tmp_path: Path
) -> None:
    """Bit for bit at batch 1 and 4, but where the runtime fuses a convolution and an addition across the cut."""
    path = ZOO / f"{model}.onnx"
    partition = cut_at(path, tensors)
    assert partition.cuts[0].bytes_per_sample == size_bytes
    whole = open_session(path)
    for batch in (1, 4):
        feeds = {"images": np.random.default_rng(batch).integers(0, 256, (batch, 3, 416, 416)).astype(np.float32)}
        verdict = compare(run(whole, feeds), run_stages(path, partition, tmp_path, feeds))
        assert verdict.exact == exact
        assert verdict.max_abs_error <= 1e-3


def test_keypoint_model_in_three_stages(tmp_path: Path) -> None:
    path = ZOO / "movenet.onnx"
    blocks = [f"center_net_mobile_net_v2fpn_feature_extractor.model_1.model.block_{i}_add.add" for i in (2, 5)]
    assert_same(path, cut_at(path, (blocks[0],), tuple(blocks)), tmp_path, batches=(1, 2))


def test_d9_skip_connection_over_whole_blocks(tmp_path: Path) -> None:
    """D9: both live tensors cross; the one that a block only passes on has a name of its own at each cut."""
    path = saved(parsed(CHAIN), tmp_path)
    assert_same(path, cut_at(path, ("a",), ("a", "b")), tmp_path)
    assert [t.name for t in cut_at(path, ("a",), ("a", "b")).cuts[1].tensors] == ["a@2", "b"]


def test_d9_shared_weights_are_in_both_stages_and_others_in_neither(tmp_path: Path) -> None:
    text = CHAIN.replace("<float[2] w = {1, 2}>", "<float[2] w = {1, 2}, float[2] unused = {7, 7}>")
    path = saved(parsed(text), tmp_path)
    partition = cut_at(path, ("a",))
    for block in (0, 1):
        stage = onnx.load(extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx").path)
        assert [tensor.name for tensor in stage.graph.initializer] == ["w"]


def test_input_that_a_later_stage_reads_is_passed_on(tmp_path: Path) -> None:
    path = saved(
        parsed(
            "g (float[N,2] x, float[N,3] late) => (float[N,5] y) "
            "{ a = Relu(x) b = Neg(a) y = Concat <axis = 1> (b, late) }"
        ),
        tmp_path,
    )
    partition = cut_at(path, ("a", "late"), ("b", "late"))
    assert_same(path, partition, tmp_path)
    for block in range(2):  # never an input and an output under one name: runtimes leave such an output unwritten
        stage = extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx")
        assert not {t.name for t in stage.inputs} & {t.name for t in stage.outputs}


def test_output_that_is_an_intermediate_too(tmp_path: Path) -> None:
    path = saved(
        parsed("g (float[N,2] x) => (float[N,2] early, float[N,2] y) { early = Relu(x) b = Neg(early) y = Abs(b) }"),
        tmp_path,
    )
    assert_same(path, cut_at(path, ("early",), ("early", "b")), tmp_path)
    assert_same(path, cut_at(path, ("early", "b")), tmp_path)


def test_d8_tensors_captured_by_bodies_come_along(tmp_path: Path) -> None:
    """D8: the bodies of If capture a, b and a weight; the stage with the If has them all."""

    def body(name: str, op: str, tensor: str) -> onnx.GraphProto:
        node = helper.make_node(op, [tensor, "w"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2])])

    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("If", ["yes"], ["i"], then_branch=body("t", "Add", "a"), else_branch=body("e", "Sub", "b")),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "captures",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(np.array(False), "yes"), numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    path = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
    assert_same(path, cut_at(path, ("a",), ("a", "b"), ("i",)), tmp_path)
    whole = cut_at(path)
    assert_same(path, whole, tmp_path)  # the whole graph as one stage is extracted as well


def test_int8_weights_are_dequantised_on_the_side_that_needs_them(tmp_path: Path) -> None:
    path = ZOO / "nanodet_int8.onnx"
    partition = cut_at(path, ("c2_QuantizeLinear_Output",))
    sizes = [
        extract_stage(path, partition, block, block + 1, tmp_path / f"{block}.onnx").path.stat().st_size
        for block in (0, 1)
    ]
    assert sizes[0] < 0.2 * path.stat().st_size
    assert sum(sizes) < 1.1 * path.stat().st_size


def test_fp16_graph_keeps_its_type(tmp_path: Path) -> None:
    path = saved(
        parsed("g (float16[N,4] x) => (float[N,4] y) { a = Relu(x) w = Cast <to = 1> (a) b = Neg(w) y = Abs(b) }"),
        tmp_path,
    )
    partition = cut_at(path, ("a",))
    assert partition.cuts[0].tensors[0].dtype == "float16"
    assert_same(path, partition, tmp_path)


def test_local_functions(tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N,2] x) => (float[N,2] y) { a = local.chain(x) y = local.chain(a) }
        <opset_import: ["" : 17], domain: "local">
        chain (v) => (w) { s = Relu(v) t = Neg(s) w = Abs(t) }
    """
    path = saved(onnx.parser.parse_model(text), tmp_path)
    assert_same(path, cut_at(path, ("a",)), tmp_path)


def big_chain() -> onnx.ModelProto:
    """Two matrix products with a weight of 40 kB each, and one small weight."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.random((100, 100), dtype=np.float32), name) for name in ("u", "v")]
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 100])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 100])],
        [*weights, numpy_helper.from_array(np.ones(100, np.float32), "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_weights_beside_the_model_stay_beside_the_stage(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    path = saved(big_chain(), tmp_path / "source", save_as_external_data=True, location="w.bin", size_threshold=0)
    partition = cut_at(path, ("b",))
    assert_same(path, partition, tmp_path)
    assert (tmp_path / "0.onnx").stat().st_size < 2_000
    assert 40_000 <= (tmp_path / "0.onnx.data").stat().st_size < 45_000
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_d7_weights_near_the_limit_of_the_format_go_beside_the_stage(tmp_path: Path) -> None:
    """D7, with the limit lowered: nothing is lost, and only the stage's own weights are written."""
    path = saved(big_chain(), tmp_path)
    partition = cut_at(path, ("b",))
    stage = extract_stage(path, partition, 0, 1, tmp_path / "stage.onnx", embed_limit_bytes=10_000)
    assert (tmp_path / "stage.onnx.data").stat().st_size == 40_000
    feeds = random_inputs(partition.inputs, 2, seed=1)
    assert run(open_session(stage.path), feeds)["b"].shape == (2, 100)
    extract_stage(path, partition, 0, 1, tmp_path / "stage.onnx")
    assert not (tmp_path / "stage.onnx.data").exists()


def test_d6_missing_or_foreign_weights_are_refused_by_path(tmp_path: Path) -> None:
    """D6: the file beside the model is gone, then truncated, then one outside the model's folder is named."""
    path = saved(big_chain(), tmp_path, save_as_external_data=True, location="w.bin", size_threshold=0)
    partition = cut_at(path, ("b",))
    weights = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(weights[:-10])
    with pytest.raises(ModelInvalidError, match=r"w\.bin ends 10 bytes early"):
        extract_stage(path, partition, 0, 2, tmp_path / "out" / "stage.onnx")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelInvalidError, match=r"w\.bin does not exist"):
        extract_stage(path, partition, 0, 1, tmp_path / "out" / "stage.onnx")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        next(entry for entry in tensor.external_data if entry.key == "location").value = "../../etc/passwd"
    onnx.save(model, path)
    with pytest.raises(ModelInvalidError, match="outside the model's folder"):
        extract_stage(path, partition, 0, 1, tmp_path / "out" / "stage.onnx")
    assert not list((tmp_path / "out").iterdir())


def test_batch_axis_stays_symbolic_and_metadata_is_kept(tmp_path: Path) -> None:
    model = parsed(CHAIN.replace("N,", "frames,"))
    model.metadata_props.add(key="author", value="someone")
    path = saved(model, tmp_path)
    stage = onnx.load(extract_stage(path, cut_at(path, ("a",)), 1, 2, tmp_path / "stage.onnx").path)
    assert stage.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "frames"
    kept = {entry.key: entry.value for entry in stage.metadata_props}
    assert kept == {"author": "someone", "framepool.model_digest": "d" * 64, "framepool.blocks": "1:2"}
    assert [(entry.domain, entry.version) for entry in stage.opset_import] == [("", 17)]


def test_fixed_batch_stays_fixed(tmp_path: Path) -> None:
    path = saved(parsed(CHAIN.replace("N,", "2,")), tmp_path)
    stage = onnx.load(extract_stage(path, cut_at(path, ("a",)), 1, 2, tmp_path / "stage.onnx").path)
    assert stage.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert_same(path, cut_at(path, ("a",)), tmp_path, batches=(2,))


def test_same_stage_same_bytes(tmp_path: Path) -> None:
    path = ZOO / "nanodet_int8.onnx"
    partition = cut_at(path, ("c2_QuantizeLinear_Output",))
    first = extract_stage(path, partition, 0, 1, tmp_path / "first.onnx").path.read_bytes()
    assert extract_stage(path, partition, 0, 1, tmp_path / "second.onnx").path.read_bytes() == first


def test_stage_passes_the_checker(tmp_path: Path) -> None:
    path = ZOO / "nanodet.onnx"
    partition = cut_at(path, ("c3", "c4", "c5"))
    for block in (0, 1):
        stage = extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx")
        onnx.checker.check_model(str(stage.path), full_check=True)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (2, 1), (-1, 1), (0, 3)])
def test_range_that_does_not_exist_is_refused(first: int, last: int, tmp_path: Path) -> None:
    path = saved(parsed(CHAIN), tmp_path)
    with pytest.raises(ModelError, match="2 blocks"):
        extract_stage(path, cut_at(path, ("a",)), first, last, tmp_path / "stage.onnx")


def test_partition_of_another_model_is_refused(tmp_path: Path) -> None:
    """By the tensor it misses; and never an empty graph (D7)."""
    path = saved(parsed(CHAIN), tmp_path)
    partition = cut_at(path, ("a", "b"))
    other = saved(parsed(CHAIN.replace("a =", "q =").replace("(a,", "(q,").replace(" a)", " q)")), tmp_path)
    with pytest.raises(ModelError, match="no tensor 'a'"):
        extract_stage(other, partition, 0, 1, tmp_path / "stage.onnx")
    path = saved(parsed(CHAIN), tmp_path)
    with pytest.raises(ModelError, match="also need x"):
        extract_stage(path, cut_at(path, ("b",)), 1, 2, tmp_path / "stage.onnx")
    with pytest.raises(ModelError, match="empty stage"):
        extract_stage(path, cut_at(path, ("a",), ("a",)), 1, 2, tmp_path / "stage.onnx")
    assert not (tmp_path / "stage.onnx").exists()


def test_constant_output_needs_no_input(tmp_path: Path) -> None:
    path = saved(
        parsed(
            "g (float[N,2] x) => (float[N,2] y, float[2] c) <float[2] w = {1, 2}> { a = Relu(x) y = Neg(a) c = Neg(w) }"
        ),
        tmp_path,
    )
    assert index_graph(onnx.load(path)).outputs == ("y", "c")
    assert_same(path, cut_at(path, ("a",)), tmp_path)
