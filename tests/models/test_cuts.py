"""Cut search: which tensors are live where, and which positions are legal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from framepool.models.cuts import CandidateCut, find_cuts
from framepool.models.errors import ModelInvalidError
from framepool.models.graph import index_graph, load_graph
from framepool.models.graph_shapes import infer_shapes
from framepool.models.partition import TensorInfo

ZOO = Path(__file__).parents[2] / "models" / "zoo"


def model(graph: str, *, opset: int = 17, head: str = "") -> onnx.ModelProto:
    """A model in ONNX's textual form."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{head}]>\n{graph}')


def names(cuts: list[CandidateCut]) -> list[set[str]]:
    return [{tensor.name for tensor in cut.tensors} for cut in cuts]


def test_chain_has_a_cut_between_each_pair_of_nodes() -> None:
    cuts = find_cuts(model("g (float[N,3] x) => (float[N,3] z) { a = Relu(x) b = Neg(a) z = Abs(b) }"))
    assert names(cuts) == [{"a"}, {"b"}]
    assert [cut.position for cut in cuts] == [1, 2]
    assert cuts[0].tensors == (TensorInfo("a", "float32", (3,)),)
    assert cuts[0].bytes_per_sample == 12


def test_d9_skip_connection_and_weight_on_both_sides() -> None:
    """D9: x is still read after b, so every cut holds both; the weight w crosses none."""
    cuts = find_cuts(
        model(
            "g (float[N,2] x) => (float[N,2] y) <float[1,2] w = {1, 2}> { a = Add(x, w) b = Mul(a, w) y = Add(b, a) }"
        )
    )
    assert names(cuts) == [{"a"}, {"a", "b"}]


def test_graph_inputs_that_are_read_later_are_live() -> None:
    cuts = find_cuts(
        model("g (float[N,2] x, float[N,2] late) => (float[N,2] y) { a = Relu(x) b = Neg(a) y = Add(b, late) }")
    )
    assert names(cuts) == [{"a", "late"}, {"b", "late"}]


def test_output_that_is_done_early_is_live_to_the_end() -> None:
    cuts = find_cuts(
        model("g (float[N,2] x) => (float[N,2] early, float[N,2] y) { early = Relu(x) b = Neg(early) y = Abs(b) }")
    )
    assert names(cuts) == [{"early"}, {"early", "b"}]


def test_constants_and_what_is_computed_from_them_do_not_count() -> None:
    cuts = find_cuts(
        model(
            "g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> "
            "{ c = Constant <value = float[2] {3, 4}> () d = Add(w, c) a = Relu(x) b = Mul(a, d) y = Neg(b) }"
        )
    )
    assert names(cuts) == [{"a"}, {"b"}]


def test_dead_nodes_are_no_part_of_any_block() -> None:
    cuts = find_cuts(model("g (float[N,2] x) => (float[N,2] y) { dead = Neg(x) a = Relu(x) y = Abs(a) }"))
    assert names(cuts) == [{"a"}]


@pytest.mark.parametrize("mixer", ["Reshape <allowzero = 0> (a, flat)", "Transpose <perm = [1, 0]> (a)"])
def test_tensor_without_batch_axis_crosses_no_cut(mixer: str) -> None:
    """A tensor in which frames are mixed, or whose batch is not its first axis, can't be split by frame."""
    graph = (
        "g (float[N,2] x) => (float[N,2] y) <int64[2] flat = {2, -1}, int64[2] back = {-1, 2}> "
        f"{{ a = Relu(x) m = {mixer} b = Reshape(m, back) y = Neg(b) }}"
    )
    assert {"m"} not in names(find_cuts(model(graph)))
    assert {"a"} in names(find_cuts(model(graph)))


def test_nameless_batch_axis_is_found_by_inference() -> None:
    """Reshape to [-1, 6] yields an axis without a name that still follows the batch."""
    graph = "g (float[N,2,3] x) => (float[N,6] y) <int64[2] to = {-1, 6}> { a = Relu(x) b = Reshape(a, to) y = Neg(b) }"
    cuts = find_cuts(model(graph))
    assert cuts[1].tensors == (TensorInfo("b", "float32", (6,)),)


def test_unknown_shape_crosses_no_cut() -> None:
    cuts = find_cuts(
        model(
            "g (float[N,2] x) => (float[K,2] y) "
            "{ a = Relu(x) i = NonZero(a) b = Transpose <perm = [1, 0]> (i) y = Cast <to = 1> (b) }"
        )
    )
    assert names(cuts) == [{"a"}]


def test_sequence_crosses_no_cut() -> None:
    cuts = find_cuts(
        model(
            "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) s = SplitToSequence <axis = 1> (a) "
            "b = ConcatFromSequence <axis = 1> (s) y = Neg(b) }"
        )
    )
    assert {"s"} not in names(cuts)
    assert {"a"} in names(cuts)


