"""Ready-made rows: `detections` [N, K, 6] = x1, y1, x2, y2 in network pixels, score, class; zero rows are padding.

A second output [N, K, J, 3] (x, y in network pixels, score) gives each row its keypoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from framepool.models.detections import Detections
from framepool.models.heads.base import Outputs, finish, misfit
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

COLUMNS = 6


class DetectionsHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        rows = [o for o in outputs if len(o.shape) == 2 and o.shape[1] == COLUMNS]
        points = [o for o in outputs if len(o.shape) == 3 and o.shape[2] == 3]
        if len(rows) != 1 or len(outputs) - len(rows) > len(points) or len(points) > 1:
            raise misfit("one output [N, K, 6] of x1, y1, x2, y2, score, class", outputs)
        self._head = spec.head
        self._rows = rows[0].name
        self._points = points[0].name if points else None

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        return [self._decode_one(outputs, i, transform) for i, transform in enumerate(transforms)]

    def _decode_one(self, outputs: Outputs, frame: int, transform: Transform) -> Detections:
        rows = outputs[self._rows][frame]
        good = (rows[:, 4] >= self._head.score_threshold).nonzero()[0]
        rows = rows[good]
        found, kept = finish(rows[:, :4], rows[:, 4], rows[:, 5], self._head, transform)
        if self._points is None:
            return found
        return replace(found, keypoints=transform.points_to_source(outputs[self._points][frame][good[kept]]))
