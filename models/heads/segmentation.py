"""Semantic segmentation: logits [N, C, h, w]; one row for each class that is present in the frame.

A row's box bounds the class's pixels, its score is their mean probability. Classes that cover less than
`params.least_share` (0.001) of the picture are left out, and so is class 0 where `params.background` is true (default).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framepool.models.detections import Detections
from framepool.models.heads.base import Array, Outputs, misfit, no_detections
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

DEFAULT_LEAST_SHARE = 0.001


class SegmentationHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        maps = [o for o in outputs if len(o.shape) == 3 and (o.shape[0] is None or o.shape[0] >= 2)]
        if not maps or len(maps) != len(outputs):
            raise misfit("one output [N, classes, h, w]", outputs)
        classes = maps[0].shape[0]
        if spec.labels and classes is not None and classes != len(spec.labels):
            raise misfit(f"one map for each of the {len(spec.labels)} labels", outputs)
        self._name = maps[0].name
        self._head = spec.head
        share = spec.head.params.get("least_share", DEFAULT_LEAST_SHARE)
        self._least_share = float(share) if isinstance(share, (int, float)) else DEFAULT_LEAST_SHARE
        self._first = 1 if spec.head.params.get("background", True) else 0
        self._size = (spec.input.height_px, spec.input.width_px)

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        values = outputs[self._name]
        return [self._decode_one(values[i], transform) for i, transform in enumerate(transforms)]

    def _decode_one(self, logits: Array, transform: Transform) -> Detections:
        scale_y, scale_x = self._size[0] / logits.shape[1], self._size[1] / logits.shape[2]
        top = int(transform.pad_top_px / scale_y)
        left = int(transform.pad_left_px / scale_x)
        bottom = max(top + 1, round((transform.pad_top_px + transform.resized_height_px) / scale_y))
        right = max(left + 1, round((transform.pad_left_px + transform.resized_width_px) / scale_x))
        part = np.asarray(logits[:, top:bottom, left:right], dtype=np.float32)
        winners = part.argmax(axis=0)
        peak = np.take_along_axis(part, winners[None], axis=0)[0]
        likely = 1.0 / np.exp(part - peak).sum(axis=0)
        boxes, scores, classes = [], [], []
        for class_id in np.unique(winners):
            if class_id < self._first:
                continue
            mask = winners == class_id
            if mask.mean() < self._least_share:
                continue
            score = float(likely[mask].mean())
            if score < self._head.score_threshold:
                continue
            rows, columns = mask.any(axis=1).nonzero()[0], mask.any(axis=0).nonzero()[0]
            x1, y1 = (left + columns[0]) * scale_x, (top + rows[0]) * scale_y
            x2, y2 = (left + columns[-1] + 1) * scale_x, (top + rows[-1] + 1) * scale_y
            boxes.append((x1, y1, x2, y2))
            scores.append(score)
            classes.append(int(class_id))
        if not boxes:
            return no_detections()
        order = np.argsort(-np.array(scores), kind="stable")[: self._head.max_detections]
        return Detections(
            transform.boxes_to_source(np.array(boxes, dtype=np.float32)[order]),
            np.array(scores, dtype=np.float32)[order],
            np.array(classes, dtype=np.int32)[order],
        )
