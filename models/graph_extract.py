"""Sub-graphs as ONNX files of their own: the nodes between two sets of tensors, with just the weights they need.

Kept: operator-set imports, functions that could not be inlined, IR version, metadata, the symbolic batch axis. Weights
are taken over only where a kept node reads them (a weight that two stages share ends up in both). They stay outside the
file where the source keeps them outside, or where the file would come near protobuf's 2 GiB limit; then they are copied
a chunk at a time, so memory does not grow with the model. The same input gives the same bytes. A file appears under its
name only when it is complete.

Edge names. A tensor that enters and leaves a stage unchanged (a skip connection over a whole block) would be input and
output of one graph under one name; runtimes don't agree on what that means, and some leave the output unwritten. So it
leaves under an alias, ``name@cut``, through an `Identity`; `tensor_of` finds the tensor an edge name stands for.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from framepool.models.errors import ModelError, ModelInvalidError
from framepool.models.graph import Graph, initializer_names, nodes_for
from framepool.models.graph_weights import external_tensors, inlined, is_external, locate, raw_bytes, tensor_bytes
from framepool.models.partition import TensorInfo

EMBED_LIMIT_BYTES = 1_500_000_000
"""Weights beyond this go beside the file: protobuf ends at 2 GiB, and the graph needs room as well."""

_INLINE_BYTES = 1024
"""Smaller tensors stay in the file always: shape inference must see the targets of Reshape and their like."""

_ALIGN_BYTES = 4096
"""Offsets of weights beside the file: a page, so that runtimes can map them into memory."""

_ALIAS = "@"


def edge_tensors(
    graph: Graph, tensors: Iterable[TensorInfo], cut_index: int, crossed: Collection[str]
) -> tuple[TensorInfo, ...]:
    """`tensors` as they cross cut `cut_index`.

    They go under an alias where they might enter and leave one stage: those in `crossed` (the tensors of earlier cuts)
    and the model's own inputs and outputs.
    """
    known = graph.tensors
    edges = []
    for info in tensors:
        name = info.name
        while name in known and (info.name in crossed or info.name in (*graph.inputs, *graph.outputs)):
            name += f"{_ALIAS}{cut_index}"
        edges.append(TensorInfo(name, info.dtype, info.shape))
    return tuple(edges)


def tensor_of(graph: Graph, edge: str) -> str:
    """The tensor of the graph that an edge name stands for. Raises ModelError for a name that is none."""
    tensors = graph.tensors
    name = edge
    while name not in tensors:
        name, separator, _ = name.rpartition(_ALIAS)
        if not separator:
            raise ModelError(
                f"the model has no tensor {edge!r}; the partition is that of another file, partition this one"
            )
    return name


def write_subgraph(
    graph: Graph,
    folder: Path,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    out_path: Path,
    *,
    metadata: Mapping[str, str] | None = None,
    embed_limit_bytes: int = EMBED_LIMIT_BYTES,
) -> None:
    """Writes what `graph` computes from `inputs` up to `outputs`; `folder` is where its file lies.

    Raises ModelError where the outputs need more than the inputs, or nothing is computed between them.
    """
    model, weights = _subgraph(graph, inputs, outputs)
    for key, value in sorted((metadata or {}).items()):
        _set_metadata(model, key, value)
    embedded_bytes = sum(tensor_bytes(tensor) for tensor in weights)
    outside = any(is_external(tensor) for tensor in weights) or embedded_bytes > embed_limit_bytes
    out_path.parent.mkdir(parents=True, exist_ok=True)
    data_path = out_path.with_name(out_path.name + ".data")
    for tensor in external_tensors(model.graph):  # of attributes and bodies; there they are small
        tensor.CopyFrom(inlined(tensor, folder))
    if not outside:
        model.graph.initializer.extend(weights)
        _write_atomically(out_path, model)
        data_path.unlink(missing_ok=True)
        return
    descriptor, partial = tempfile.mkstemp(prefix=f".{data_path.name}.", dir=out_path.parent)
    try:
        with os.fdopen(descriptor, "wb") as data:
            for tensor in weights:
                model.graph.initializer.append(_moved_out(tensor, folder, data, data_path.name))
        Path(partial).replace(data_path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    _write_atomically(out_path, model)


def _subgraph(
    graph: Graph, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> tuple[ModelProto, list[TensorProto]]:
    """The model without its weights, and those weights."""
    entering = {info.name: tensor_of(graph, info.name) for info in inputs}
    leaving = {info.name: info.name if info.name in graph.outputs else tensor_of(graph, info.name) for info in outputs}
    kept = sorted(nodes_for(leaving.values(), graph.reads, graph.producer, stop=frozenset(entering.values())))
    initializers = initializer_names(graph.model.graph)
    given = {*entering.values(), *initializers, *(name for index in kept for name in graph.node(index).output)}
    needed = [name for index in kept for name in graph.reads[index]] + list(leaving.values())
    missing = sorted({name for name in needed if name not in given})
    if missing:
        raise ModelError(
            f"outputs {', '.join(leaving)} also need {', '.join(missing)}, which do not cross the cut; "
            "the partition belongs to another file, partition the model again"
        )
    if not any(index in set(graph.live_nodes) for index in kept):
        raise ModelError(f"nothing is computed between {', '.join(entering)} and {', '.join(leaving)}: an empty stage")

    source = graph.model
    model = ModelProto(ir_version=source.ir_version, producer_name="framepool", domain=source.domain)
    model.model_version = source.model_version
    model.opset_import.extend(source.opset_import)
    model.functions.extend(source.functions)
    model.metadata_props.extend(source.metadata_props)
    target = model.graph
    target.name = source.graph.name
    target.input.extend(_edge_value(graph, info, source.graph.input) for info in inputs)
    target.output.extend(_edge_value(graph, info, source.graph.output) for info in outputs)
    for name, tensor in entering.items():
        if name != tensor:
            target.node.append(helper.make_node("Identity", [name], [tensor], name=f"enter {name}"))
    target.node.extend(graph.node(index) for index in kept)
    for name, tensor in leaving.items():
        if name != tensor:
            target.node.append(helper.make_node("Identity", [tensor], [name], name=f"leave {name}"))
    inner = {name for node in target.node for name in node.output} - set(leaving)
    target.value_info.extend(value for value in source.graph.value_info if value.name in inner)
    used = set(needed) - set(entering.values())
    target.sparse_initializer.extend(s for s in source.graph.sparse_initializer if s.values.name in used)
    target.quantization_annotation.extend(
        note for note in source.graph.quantization_annotation if note.tensor_name in inner | used
    )
    return model, [tensor for tensor in source.graph.initializer if tensor.name in used]


def _edge_value(graph: Graph, info: TensorInfo, own: Collection[ValueInfoProto]) -> ValueInfoProto:
    """Type of a stage's input or output: the file's own where it is one of the model's, else batch axis + sample."""
    for value in own:
        if value.name == info.name:
            return value
    element = helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype))
    return helper.make_tensor_value_info(info.name, element, [_batch_axis(graph), *info.shape])


