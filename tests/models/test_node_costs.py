"""Costs of nodes: every kernel's time lands on the nodes it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from framepool.models.graph import index_graph, load_graph
from framepool.models.graph_shapes import infer_shapes
from framepool.models.node_costs import node_costs, reckon_costs

ZOO = Path(__file__).parents[2] / "models" / "zoo"


@pytest.mark.parametrize("name", ["nanodet", "nanodet_int8"])
def test_convolutions_carry_most_of_a_detectors_time(name: str) -> None:
    graph = load_graph(ZOO / f"{name}.onnx")
    costs = node_costs(graph, infer_shapes(graph), ZOO)
    convolutions = [index for index in graph.live_nodes if graph.node(index).op_type == "Conv"]
    assert costs.shape == (len(graph.model.graph.node),)
    assert costs[convolutions].sum() > 0.4 * costs.sum()
    assert (costs[convolutions] > 0).mean() > 0.9
    assert (costs >= 0).all()


def test_constants_cost_nothing() -> None:
    graph = load_graph(ZOO / "nanodet_int8.onnx")
    live = set(graph.live_nodes)
    idle = [index for index in range(len(graph.model.graph.node)) if index not in live]
    assert idle
    assert node_costs(graph, infer_shapes(graph), ZOO)[idle].sum() == 0.0


def test_time_inside_a_body_belongs_to_its_node() -> None:
    """A Loop of many steps outweighs the node before it, and its inner kernels are counted once."""
    graph = index_graph(
        onnx.parser.parse_model(
            """
            <ir_version: 8, opset_import: ["" : 17]>
            g (float[N,64] x) => (float[N,64] y) <int64 steps = {200}, bool go = {1}> {
              a = Relu(x)
              y = Loop <body = b (int64 i, bool c, float[N,64] s) => (bool d, float[N,64] t)
                        { d = Identity(c) t = Tanh(s) }> (steps, go, a)
            }
            """
        )
    )
    costs = node_costs(graph, infer_shapes(graph), Path())
    loop = next(index for index in graph.live_nodes if graph.node(index).op_type == "Loop")
    assert costs[loop] > 0.8 * costs.sum()


def test_reckoned_costs_follow_work() -> None:
    """Twice the channels on both sides: about four times the multiply-adds."""

    def conv(channels: int) -> float:
        graph = index_graph(
            onnx.parser.parse_model(
                f"""
                <ir_version: 8, opset_import: ["" : 17]>
                g (float[N,{channels},32,32] x, float[{channels},{channels},3,3] w) => (float[N,{channels},30,30] y)
                {{ y = Conv(x, w) }}
                """
            )
        )
        return float(reckon_costs(graph, infer_shapes(graph)).sum())

    assert 3.0 < conv(128) / conv(64) < 4.5


def test_fused_activation_shares_its_kernels_time() -> None:
    graph = load_graph(ZOO / "nanodet.onnx")
    costs = node_costs(graph, infer_shapes(graph), ZOO)
    fused = [index for index in graph.live_nodes if graph.node(index).op_type == "LeakyRelu"]
    assert np.count_nonzero(costs[fused]) > 0.9 * len(fused)
