"""Where a model's weights lie and how their bytes are read: inside the file or in files beside it.

Weights in files beside the model are read through their recorded offset and length, never as a whole file. A location
that leaves the model's folder is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from framepool.models.errors import ModelInvalidError
from framepool.models.graph import bodies

_CHUNK_BYTES = 16 * 1024 * 1024
SMALL_BYTES = 1024
"""What exporters leave in the file by their own default."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Where one tensor's bytes lie."""

    path: Path
    offset_bytes: int
    length_bytes: int

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a few MiB at a time."""
        with self.path.open("rb") as file:
            file.seek(self.offset_bytes)
            left = self.length_bytes
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise ModelInvalidError(
                        f"weights file {self.path} ends {left} bytes early; copy it again beside the model"
                    )
                left -= len(chunk)
                yield chunk


def is_external(tensor: TensorProto) -> bool:
    """True where the tensor's bytes lie outside the model file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of a tensor's values once loaded; 0 for strings, whose size is not fixed."""
    if tensor.data_type == TensorProto.STRING:
        return 0
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4):
        return (math.prod(tensor.dims) + 1) // 2
    return math.prod(tensor.dims) * int(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize)


def locate(tensor: TensorProto, folder: Path) -> ExternalData:
    """Where the bytes of an external `tensor` of a model in `folder` lie. Raises ModelInvalidError."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder.resolve()):
        raise ModelInvalidError(
            f"weights of tensor {tensor.name!r} are said to lie at {location!r}, outside the model's folder; "
            "keep them beside the model"
        )
    if not path.is_file():
        raise ModelInvalidError(
            f"weights of tensor {tensor.name!r} are missing: {path} does not exist; copy it beside the model"
        )
    offset = int(entries.get("offset", 0))
    return ExternalData(path, offset, int(entries.get("length", path.stat().st_size - offset)))


def raw_bytes(tensor: TensorProto) -> bytes:
    """The little-endian bytes of a tensor that lies in the model file."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return bytes(numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data)


def bring_in_small(graph: GraphProto, folder: Path) -> None:
    """Puts small external tensors into the file: shapes and axes, which runtimes must read to know a graph's shapes."""
    for tensor in external_tensors(graph):
        if tensor_bytes(tensor) <= SMALL_BYTES:
            tensor.CopyFrom(inlined(tensor, folder))


def inlined(tensor: TensorProto, folder: Path) -> TensorProto:
    """`tensor` with its bytes inside."""
    if not is_external(tensor):
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("external_data")
    copy.data_location = TensorProto.DEFAULT
    copy.raw_data = b"".join(locate(tensor, folder).chunks())
    return copy


def external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """All tensors of a graph whose bytes lie outside the file, those of attributes and bodies included."""
    yield from (tensor for tensor in graph.initializer if is_external(tensor))
    for node in graph.node:
        for attribute in node.attribute:
            yield from (t for t in (attribute.t, *attribute.tensors) if is_external(t))
        for body in bodies(node):
            yield from external_tensors(body)
