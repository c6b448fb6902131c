"""torchvision's detectors as exported: boxes [K, 4], labels [K], scores [K] of one picture, suppressed in the graph.

The outputs have no batch axis, so such a model takes one frame at a time. Boxes are in network pixels; `labels` counts
the background as 0 where `params.background` is true (the default), and is shifted down by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from framepool.models.detections import Detections
from framepool.models.heads.base import Outputs, finish, misfit, rows_of
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec


class SsdHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        boxes = [o for o in outputs if rows_of(o) == (4,)]
        flat = [o for o in outputs if rows_of(o) == ()]
        labels = [o for o in flat if "int" in o.dtype]
        scores = [o for o in flat if "int" not in o.dtype]
        if not (len(boxes) == len(labels) == len(scores) == 1):
            raise misfit("boxes [K, 4], labels [K] (integers) and scores [K] of one picture", outputs)
        self._names = boxes[0].name, scores[0].name, labels[0].name
        self._shift = 1 if spec.head.params.get("background", True) else 0
        self._head = replace(spec.head, nms_iou=None)

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        if len(transforms) != 1:
            raise ValueError(f"outputs without a batch axis hold one frame, not {len(transforms)}")
        boxes, scores, labels = (outputs[name] for name in self._names)
        good = ((scores >= self._head.score_threshold) & (labels >= self._shift)).nonzero()[0]
        found, _ = finish(boxes[good], scores[good], labels[good] - self._shift, self._head, transforms[0])
        return [found]
