"""Raw YOLO outputs.

    yolov5   [N, K, 5 + C]   cx, cy, w, h, objectness, C class scores       (v5, v7: score = objectness x class)
    yolov8   [N, 4 + C, K]   cx, cy, w, h, C class scores                   (v8, v9, v11, v12)

Boxes are in network pixels, scores are probabilities already, as the usual exporters write them. A row stands for its
best class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framepool.models.detections import Detections
from framepool.models.heads.base import Array, Outputs, corners, finish, misfit, only_output
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import HeadSpec, ModelSpec


class YoloV5Head:
    """[N, K, 5 + C], see the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        output = only_output(outputs, 2, "one output [N, K, 5 + classes]")
        check_more_boxes_than_columns(output, outputs)
        _check_columns(output, 1, 5, spec, outputs)
        self._head = spec.head
        self._name = output.name

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        return [decode_v5_rows(outputs[self._name][i], self._head, t) for i, t in enumerate(transforms)]


class YoloV8Head:
    """[N, 4 + C, K], see the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        output = only_output(outputs, 2, "one output [N, 4 + classes, K]")
        rows, boxes = output.shape
        if rows is not None and boxes is not None and boxes < rows:
            raise misfit("one output [N, 4 + classes, K] with more boxes than rows", outputs)
        _check_columns(output, 0, 4, spec, outputs)
        self._head = spec.head
        self._name = output.name

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        return [self._decode_one(outputs[self._name][i], t) for i, t in enumerate(transforms)]

    def _decode_one(self, columns: Array, transform: Transform) -> Detections:
        best = columns[4:].max(axis=0)
        good = (best >= self._head.score_threshold).nonzero()[0]
        chosen = columns[:, good]
        boxes = corners(chosen[:4].T)
        return finish(boxes, best[good], chosen[4:].argmax(axis=0), self._head, transform)[0]


def decode_v5_rows(rows: Array, head: HeadSpec, transform: Transform) -> Detections:
    """Rows [K, 5 + C] of one frame: cx, cy, w, h, objectness, class scores."""
    rows = rows[rows[:, 4] >= head.score_threshold]
    classes: NDArray[np.intp] = rows[:, 5:].argmax(axis=1)
    scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
    good = (scores >= head.score_threshold).nonzero()[0]
    return finish(corners(rows[good, :4]), scores[good], classes[good], head, transform)[0]


def check_more_boxes_than_columns(output: TensorInfo, outputs: tuple[TensorInfo, ...]) -> None:
    """[N, K, 5 + C] with more columns than boxes is [N, 4 + C, K] in truth: another head's."""
    boxes, columns = output.shape
    if boxes is not None and columns is not None and columns > boxes:
        raise misfit("one output [N, K, 5 + classes] with more boxes than columns", outputs)


def _check_columns(output: TensorInfo, axis: int, fixed: int, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
    """The class scores must be as many as the labels, where both are known."""
    size = output.shape[axis]
    if size is None:
        return
    classes = size - fixed
    if classes < 1 or (spec.labels and classes != len(spec.labels)):
        labels = f"; the spec has {len(spec.labels)} labels" if spec.labels else ""
        raise misfit(f"{fixed} + classes values a box{labels}", outputs)