def test_fixed_batch_counts_bytes_of_one_sample() -> None:
    cuts = find_cuts(model("g (float[4,3] x) => (float[4,3] y) { a = Relu(x) y = Neg(a) }"))
    assert cuts[0].tensors == (TensorInfo("a", "float32", (3,)),)
    assert cuts[0].bytes_per_sample == 12


def test_more_tensors_than_allowed_are_no_cut() -> None:
    graph = model(
        "g (float[N,2] x) => (float[N,2] y) "
        "{ a = Relu(x) b = Neg(x) c = Abs(x) d = Add(a, b) e = Add(d, c) y = Neg(e) }"
    )
    assert all(len(cut.tensors) <= 2 for cut in find_cuts(graph, max_tensors=2))
    assert {"e"} in names(find_cuts(graph, max_tensors=1))


def test_d8_captured_tensors_are_followed_and_control_flow_is_not_split() -> None:
    """D8: b is read only inside a body of If; it is live up to that node, and no cut lies inside."""
    cuts = find_cuts(capturing_model())
    assert names(cuts) == [{"a"}, {"a", "b"}, {"i"}]


def capturing_model() -> onnx.ModelProto:
    """Relu, Neg, If whose bodies capture a and b and a weight, Relu."""

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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_local_functions_are_opened() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N,2] x) => (float[N,2] y) { y = local.chain(x) }
        <opset_import: ["" : 17], domain: "local">
        chain (v) => (w) { s = Relu(v) t = Neg(s) w = Abs(t) }
    """
    assert len(find_cuts(onnx.parser.parse_model(text))) == 2


def test_int8_graph_is_cut_at_the_quantised_tensor() -> None:
    """Even where its float form is read several times: the receiver widens it again."""
    cuts = find_cuts(
        model(
            "g (float[N,2] x) => (float[N,2] y) <float s = {0.5}, uint8 z = {3}> { q = QuantizeLinear(x, s, z) "
            "d = DequantizeLinear(q, s, z) a = Relu(d) b = Neg(a) y = Add(b, d) }"
        )
    )
    assert names(cuts) == [{"q"}, {"q", "a"}, {"q", "b"}]
    assert cuts[0].bytes_per_sample == 2


def test_fp16_graph_is_cut_at_the_fp16_tensor() -> None:
    cuts = find_cuts(
        model("g (float16[N,4] x) => (float[N,4] y) { a = Relu(x) w = Cast <to = 1> (a) b = Neg(w) y = Abs(b) }")
    )
    assert cuts[0].tensors == (TensorInfo("a", "float16", (4,)),)
    assert names(cuts)[1] == {"b"}


def test_cut_before_an_activation_is_no_seam() -> None:
    cuts = find_cuts(
        model(
            "g (float[N,1,4,4] x) => (float[N,1,4,4] y) <float[1,1,1,1] w = {2}> "
            "{ c = Conv(x, w) a = Relu(c) y = Neg(a) }"
        )
    )
    assert [cut.seam for cut in cuts] == [False, True]


def test_pyramid_levels_meet_at_one_cut_whatever_the_order_of_the_file() -> None:
    found = names(find_cuts(onnx.load(ZOO / "nanodet.onnx")))
    for expected in ({"stem"}, {"c2"}, {"c3"}, {"c3", "c4", "c5"}, {"p3", "p4", "p5"}, {"boxes", "scores"}):
        assert expected in found


def test_bundled_int8_model_has_uint8_cuts_of_a_quarter_of_the_bytes() -> None:
    cuts = {frozenset(t.name for t in cut.tensors): cut for cut in find_cuts(onnx.load(ZOO / "nanodet_int8.onnx"))}
    cut = cuts[frozenset({"c2_QuantizeLinear_Output"})]
    assert (cut.tensors[0].dtype, cut.bytes_per_sample) == ("uint8", 173_056)
    levels = cuts[frozenset(f"c{level}_QuantizeLinear_Output" for level in (3, 4, 5))]
    assert levels.bytes_per_sample == 605_696


def test_output_without_batch_axis_has_an_unknown_size() -> None:
    graph = index_graph(model("g (float[N,2] x) => (int64[2,K] y) { a = Relu(x) y = NonZero(a) }"))
    edge = infer_shapes(graph).edge("y")
    assert edge.shape[0] is None
    assert edge.bytes_per_sample is None


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("g (float[N,2] x) => (float[N,2] y) { }", "no nodes"),
        ("g (float[N,2] x) => (float[N,2] y) { y = Add(x, missing) }", "missing"),
        ("g (float[N,2] x) => (float[N,2] y) { z = Relu(x) }", "'y'"),
    ],
)
def test_inconsistent_graph_is_refused_by_name(graph: str, message: str) -> None:
    with pytest.raises(ModelInvalidError, match=message):
        find_cuts(model(graph))


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model at all")
    with pytest.raises(ModelInvalidError, match="broken"):
        load_graph(broken)
    with pytest.raises(ModelInvalidError, match="does not exist"):
        load_graph(tmp_path / "missing.onnx")
