"""How the tensors of a cut lie in one activation slot: one after another, each batch-first, 64-byte aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framepool.engine.runtime.backends.base import Array
from framepool.models.partition import TensorInfo

ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Offsets and shapes of the tensors of a batch of `rows` frames; same on both sides of a cut."""

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    total_bytes: int

    @classmethod
    def of(cls, tensors: Sequence[TensorInfo], rows: int) -> SlotLayout:
        """The layout of `rows` samples of `tensors`, ordered by name so that both sides agree."""
        ordered = sorted(tensors, key=lambda tensor: tensor.name)
        offsets: list[int] = []
        shapes: list[tuple[int, ...]] = []
        end = 0
        for tensor in ordered:
            per_sample = tensor.bytes_per_sample
            if per_sample is None:
                raise ValueError(f"tensor {tensor.name} has no static shape and can't cross a cut")
            offsets.append(end)
            shapes.append((rows, *(dim or 0 for dim in tensor.shape)))
            end += (per_sample * rows + ALIGN_BYTES - 1) // ALIGN_BYTES * ALIGN_BYTES
        return cls(tuple(t.name for t in ordered), tuple(t.dtype for t in ordered), tuple(shapes), tuple(offsets), end)

    def views(self, payload: Array) -> dict[str, Array]:
        """Arrays over `payload` (uint8, at least `total_bytes`), by tensor name, shape [rows, ...]."""
        result: dict[str, Array] = {}
        for name, dtype, shape, offset in zip(self.names, self.dtypes, self.shapes, self.offsets, strict=True):
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            result[name] = payload[offset : offset + size].view(dtype).reshape(shape)
        return result
