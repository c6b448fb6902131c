"""Stage files of registered models: cut when first needed, kept under the engine's state.

Keyed by the model's digest, the range of blocks and where these were cut: a model that is registered again may be cut
elsewhere, as block costs are measured.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

from framepool.models.partition import Partition, TensorInfo
from framepool.models.registry import ModelEntry
from framepool.models.stages import extract_stage

Edge = tuple[tuple[str, str, tuple[int | None, ...]], ...]


def edge(tensors: tuple[TensorInfo, ...]) -> Edge:
    """Tensors as they travel to children."""
    return tuple((tensor.name, tensor.dtype, tensor.shape) for tensor in tensors)


class StageFiles:
    """Files below `root`: ``<digest>/<first>-<last>-<cuts>.onnx``. Safe to call from several threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def path(self, entry: ModelEntry, partition: Partition, first_block: int, last_block: int) -> Path:
        """The file of blocks [first, last): the served model itself where that is all of them. Raises ModelError."""
        if (first_block, last_block) == (0, partition.n_blocks):
            return entry.path
        path = self._root / partition.model_digest[:32] / f"{first_block}-{last_block}-{_cuts(partition)}.onnx"
        with self._lock:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                extract_stage(entry.path, partition, first_block, last_block, path)
        return path

    def forget(self, digest: str) -> None:
        """Removes the stages of a model that was removed."""
        with self._lock:
            shutil.rmtree(self._root / digest[:32], ignore_errors=True)


def _cuts(partition: Partition) -> str:
    """Names the cuts of a partition."""
    tensors = [[tensor.name for tensor in cut.tensors] for cut in partition.cuts]
    return hashlib.sha256(repr(tensors).encode()).hexdigest()[:12]
