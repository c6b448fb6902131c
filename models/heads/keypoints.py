"""Keypoints of one body a frame: [N, J, 3] = y, x as shares of the input, score (MoveNet).

The box is the hull of the points at or above the score threshold; a frame with fewer than `params.least_points` (3) of
them holds nobody. The detection's score is the mean of all points' scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framepool.models.detections import Detections
from framepool.models.heads.base import Array, Outputs, misfit, no_detections
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

DEFAULT_LEAST_POINTS = 3


class KeypointsHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        found = [o for o in outputs if len(o.shape) >= 2 and o.shape[-1] == 3 and all(d == 1 for d in o.shape[:-2])]
        if len(outputs) != 1 or len(found) != 1:
            raise misfit("one output [N, J, 3] of y, x, score", outputs)
        self._name = found[0].name
        self._head = spec.head
        least = spec.head.params.get("least_points", DEFAULT_LEAST_POINTS)
        self._least = int(least) if isinstance(least, (int, float)) else DEFAULT_LEAST_POINTS
        self._size = np.array([spec.input.width_px, spec.input.height_px], dtype=np.float32)

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        values = outputs[self._name]
        return [self._decode_one(values[i], transform) for i, transform in enumerate(transforms)]

    def _decode_one(self, values: Array, transform: Transform) -> Detections:
        rows = np.asarray(values, dtype=np.float32).reshape(-1, 3)
        sure = rows[:, 2] >= self._head.score_threshold
        if int(sure.sum()) < self._least:
            return no_detections()
        points = np.concatenate((rows[:, 1::-1] * self._size, rows[:, 2:]), axis=1)
        placed = transform.points_to_source(points)
        hull = np.concatenate((points[sure, :2].min(axis=0), points[sure, :2].max(axis=0)))[None, :]
        return Detections(
            transform.boxes_to_source(hull),
            rows[:, 2].mean(keepdims=True).astype(np.float32),
            np.zeros(1, dtype=np.int32),
            keypoints=placed[None, :, :],
        )
