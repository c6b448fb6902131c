"""Candidate cuts: the places where a model may be parted, and the tensors that would travel there.

Theory of operation. Nodes are laid out in one topological order (`graph_order`); a cut lies between two neighbours
of that order. The tensors live there are all those yielded before and read after it: skip connections, graph inputs
that are still to be read, and outputs of the model that are done early, but no constants (`graph`). A cut is legal when

- something is computed on both sides of it,
- at most `max_tensors` tensors are live, and
- every one of them has batch axis 0 and a static shape per sample (`graph_shapes`): no sequence, no shape
  computed at run time, nothing that mixes frames.

A live tensor that was merely widened (`DequantizeLinear`, `Cast`) is not sent as such: its narrow source travels in its
place and the next stage widens it again, which gives the same values. So an int8 graph is cut at uint8 tensors and an
fp16 graph at fp16 ones. Which of the candidates are used is the matter of `blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from framepool.models.errors import ModelInvalidError
from framepool.models.graph import Graph, index_graph
from framepool.models.graph_order import deepest_first, last_reads
from framepool.models.graph_shapes import Shapes, infer_shapes
from framepool.models.partition import TensorInfo

MAX_CUT_TENSORS = 4
"""Tensors allowed at a cut by default: a feature pyramid has three or four levels; beyond, bytes hardly ever pay."""

_WIDENING = frozenset({"DequantizeLinear", "Cast"})

_FUSED_INTO = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "FusedConv", "ConvInteger", "MatMulInteger"})
_FUSED_AFTER = frozenset(
    {"Add", "BatchNormalization", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "PRelu", "Relu"}
    | {"Sigmoid", "Sub", "Tanh"}
)


@dataclass(frozen=True, slots=True)
class CandidateCut:
    """A legal cut after the first `position` nodes of the order.

    `seam` is False where runtimes are known to fuse nodes across it (a convolution and the addition or activation that
    alone reads it), so that cutting there may change the last bits of the result.
    """

    position: int
    tensors: tuple[TensorInfo, ...]
    bytes_per_sample: int
    seam: bool


@dataclass(frozen=True, slots=True)
class CutSearch:
    """An order of a graph's live nodes and the legal cuts in it, ascending by position."""

    graph: Graph
    shapes: Shapes
    order: tuple[int, ...]
    cuts: tuple[CandidateCut, ...]


def find_cuts(
    model: ModelProto, *, max_tensors: int = MAX_CUT_TENSORS, folder: Path | None = None
) -> list[CandidateCut]:
    """All legal cuts of `model` in topological order; `folder` holds its weights if they lie outside the file."""
    return list(search_cuts(index_graph(model), max_tensors=max_tensors, folder=folder).cuts)


def search_cuts(graph: Graph, *, max_tensors: int = MAX_CUT_TENSORS, folder: Path | None = None) -> CutSearch:
    """Lays `graph` out in the order that offers most seams (then: least bytes at them) and finds its legal cuts."""
    shapes = infer_shapes(graph, folder)
    best: CutSearch | None = None
    best_rank = (0, 0)
    for order in (deepest_first(graph), graph.live_nodes):
        cuts = tuple(_cuts_of(graph, shapes, order, max_tensors))
        rank = (sum(cut.seam for cut in cuts), -sum(cut.bytes_per_sample for cut in cuts if cut.seam))
        if best is None or rank > best_rank:
            best, best_rank = CutSearch(graph, shapes, order, cuts), rank
    if best is None:
        raise ModelInvalidError(f"graph {graph.model.graph.name!r} has no nodes")
    return best


def _cuts_of(graph: Graph, shapes: Shapes, order: tuple[int, ...], max_tensors: int) -> Iterator[CandidateCut]:
    last = last_reads(graph, order)
    readers: dict[str, list[int]] = {}
    for index in order:
        for name in graph.dynamic_reads(index):
            readers.setdefault(name, []).append(index)
    live = dict.fromkeys(name for name in graph.inputs if name in last)
    previous: frozenset[str] = frozenset()
    for position, index in enumerate(order[:-1], start=1):
        for name in graph.dynamic_reads(index):
            if last[name] < position:
                live.pop(name, None)
        live.update(dict.fromkeys(name for name in graph.node(index).output if last.get(name, -1) >= position))
        if not live or len(live) > max_tensors or not all(name in shapes.samples for name in live):
            continue
        carried = dict.fromkeys(_carrier(graph, shapes, name) for name in live)
        if carried.keys() == previous or all(name in graph.inputs for name in carried):
            continue
        previous = frozenset(carried)
        tensors = tuple(shapes.samples[name] for name in carried)
        size_bytes = sum(tensor.bytes_per_sample or 0 for tensor in tensors)
        seam = not any(_fused_across(graph, name, readers.get(name, [])) for name in live)
        yield CandidateCut(position, tensors, size_bytes, seam)


def _carrier(graph: Graph, shapes: Shapes, name: str) -> str:
    """The tensor that travels for a live one: what it was widened from, if that is smaller, else itself."""
    index = graph.producer.get(name)
    if index is None or name in graph.outputs or graph.node(index).op_type not in _WIDENING:
        return name
    sources = tuple(graph.dynamic_reads(index))
    if len(sources) != 1 or sources[0] not in shapes.samples:
        return name
    source = _carrier(graph, shapes, sources[0])
    narrow, wide = shapes.samples[source].bytes_per_sample, shapes.samples[name].bytes_per_sample
    return source if (narrow or 0) < (wide or 0) else name


def _fused_across(graph: Graph, name: str, readers: list[int]) -> bool:
    index = graph.producer.get(name)
    if index is None or name in graph.outputs or graph.node(index).op_type not in _FUSED_INTO:
        return False
    return any(graph.node(reader).op_type in _FUSED_AFTER for reader in readers)
