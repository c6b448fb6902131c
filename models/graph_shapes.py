"""Types and per-sample shapes of a graph's tensors, with the batch axis found by inference, not by name.

Idea: symbols get lost on the way (a `Reshape` to ``[-1, 80]`` yields a nameless axis), numbers don't. Shapes are
inferred twice, for a batch of two and for a batch of three; a tensor has a batch axis when its first axis follows the
batch and no other axis does. A graph that fixes its batch is inferred once, as it is.

Shapes that the graph computes for itself are evaluated between inferences (`shape_arithmetic`).

Cost: weights are replaced by their shapes first, so inference handles kilobytes whatever the model's size, and never
meets protobuf's 2 GiB limit (beyond which inference silently returns an empty graph).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper

from framepool.models.errors import ModelInvalidError
from framepool.models.graph import Graph
from framepool.models.graph_weights import inlined, is_external
from framepool.models.partition import TensorInfo
from framepool.models.shape_arithmetic import fold, known_values

_SHAPE_ELEMENTS = 1024
"""Weights up to this size are kept for inference: targets of Reshape, axes, scales of Resize."""

_PROBE_BATCHES = (2, 3)

_MOST_ROUNDS = 200
"""Inferences of one graph, each with what the last let be evaluated: nets that view in each block need one a block."""

_Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Shapes:
    """What is known of a graph's tensors.

    `samples` holds the tensors with a batch axis 0 and nothing unknown, by name; they alone may cross a cut.
    `types` holds every tensor of a numpy type: its dtype and full shape at the first probed batch (None: unknown).
    `batched` names all tensors whose axis 0 is the batch, whatever is known of their other axes.
    `batch` is the fixed batch, or None where it is free; `batch_symbol` is then its name in the file.
    """

    samples: Mapping[str, TensorInfo]
    types: Mapping[str, tuple[str, _Dims | None]]
    batched: frozenset[str]
    batch: int | None
    batch_symbol: str

    def edge(self, name: str) -> TensorInfo:
        """A graph input or output. Where it has no batch axis, its first axis reads None: its size is unknown."""
        if name in self.samples:
            return self.samples[name]
        dtype, dims = self.types.get(name, ("", None))
        if not dtype:
            raise ModelInvalidError(f"graph edge {name!r} is no tensor of a plain type (a sequence, map or optional)")
        rest = (dims or ())[1:]
        return TensorInfo(name, dtype, rest if name in self.batched else (None, *rest))


def infer_shapes(graph: Graph, folder: Path | None = None) -> Shapes:
    """Infers `graph`; `folder` is where its weights lie if they are outside the file."""
    light = _without_weights(graph.model, folder)
    inputs = [value for value in light.graph.input if value.name in graph.inputs]
    free = [value for value in inputs if _first_axis_free(value)]
    if free:
        first, second = (_infer(light, {value.name for value in free}, batch) for batch in _PROBE_BATCHES)
        batched = {name for name, (_, dims) in first.items() if _follow(dims, second.get(name, ("", None))[1])}
        symbol = free[0].type.tensor_type.shape.dim[0].dim_param or "N"
        return Shapes(_samples(first, batched), first, frozenset(batched), None, symbol)
    ranked = [value.type.tensor_type.shape.dim for value in inputs if value.type.tensor_type.shape.dim]
    batch = ranked[0][0].dim_value if ranked else 1
    types = _infer(light, set(), batch)
    batched = {name for name, (_, dims) in types.items() if dims and dims[0] == batch}
    return Shapes(_samples(types, batched), types, frozenset(batched), batch, "")


def _samples(types: Mapping[str, tuple[str, _Dims | None]], batched: set[str]) -> dict[str, TensorInfo]:
    found = {name: (dtype, dims) for name, (dtype, dims) in types.items() if dims and name in batched}
    return {name: TensorInfo(name, dtype, dims[1:]) for name, (dtype, dims) in found.items() if None not in dims}


def _follow(first: _Dims | None, second: _Dims | None) -> bool:
    """True where axis 0 is the batch in both probes and no other axis changes with it."""
    return bool(first and second and (first[0], second[0]) == _PROBE_BATCHES and first[1:] == second[1:])


def _first_axis_free(value: ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim
    return len(dims) > 0 and not dims[0].HasField("dim_value")


def _without_weights(model: ModelProto, folder: Path | None) -> ModelProto:
    light = ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    source, target = model.graph, light.graph
    target.name = source.name
    target.node.extend(source.node)
    target.input.extend(source.input)
    for value in source.output:
        bare = target.output.add(name=value.name)
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type":
            bare.type.tensor_type.elem_type = value.type.tensor_type.elem_type
        elif kind is not None:
            bare.type.CopyFrom(value.type)
    target.sparse_initializer.extend(source.sparse_initializer)
    for tensor in source.initializer:
        if np.prod(tensor.dims) <= _SHAPE_ELEMENTS and not (is_external(tensor) and folder is None):
            target.initializer.append(tensor if folder is None else inlined(tensor, folder))
        else:
            target.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
            )
    return light


def _infer(light: ModelProto, batched: set[str], batch: int) -> dict[str, tuple[str, _Dims | None]]:
    """Dtype and shape of every tensor when the inputs in `batched` have that batch."""
    model = ModelProto()
    model.CopyFrom(light)
    for value in model.graph.input:
        if value.name in batched:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    values = known_values(model.graph)
    for _ in range(_MOST_ROUNDS):
        found = _infer_once(model)
        shapes = {name: dims for name, (_, dims) in found.items()}
        known = sum(dims is not None and None not in dims for dims in shapes.values())
        wanted = sum(len(node.output) for node in model.graph.node) + len(model.graph.input)
        if known >= wanted or not fold(model, shapes, values):
            break
    return found


def _infer_once(model: ModelProto) -> dict[str, tuple[str, _Dims | None]]:
    inferred = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    if len(inferred.graph.node) != len(model.graph.node):
        raise ModelInvalidError("shape inference lost the graph: its nodes alone exceed 2 GiB")
    found: dict[str, tuple[str, _Dims | None]] = {}
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        described = _describe(value.type)
        if described is not None:
            found[value.name] = described
    return found


def _describe(kind: TypeProto) -> tuple[str, _Dims | None] | None:
    """Numpy dtype and dims of a tensor type; None for sequences, optionals, strings and types numpy has not."""
    if kind.WhichOneof("value") != "tensor_type" or kind.tensor_type.elem_type in (0, TensorProto.STRING):
        return None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    if not dtype.isbuiltin or dtype.kind not in "biuf":
        return None
    if not kind.tensor_type.HasField("shape"):
        return str(dtype), None
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim)
    return str(dtype), dims
