"""Partitions: balanced, exact where the runtime allows it, checked at every cut, and kept as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest

from framepool.models.cut_check import CutChecker, compare, open_session, random_inputs, run
from framepool.models.errors import ModelError
from framepool.models.graph import load_graph
from framepool.models.graph_shapes import infer_shapes
from framepool.models.partition import Partition
from framepool.models.partitioning import CUT_TOLERANCE, partition_from_json, partition_model, partition_to_json
from framepool.models.stages import extract_stage

ZOO = Path(__file__).parents[2] / "models" / "zoo"
DIGEST = "d" * 64


@pytest.fixture(scope="module", params=["nanodet", "nanodet_int8", "movenet"])
def bundled(request: pytest.FixtureRequest) -> tuple[Path, Partition]:
    path = ZOO / f"{request.param}.onnx"
    return path, partition_model(path, DIGEST)


def test_bundled_models_part_into_exact_balanced_blocks(bundled: tuple[Path, Partition]) -> None:
    _, partition = bundled
    assert 6 <= partition.n_blocks <= 10
    assert [cut.index for cut in partition.cuts] == list(range(1, partition.n_blocks))
    assert all(cut.exact and cut.max_abs_error == 0.0 for cut in partition.cuts)
    assert max(partition.block_weights) < 0.35
    assert sum(partition.block_weights) == pytest.approx(1.0)
    for cut in partition.cuts:
        assert 1 <= len(cut.tensors) <= 4
        assert cut.bytes_per_sample == sum(tensor.bytes_per_sample or 0 for tensor in cut.tensors)


def test_all_blocks_one_after_another_equal_the_whole(bundled: tuple[Path, Partition], tmp_path: Path) -> None:
    path, partition = bundled
    feeds = random_inputs(partition.inputs, 3, seed=5)
    values = feeds
    for block in range(partition.n_blocks):
        stage = extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx")
        values = run(open_session(stage.path), values)
    assert compare(run(open_session(path), feeds), values).exact


def test_int8_model_is_parted_at_uint8_tensors_for_the_most_part() -> None:
    partition = partition_model(ZOO / "nanodet_int8.onnx", DIGEST, max_blocks=5)
    dtypes = [tensor.dtype for cut in partition.cuts[:3] for tensor in cut.tensors]
    assert dtypes.count("uint8") > len(dtypes) / 2


def test_json_round_trip(bundled: tuple[Path, Partition]) -> None:
    _, partition = bundled
    assert partition_from_json(partition_to_json(partition)) == partition


def test_unchecked_partition_says_so_and_survives_json(tmp_path: Path) -> None:
    partition = partition_model(ZOO / "movenet.onnx", DIGEST, max_blocks=3, verify=False)
    assert [(cut.exact, cut.max_abs_error) for cut in partition.cuts] == [(False, math.inf)] * 2
    text = partition_to_json(partition)
    assert "Infinity" not in text
    assert partition_from_json(text) == partition


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 99'),
        lambda text: json.dumps({**json.loads(text), "n_blocks": 7}),
        lambda text: json.dumps({key: value for key, value in json.loads(text).items() if key != "cuts"}),
    ],
)
def test_damaged_json_is_refused(damage: object) -> None:
    assert callable(damage)
    text = partition_to_json(partition_model(ZOO / "movenet.onnx", DIGEST, max_blocks=2, verify=False))
    with pytest.raises(ModelError, match="partition"):
        partition_from_json(damage(text))


def test_progress_only_rises_and_ends_complete() -> None:
    steps: list[tuple[int, int]] = []
    partition_model(
        ZOO / "nanodet_int8.onnx", DIGEST, max_blocks=4, progress=lambda done, total: steps.append((done, total))
    )
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert all(done <= total for done, total in steps)
    assert steps[-1][0] == steps[-1][1]


def test_fused_cut_is_seen_as_inexact() -> None:
    """Conv + Add is one kernel in the whole model and two where the laterals are cut."""
    path = ZOO / "nanodet.onnx"
    graph = load_graph(path)
    shapes = infer_shapes(graph)
    verdict = CutChecker(graph, shapes, ZOO).check([shapes.samples[name] for name in ("lat3", "lat4", "lat5")])
    assert not verdict.exact
    assert 0.0 < verdict.relative_error < CUT_TOLERANCE


def test_comparison_sees_every_kind_of_difference() -> None:
    ones = np.ones((2, 3), np.float32)
    assert compare({"y": ones}, {"y": ones.copy()}).exact
    assert compare({"y": ones * np.nan}, {"y": ones * np.nan}).exact
    off = compare({"y": ones * 100}, {"y": ones * 100.5})
    assert (off.exact, off.max_abs_error, off.relative_error) == (False, 0.5, 0.005)
    assert compare({"y": ones}, {"y": ones[:1]}).max_abs_error == math.inf
    assert compare({"y": ones}, {"y": ones * np.nan}).max_abs_error == math.inf
    assert compare({"k": np.array([1, 2])}, {"k": np.array([1, 4])}).max_abs_error == 2.0


def test_model_without_a_legal_cut_is_one_block(tmp_path: Path) -> None:
    """D2's kin: everything after the first node mixes frames, so nothing may be cut."""
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (float[N,2] x) => (float[2,K] y) { a = Transpose <perm = [1, 0]> (x) b = Relu(a) y = Neg(b) }"""
        ),
        path,
    )
    partition = partition_model(path, DIGEST)
    assert (partition.n_blocks, partition.cuts, partition.block_weights) == (1, (), (1.0,))


def test_served_graph_with_pixels_as_input(tmp_path: Path) -> None:
    """uint8 frames that are cast in the graph: the cut never sends them as floats."""
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (uint8[N,8,8,3] frames) => (float[N,4] y)
            <float scale = {0.004}, float[4,3,3,3] w, int64[2] axes = {2, 3}> {
              f = Cast <to = 1> (frames) s = Mul(f, scale) t = Transpose <perm = [0, 3, 1, 2]> (s)
              c = Conv(t, w) r = Relu(c) m = ReduceMean <axes = [2, 3], keepdims = 0> (r) y = Neg(m)
            }"""
        ),
        path,
    )
    model = onnx.load(path)
    weights = np.random.default_rng(3).random((4, 3, 3, 3), dtype=np.float32)
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)
    partition = partition_model(path, DIGEST)
    assert partition.n_blocks >= 2
    assert all(cut.exact for cut in partition.cuts)
    assert [tensor.name for cut in partition.cuts for tensor in cut.tensors if tensor.name == "f"] == []
    assert partition.inputs[0].shape == (8, 8, 3)


def test_model_of_two_inputs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (float[N,16] x, int32[N,16] k) => (float[N,16] y, float[N,16] early) {
              early = Tanh(x) b = Exp(early) c = Cast <to = 1> (k) d = Mul(b, c) y = Tanh(d)
            }"""
        ),
        path,
    )
    partition = partition_model(path, DIGEST)
    assert partition.n_blocks >= 2
    assert [tensor.name for tensor in partition.inputs] == ["x", "k"]
    feeds = random_inputs(partition.inputs, 2, seed=9)
    values = feeds
    for block in range(partition.n_blocks):
        stage = extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx")
        values = run(open_session(stage.path), values)
    assert compare(run(open_session(path), feeds), values).exact
