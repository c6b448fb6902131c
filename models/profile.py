"""Measured latency of a model's blocks on one device class. Pure data; measuring and keeping is done elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BlockProfile:
    """Latency of each block of a model on a 1/`share` share of one device of a class.

    `latency_us` is float64 [n_blocks, len(batch_sizes)]: microseconds for a batch of that size, scaled so that the
    blocks sum to the measured whole model (design.md section 4). `batch_sizes` ascends, begins with 1 and has no
    gaps after interpolation (1, 2, ..., B), so column b - 1 is batch b. `source` says how it came about:
    "measured", "published" or "emulated".
    """

    model_digest: str
    device_class: str
    share: int
    batch_sizes: tuple[int, ...]
    latency_us: NDArray[np.float64]
    source: str = "measured"

    @property
    def n_blocks(self) -> int:
        return int(self.latency_us.shape[0])

    @property
    def max_batch(self) -> int:
        return self.batch_sizes[-1]

    def stage_us(self, first_block: int, last_block: int, batch: int) -> float:
        """Latency in microseconds of blocks [first_block, last_block) at `batch` (1 <= batch <= max_batch)."""
        return float(self.latency_us[first_block:last_block, batch - 1].sum())


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """All the planner knows of one model: bytes at each edge and a `BlockProfile` per (device class, share).

    `edge_bytes` has n_blocks + 1 entries, bytes per sample entering block i (entry 0: the frame) and, last, leaving
    the model. `block_bytes` are the bytes of each block's weights (empty: unknown, then memory bounds nothing).
    """

    model: str
    model_digest: str
    n_blocks: int
    edge_bytes: tuple[int, ...]
    blocks: tuple[BlockProfile, ...]
    block_bytes: tuple[int, ...] = ()

    def stage_bytes(self, first_block: int, last_block: int, batch: int) -> int:
        """Memory of blocks [first_block, last_block): their weights, and what enters and leaves at `batch`."""
        edges = self.edge_bytes[first_block] + self.edge_bytes[last_block]
        return sum(self.block_bytes[first_block:last_block]) + batch * edges

    def of(self, device_class: str, share: int = 1) -> BlockProfile | None:
        """The profile on a 1/`share` share of `device_class`, or None where it was not measured."""
        for block in self.blocks:
            if block.device_class == device_class and block.share == share:
                return block
        return None
