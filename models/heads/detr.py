"""DETR and RT-DETR: logits [N, Q, C] or [N, Q, C + 1] and boxes [N, Q, 4] = cx, cy, w, h as shares of the input.

With one logit more than labels the last class is "nothing" and scores are a softmax (DETR); else each class has its
own sigmoid (RT-DETR, Deformable DETR). `params.activation` ("softmax", "sigmoid", "none") overrides that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from framepool.models.detections import Detections
from framepool.models.errors import ModelSpecError
from framepool.models.heads.base import Array, Outputs, corners, finish, misfit, sigmoid, softmax
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec


class DetrHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        pairs = [o for o in outputs if len(o.shape) == 2]
        boxes = [o for o in pairs if o.shape[1] == 4]
        if len(boxes) == 2:
            boxes = [o for o in boxes if "box" in o.name]
        logits = [o for o in pairs if o not in boxes]
        if len(outputs) != 2 or len(boxes) != 1 or len(logits) != 1:
            raise misfit("two outputs: logits [N, Q, classes] and boxes [N, Q, 4]", outputs)
        self._boxes, self._logits = boxes[0].name, logits[0].name
        columns = logits[0].shape[1]
        has_nothing = bool(spec.labels) and columns == len(spec.labels) + 1
        activation = str(spec.head.params.get("activation", "softmax" if has_nothing else "sigmoid"))
        if activation not in ("softmax", "sigmoid", "none"):
            raise ModelSpecError(
                f"head.params.activation {activation!r} is unknown; use softmax, sigmoid or none",
                field="head.params.activation",
            )
        self._activation = activation
        self._drops_last = has_nothing or (activation == "softmax" and not spec.labels)
        self._size = np.array([spec.input.width_px, spec.input.height_px] * 2, dtype=np.float32)
        self._head = replace(spec.head, nms_iou=None)

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        return [
            self._decode_one(outputs[self._logits][i], outputs[self._boxes][i], transform)
            for i, transform in enumerate(transforms)
        ]

    def _decode_one(self, logits: Array, boxes: Array, transform: Transform) -> Detections:
        match self._activation:
            case "softmax":
                scores = softmax(logits)
            case "sigmoid":
                scores = sigmoid(logits)
            case _:
                scores = logits
        if self._drops_last:
            scores = scores[:, :-1]
        best = scores.max(axis=1)
        good = (best >= self._head.score_threshold).nonzero()[0]
        found, _ = finish(
            corners(boxes[good] * self._size), best[good], scores[good].argmax(axis=1), self._head, transform
        )
        return found
