"""What each node of a graph costs, relative to the others: measured by onnxruntime's profiler, or reckoned.

Measured (where onnxruntime is installed): a few runs on one CPU thread with every graph optimisation on, as stages
will run. The runtime fuses nodes, so its kernels are mapped back: by the node's name, which survives most fusions; by
the output tensor's name, which the blocked-layout convolutions carry; else to the kernel that ran before. A node
without a kernel of its own joins the group of the node that feeds it, and a group's time is spread in proportion to the
reckoned costs. Kernels inside bodies of `If`, `Loop`, `Scan` are part of their node's time.

Reckoned: multiply-adds at a rate typical of one core plus bytes touched at its memory bandwidth. Only ratios matter.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto

from framepool.models.cut_check import open_session, random_inputs
from framepool.models.graph import Graph, bodies, index_graph
from framepool.models.graph_extract import write_subgraph
from framepool.models.graph_shapes import Shapes
from framepool.models.graph_weights import tensor_bytes

_FLOPS_PER_US = 5e4
"""About 50 GFLOP/s: one AVX2 core at its usual share of peak in convolutions."""

_BYTES_PER_US = 1e4
"""About 10 GB/s: one core's stream bandwidth."""

_NODE_US = 1.0
"""Dispatch of one kernel."""

_RUNS = 5
_BUDGET_S = 2.0
"""At most this many runs are profiled, and no further one is begun after this time."""

_NAMED = re.compile(r"framepool-node-(\d+)(?!\d)")
_BODY = "framepool-body"


def node_costs(graph: Graph, shapes: Shapes, folder: Path) -> NDArray[np.float64]:
    """Cost of each node in microseconds at batch 1, float64 [nodes]; constants cost nothing.

    Measured where onnxruntime can run the graph, else reckoned.
    """
    reckoned = reckon_costs(graph, shapes)
    if importlib.util.find_spec("onnxruntime") is None:
        return reckoned
    measured = measure_costs(graph, shapes, folder)
    return _spread(graph, measured, reckoned)


def reckon_costs(graph: Graph, shapes: Shapes) -> NDArray[np.float64]:
    """Cost of each node in microseconds from its multiply-adds and the bytes it touches."""
    weights = {tensor.name: tensor for tensor in graph.model.graph.initializer}
    costs = np.zeros(len(graph.model.graph.node))
    for index in graph.live_nodes:
        node = graph.node(index)
        outputs = [_dims(shapes, name) for name in node.output]
        touched = sum(_edge_bytes(shapes, name) for name in (*node.output, *graph.dynamic_reads(index)))
        touched += sum(tensor_bytes(weights[name]) for name in graph.reads[index] if name in weights)
        flops = 0.0
        if outputs and node.op_type in {"Conv", "ConvTranspose", "Gemm", "MatMul"} and len(node.input) > 1:
            kernel = tuple(weights[node.input[1]].dims) if node.input[1] in weights else _dims(shapes, node.input[1])
            if node.op_type.startswith("Conv"):
                flops = 2.0 * math.prod(outputs[0]) * math.prod(kernel[1:])
            else:
                flops = 2.0 * math.prod(outputs[0]) * (_dims(shapes, node.input[0]) or (1,))[-1]
        costs[index] = _NODE_US + flops / _FLOPS_PER_US + touched / _BYTES_PER_US
    return costs


def measure_costs(graph: Graph, shapes: Shapes, folder: Path) -> NDArray[np.float64]:
    """Microseconds of each node's kernels, float64 [nodes]: the least of several runs on one CPU thread."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory(prefix="framepool-costs-") as scratch:
        path = Path(scratch) / "model.onnx"
        inputs = tuple(shapes.edge(name) for name in graph.inputs)
        write_subgraph(_with_names(graph), folder, inputs, tuple(shapes.edge(name) for name in graph.outputs), path)
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(scratch) / "profile")
        session = open_session(path, options)
        feeds = random_inputs(inputs, shapes.batch or 1, seed=0)
        deadline = time.monotonic() + _BUDGET_S
        runs = 0
        while runs < 2 or (runs < _RUNS and time.monotonic() < deadline):
            session.run(None, feeds)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    spent = np.zeros((runs, len(graph.model.graph.node)))
    run, last = -1, graph.live_nodes[0]
    for event in sorted(events, key=lambda event: int(event["ts"])):
        name = str(event.get("name", ""))
        if name == "model_run":
            run, last = run + 1, graph.live_nodes[0]
        elif event.get("cat") == "Node" and name.endswith("_kernel_time") and _BODY not in name and run >= 0:
            last = _owner(graph, name.removesuffix("_kernel_time"), last)
            spent[run, last] += float(event["dur"])
    least: NDArray[np.float64] = spent.min(axis=0)
    return least


def _owner(graph: Graph, kernel: str, last: int) -> int:
    named = _NAMED.search(kernel)
    if named:
        return int(named.group(1))
    tensor = re.sub(r"(_token_\d+|_nchwc|_nhwc)+$", "", kernel)
    return graph.producer.get(tensor, last)


def _spread(graph: Graph, measured: NDArray[np.float64], reckoned: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares the time of a fused kernel among the nodes that have none of their own."""
    group: dict[int, int] = {}
    for index in graph.live_nodes:
        feeding = [graph.producer[name] for name in graph.dynamic_reads(index) if name in graph.producer]
        leaders = [group[source] for source in feeding if source in group]
        group[index] = leaders[-1] if leaders and measured[index] == 0.0 else index
    weight = np.zeros_like(measured)
    for index, leader in group.items():
        weight[leader] += reckoned[index]
    costs = np.zeros_like(measured)
    for index, leader in group.items():
        costs[index] = measured[leader] * reckoned[index] / weight[leader]
    return costs


def _with_names(graph: Graph) -> Graph:
    """The graph with every node named by its index, so that kernels can be told apart."""
    model = ModelProto()
    model.CopyFrom(graph.model)
    for index, node in enumerate(model.graph.node):
        node.name = f"framepool-node-{index}"
        for body in bodies(node):
            _name_body(body)
    return index_graph(model)


def _name_body(body: GraphProto) -> None:
    for index, node in enumerate(body.node):
        node.name = f"{_BODY}-{index}"
        for inner in bodies(node):
            _name_body(inner)


def _dims(shapes: Shapes, name: str) -> tuple[int, ...]:
    """Shape of one sample; unknown axes count as 1."""
    if name in shapes.samples:
        return tuple(dim or 1 for dim in shapes.samples[name].shape)
    _, dims = shapes.types.get(name, ("", None))
    return tuple(dim or 1 for dim in dims or ())


def _edge_bytes(shapes: Shapes, name: str) -> int:
    dtype, _ = shapes.types.get(name, ("uint8", None))
    return math.prod(_dims(shapes, name)) * np.dtype(dtype).itemsize
