"""Types of a partitioned model: where it may be cut, what crosses each cut, and the files of its stages. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor at a graph edge. `shape` is per sample (leading batch axis removed); None = unknown until run."""

    name: str
    dtype: str  # numpy name: "float32", "uint8", "float16", ...
    shape: tuple[int | None, ...]

    @property
    def bytes_per_sample(self) -> int | None:
        """Bytes of one sample, or None where the shape is not static."""
        import numpy as np

        size = np.dtype(self.dtype).itemsize
        for dim in self.shape:
            if dim is None:
                return None
            size *= dim
        return size


@dataclass(frozen=True, slots=True)
class Cut:
    """The tensors live between block `index - 1` and block `index` (1 <= index < n_blocks).

    `exact`: both parts run one after another gave the whole model's outputs bit for bit (onnxruntime CPU);
    `max_abs_error` is the largest difference seen (0.0 when exact).
    """

    index: int
    tensors: tuple[TensorInfo, ...]
    bytes_per_sample: int
    exact: bool
    max_abs_error: float


@dataclass(frozen=True, slots=True)
class Partition:
    """A served model cut into contiguous blocks. Blocks are numbered 0..n_blocks-1; a stage is a range [first, last).

    `cuts[i].index == i + 1`, so a model of n blocks has n - 1 cuts. `block_weights` are the relative costs the blocks
    were balanced by (sum 1.0).
    """

    model_digest: str
    n_blocks: int
    cuts: tuple[Cut, ...]
    block_weights: tuple[float, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def stage_inputs(self, first_block: int) -> tuple[TensorInfo, ...]:
        """Tensors that enter a stage beginning at `first_block`."""
        return self.inputs if first_block == 0 else self.cuts[first_block - 1].tensors

    def stage_outputs(self, last_block: int) -> tuple[TensorInfo, ...]:
        """Tensors that leave a stage ending before block `last_block` (exclusive)."""
        return self.outputs if last_block == self.n_blocks else self.cuts[last_block - 1].tensors


@dataclass(frozen=True, slots=True)
class StageFile:
    """An extracted stage on disk: blocks [first_block, last_block) of a model as an ONNX file of its own."""

    path: Path
    model_digest: str
    first_block: int
    last_block: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
