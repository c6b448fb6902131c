"""Models that suppress inside their graph. Three ways exporters write the result; which one is seen from the outputs:

    counted    num_dets [N, 1], boxes [N, K, 4], scores [N, K], classes [N, K]         (EfficientNMS and kin)
    rows       [R, 7]: batch index, x1, y1, x2, y2, class, score                        (YOLOv7 end2end)
    selected   indices [R, 3]: batch, class, box + boxes [N, K, 4] + scores [N, C, K]   (ONNX NonMaxSuppression)

R differs from batch to batch, so rows are given to their frames by batch index, never by position; a negative index or
a score below the threshold is padding. Selected boxes are y1 x1 y2 x2 when `params.box_order` is "yxyx" (ONNX's own
default), corners as "xyxy", or "cxcywh".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from framepool.models.detections import Detections
from framepool.models.errors import ModelSpecError
from framepool.models.heads.base import Array, Outputs, corners, finish, misfit, rows_of
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

BOX_ORDERS: dict[str, Callable[[Array], Array]] = {
    "xyxy": lambda boxes: boxes,
    "yxyx": lambda boxes: boxes[:, [1, 0, 3, 2]],
    "cxcywh": corners,
}

Found = tuple[Array, Array, Array]
"""Boxes [K, 4], scores [K], classes [K] of one frame, in network pixels."""


class NmsHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        self._head = replace(spec.head, nms_iou=None)
        order = spec.head.params.get("box_order", "yxyx" if len(outputs) == 3 else "xyxy")
        if order not in BOX_ORDERS:
            raise ModelSpecError(
                f"head.params.box_order {order!r} is unknown; use one of {', '.join(BOX_ORDERS)}",
                field="head.params.box_order",
            )
        self._order = BOX_ORDERS[str(order)]
        self._pick: Callable[[Outputs, int], list[Found]]
        if len(outputs) == 4:
            self._pick = self._counted(outputs)
        elif len(outputs) == 1:
            self._pick = self._rows(outputs)
        elif len(outputs) == 3:
            self._pick = self._selected(outputs)
        else:
            raise _misfit(outputs)

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        found = self._pick(outputs, len(transforms))
        decoded = []
        for (boxes, scores, classes), transform in zip(found, transforms, strict=True):
            good = (scores >= self._head.score_threshold).nonzero()[0]
            boxes = self._order(boxes[good])
            decoded.append(finish(boxes, scores[good], classes[good], self._head, transform)[0])
        return decoded

    def _counted(self, outputs: tuple[TensorInfo, ...]) -> Callable[[Outputs, int], list[Found]]:
        boxes = [o for o in outputs if len(o.shape) == 2 and o.shape[1] == 4]
        counts = [o for o in outputs if o.shape in ((1,), ()) and "int" in o.dtype]
        flat = [o for o in outputs if len(o.shape) == 1 and o not in counts]
        classes = [o for o in flat if "int" in o.dtype or "class" in o.name or "label" in o.name]
        scores = [o for o in flat if o not in classes]
        if not (len(boxes) == len(counts) == len(classes) == len(scores) == 1):
            raise _misfit(outputs)
        names = boxes[0].name, scores[0].name, classes[0].name, counts[0].name

        def pick(values: Outputs, frames: int) -> list[Found]:
            b, s, c, n = (values[name] for name in names)
            sizes = [int(count) for count in np.asarray(n).reshape(-1)[:frames]]
            return [(b[i, :size], s[i, :size], c[i, :size]) for i, size in enumerate(sizes)]

        return pick

    def _rows(self, outputs: tuple[TensorInfo, ...]) -> Callable[[Outputs, int], list[Found]]:
        if rows_of(outputs[0]) != (7,):
            raise _misfit(outputs)
        name = outputs[0].name

        def pick(values: Outputs, frames: int) -> list[Found]:
            rows = values[name]
            owners = rows[:, 0].astype(np.int64)
            mine = [rows[owners == frame] for frame in range(frames)]
            return [(r[:, 1:5], r[:, 6], r[:, 5]) for r in mine]

        return pick

    def _selected(self, outputs: tuple[TensorInfo, ...]) -> Callable[[Outputs, int], list[Found]]:
        indices = [o for o in outputs if rows_of(o) == (3,) and "int" in o.dtype]
        boxes = [o for o in outputs if len(o.shape) == 2 and o.shape[1] == 4 and o not in indices]
        scores = [o for o in outputs if len(o.shape) == 2 and o not in boxes]
        if not (len(indices) == len(boxes) == len(scores) == 1):
            raise _misfit(outputs)
        names = indices[0].name, boxes[0].name, scores[0].name

        def pick(values: Outputs, frames: int) -> list[Found]:
            chosen, b, s = (values[name] for name in names)
            found = []
            for frame in range(frames):
                mine = chosen[chosen[:, 0] == frame]
                classes, rows = mine[:, 1], mine[:, 2]
                found.append((b[frame, rows], s[frame, classes, rows], classes))
            return found

        return pick


def _misfit(outputs: tuple[TensorInfo, ...]) -> ModelSpecError:
    return misfit(
        "num_dets + boxes + scores + classes, or one output [R, 7] of batch, x1, y1, x2, y2, class, score, or selected "
        "indices [R, 3] + boxes + scores",
        outputs,
    )
