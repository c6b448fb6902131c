"""Shapes that graphs compute for themselves are known after inference, and cuts behind them are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from framepool.models.cut_check import compare, open_session, random_inputs, run
from framepool.models.cuts import find_cuts
from framepool.models.graph import index_graph
from framepool.models.graph_shapes import infer_shapes
from framepool.models.partitioning import partition_model
from framepool.models.shape_arithmetic import fold, known_values
from framepool.models.stages import extract_stage

SHUFFLE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch,6,4,4] x) => (float[batch,6,4,4] y)
<int64 zero = {0}, int64 one = {1}, int64 groups = {2},
 int64[1] first = {0}, int64[1] two = {2}, int64[2] hw = {4, 4}> {
  a = Tanh(x)
  shape = Shape(a)
  n = Gather(shape, zero) c = Gather(shape, one)
  share = Div(c, groups)
  n1 = Unsqueeze(n, first) share1 = Unsqueeze(share, first)
  split = Concat <axis = 0> (n1, two, share1, hw)
  viewed = Reshape(a, split)
  turned = Transpose <perm = [0, 2, 1, 3, 4]> (viewed)
  c1 = Unsqueeze(c, first)
  joined = Concat <axis = 0> (n1, c1, hw)
  b = Reshape(turned, joined)
  d = Exp(b)
  y = Tanh(d)
}"""


def parsed(text: str) -> ModelProto:
    return onnx.parser.parse_model(text)


def test_computed_views_have_shapes_and_keep_their_batch_axis() -> None:
    shapes = infer_shapes(index_graph(parsed(SHUFFLE)))
    assert shapes.samples["viewed"].shape == (2, 3, 4, 4)
    assert shapes.samples["b"].shape == (6, 4, 4)
    assert {"a", "viewed", "turned", "b", "d", "y"} <= shapes.batched
    assert "shape" not in shapes.samples


def test_cuts_lie_behind_computed_views() -> None:
    cuts = [[tensor.name for tensor in cut.tensors] for cut in find_cuts(parsed(SHUFFLE))]
    assert ["b"] in cuts
    assert ["d"] in cuts
    assert not any("n" in names or "split" in names for names in cuts)


def test_model_with_computed_views_in_parts_equals_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parsed(SHUFFLE), path)
    partition = partition_model(path, "d" * 64)
    assert partition.n_blocks >= 3
    feeds = values = random_inputs(partition.inputs, 3, seed=1)
    for block in range(partition.n_blocks):
        stage = extract_stage(path, partition, block, block + 1, tmp_path / "stage.onnx")
        values = run(open_session(stage.path), values)
    assert compare(run(open_session(path), feeds), values).exact


def test_view_that_moves_frames_into_another_axis_is_no_cut() -> None:
    """D2: what is computed stays honest: batch and channels merged is no batch axis."""
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch,6,4] x) => (float[batch,6,4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] rest = {4}> {
          a = Tanh(x)
          shape = Shape(a)
          n = Gather(shape, zero) c = Gather(shape, one)
          rows = Mul(n, c) rows1 = Unsqueeze(rows, first)
          flat = Concat <axis = 0> (rows1, rest)
          merged = Reshape(a, flat)
          b = Exp(merged)
          y = Reshape(b, shape)
        }"""
    )
    shapes = infer_shapes(index_graph(model))
    assert shapes.types["merged"] == ("float32", (12, 4))
    assert not shapes.batched & {"merged", "b"}
    assert "y" in shapes.batched


def test_folding_keeps_node_count_and_names_and_ends() -> None:
    model = parsed(SHUFFLE)
    values = known_values(model.graph)
    outputs = [list(node.output) for node in model.graph.node]
    assert fold(model, {"a": (2, 6, 4, 4)}, values)
    assert [list(node.output) for node in model.graph.node] == outputs
    assert values["split"].tolist() == [2, 2, 3, 4, 4]
    assert values["joined"].tolist() == [2, 6, 4, 4]
    assert not fold(model, {"a": (2, 6, 4, 4)}, values)


def test_unknown_axes_and_operators_that_fail_stay_unknown() -> None:
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,6] x) => (int64[2] s, int64[K] bad) <int64[1] far = {9}, int64[2] some = {1, 2}> {
          s = Shape(x)
          bad = Gather(some, far)
        }"""
    )
    values = known_values(model.graph)
    assert not fold(model, {"x": (None, 6)}, values)
    assert "s" not in values
    assert "bad" not in values


def test_bounds_of_shape_are_kept() -> None:
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,6,4] x) => (int64[1] s) { s = Shape <start = -2, end = -1> (x) }"""
    )
    values = known_values(model.graph)
    assert fold(model, {"x": (None, 6, 4)}, values)
    np.testing.assert_array_equal(values["s"], [6])
