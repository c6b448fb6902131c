"""The main graph of an ONNX model, indexed for cutting: who produces, reads and needs which tensor.

Local functions are inlined on the way in, so that a model whose body is one function call can be cut as well; whatever
can't be inlined stays one node. Control flow (`If`, `Loop`, `Scan`) is never opened: such a node is atomic, and the
tensors that its bodies capture from outside count as read by the node itself.

A *constant* here is a tensor that is known before any input arrives: weights, and whatever is computed from them alone
(such as the dequantised weights of an int8 graph). Constants never cross a cut; both sides compute their own.

Shapes are the duty of `graph_shapes`, weights on disk of `graph_weights`. Nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from framepool.models.errors import ModelInvalidError

_RANDOM_OPS = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomUniform"})
"""Without inputs, yet no constants: computed twice, they would give two results."""


@dataclass(frozen=True, slots=True)
class Graph:
    """An indexed main graph. Nodes are named by their index in `model.graph.node`.

    `reads[i]` holds what node i reads, captures of its bodies included, each name once. `live_nodes` are the nodes
    that are no constants and that some output needs, in the file's (topological) order.
    """

    model: ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    producer: Mapping[str, int]
    constants: frozenset[str]
    live_nodes: tuple[int, ...]

    @property
    def tensors(self) -> frozenset[str]:
        """Names of all tensors of the main graph."""
        return frozenset((*self.inputs, *self.constants, *self.producer))

    def node(self, index: int) -> NodeProto:
        return self.model.graph.node[index]

    def dynamic_reads(self, index: int) -> Iterator[str]:
        """What node `index` reads, constants left out."""
        return (name for name in self.reads[index] if name not in self.constants)


def load_graph(path: Path) -> Graph:
    """Reads a model file; weights beside it stay where they are. Raises ModelInvalidError."""
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as exc:
        raise ModelInvalidError(f"model file {path} does not exist", field="path") from exc
    except (DecodeError, OSError, ValueError) as exc:
        raise ModelInvalidError(f"model file {path} can't be read as ONNX: {exc}", field="path") from exc
    return index_graph(model)


def index_graph(model: ModelProto) -> Graph:
    """Indexes `model`, which is not changed. Raises ModelInvalidError for a graph that is empty or inconsistent."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    proto = model.graph
    if not proto.node:
        raise ModelInvalidError(f"graph {proto.name!r} of the model has no nodes")
    initializers = initializer_names(proto)
    inputs = tuple(value.name for value in proto.input if value.name not in initializers)
    outputs = tuple(value.name for value in proto.output)
    reads = tuple(_reads(node) for node in proto.node)
    producer = {name: i for i, node in enumerate(proto.node) for name in node.output if name}
    constants = set(initializers)
    known = initializers | set(inputs)
    for i, node in enumerate(proto.node):
        for name in reads[i]:
            if name not in known:
                raise ModelInvalidError(
                    f"node {node.name or i} ({node.op_type}) reads tensor {name!r}, which no earlier node yields"
                )
        known.update(node.output)
        if node.op_type not in _RANDOM_OPS and constants.issuperset(reads[i]):
            constants.update(name for name in node.output if name)
    for name in outputs:
        if name not in known:
            raise ModelInvalidError(f"output {name!r} of the model is yielded by no node")
    needed = nodes_for(outputs, reads, producer, stop=frozenset(constants))
    return Graph(model, inputs, outputs, reads, producer, frozenset(constants), tuple(sorted(needed)))


def initializer_names(proto: GraphProto) -> set[str]:
    """Names of all weights of a graph, dense and sparse."""
    return {tensor.name for tensor in proto.initializer} | {t.values.name for t in proto.sparse_initializer}


def nodes_for(
    wanted: Iterable[str],
    reads: tuple[tuple[str, ...], ...],
    producer: Mapping[str, int],
    stop: frozenset[str] = frozenset(),
) -> set[int]:
    """Nodes needed to compute `wanted` when the tensors in `stop` are given."""
    found: set[int] = set()
    waiting = [name for name in wanted if name not in stop]
    while waiting:
        index = producer.get(waiting.pop())
        if index is None or index in found:
            continue
        found.add(index)
        waiting.extend(name for name in reads[index] if name not in stop)
    return found


def _reads(node: NodeProto) -> tuple[str, ...]:
    names = dict.fromkeys(name for name in node.input if name)
    for body in bodies(node):
        names.update(dict.fromkeys(captured(body)))
    return tuple(names)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The sub-graphs that `node` holds directly."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(body: GraphProto) -> Iterator[str]:
    """Tensors that a body, or a body within it, takes from the graphs around it."""
    own = {value.name for value in body.input} | initializer_names(body)
    for node in body.node:
        yield from (name for name in _reads(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in body.output if value.name not in own)
