"""Embeddings: one output [N, D] (or [N, D, 1, 1]), scaled to length 1; one row a frame, its box the whole picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framepool.models.detections import Detections
from framepool.models.heads.base import Outputs, misfit, whole_picture
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

LEAST_NORM = 1e-12


class EmbeddingHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        if len(outputs) != 1 or not outputs[0].shape or any(dim != 1 for dim in outputs[0].shape[1:]):
            raise misfit("one output [N, D]", outputs)
        self._name = outputs[0].name

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        values = np.asarray(outputs[self._name], dtype=np.float32).reshape(len(transforms), -1)
        norms = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), LEAST_NORM)
        unit = (values / norms).astype(np.float32)
        return [
            Detections(
                whole_picture(transform, 1),
                np.ones(1, dtype=np.float32),
                np.zeros(1, dtype=np.int32),
                embedding=unit[i],
            )
            for i, transform in enumerate(transforms)
        ]