def _batch_axis(graph: Graph) -> str | int:
    """Axis 0 of the model's inputs: its symbol where one of them leaves it free, else the fixed batch."""
    values = [value for value in graph.model.graph.input if value.name in graph.inputs]
    axes = [value.type.tensor_type.shape.dim[0] for value in values if value.type.tensor_type.shape.dim]
    for axis in axes:
        if not axis.HasField("dim_value"):
            return str(axis.dim_param or "N")
    return int(axes[0].dim_value) if axes else 1


def _moved_out(tensor: TensorProto, folder: Path, data: BinaryIO, location: str) -> TensorProto:
    """`tensor` with its bytes appended to `data`, or with its bytes inside where it is small."""
    size_bytes = tensor_bytes(tensor)
    if size_bytes < _INLINE_BYTES:
        return inlined(tensor, folder)
    offset_bytes = -(-data.tell() // _ALIGN_BYTES) * _ALIGN_BYTES
    data.write(b"\0" * (offset_bytes - data.tell()))
    for chunk in locate(tensor, folder).chunks() if is_external(tensor) else (raw_bytes(tensor),):
        data.write(chunk)
    if data.tell() - offset_bytes != size_bytes:
        raise ModelInvalidError(
            f"weights of tensor {tensor.name!r} have {data.tell() - offset_bytes} bytes, its shape says {size_bytes}"
        )
    moved = TensorProto(
        name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", str(offset_bytes)), ("length", str(size_bytes))):
        moved.external_data.add(key=key, value=value)
    return moved


def _set_metadata(model: ModelProto, key: str, value: str) -> None:
    for entry in model.metadata_props:
        if entry.key == key:
            entry.value = value
            return
    model.metadata_props.add(key=key, value=value)


def _write_atomically(path: Path, model: ModelProto) -> None:
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(model.SerializeToString(deterministic=True))
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
