"""What a head is, and the steps that the detecting ones share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from framepool.models.detections import Detections
from framepool.models.errors import ModelSpecError
from framepool.models.letterbox import Transform
from framepool.models.nms import suppress
from framepool.models.partition import TensorInfo
from framepool.models.spec import HeadSpec, ModelSpec

Array = NDArray[Any]
Outputs = Mapping[str, Array]

MOST_CANDIDATES = 3000
"""Best-scored boxes that suppression looks at; more above the threshold is a threshold that means nothing."""


class Head(Protocol):
    """Decodes one model's outputs."""

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        """Detections of each frame. `outputs` are batch-first; `transforms` has one entry a frame."""
        ...


class HeadClass(Protocol):
    """Makes a head, or raises ModelSpecError where the outputs are none that it can decode."""

    def __call__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> Head: ...


def describe(tensor: TensorInfo) -> str:
    """A tensor as an error message shows it: name, batch axis as N, ? where unknown."""
    dims = ", ".join("N" if i < 0 else str("?" if dim is None else dim) for i, dim in enumerate(tensor.shape))
    return f"{tensor.name} [N, {dims}]" if dims else f"{tensor.name} [N]"


def only_output(outputs: tuple[TensorInfo, ...], rank: int, what: str) -> TensorInfo:
    """The one output of `rank` axes, the batch axis not counted. Raises ModelSpecError."""
    found = [output for output in outputs if len(output.shape) == rank]
    if len(found) != 1:
        raise misfit(what, outputs)
    return found[0]


def rows_of(tensor: TensorInfo) -> tuple[int | None, ...] | None:
    """The shape of one row of an output without a batch axis ([R, ...]); None where it can't be one.

    Where the first axis is not known to be the batch, a shape may be given with or without it.
    """
    if not tensor.shape or tensor.shape[0] is not None:
        return tensor.shape
    return tensor.shape[1:]


def misfit(what: str, outputs: tuple[TensorInfo, ...]) -> ModelSpecError:
    """The error of a head that needs `what` and is given `outputs`."""
    have = ", ".join(describe(output) for output in outputs)
    return ModelSpecError(f"head.kind needs {what}; the model has {have}", field="head.kind")


def finish(
    boxes: Array, scores: Array, classes: Array, head: HeadSpec, transform: Transform
) -> tuple[Detections, NDArray[np.intp]]:
    """Suppresses, cuts to the most detections and maps back. Also returns the indices kept, best first.

    `boxes` [K, 4] x1 y1 x2 y2 in network pixels, already above the threshold; `scores` [K], `classes` [K].
    """
    boxes = np.ascontiguousarray(boxes, dtype=np.float32)
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    classes = np.ascontiguousarray(classes, dtype=np.int32)
    kept = np.argsort(-scores, kind="stable")[:MOST_CANDIDATES]
    if head.nms_iou is not None and len(kept) > 1:
        kept = kept[suppress(boxes[kept], scores[kept], classes[kept], head.nms_iou, head.max_detections)]
    kept = kept[: head.max_detections]
    return Detections(transform.boxes_to_source(boxes[kept]), scores[kept], classes[kept]), kept


def no_detections() -> Detections:
    """A frame with nothing in it."""
    return Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))


def corners(centred: Array) -> NDArray[np.float32]:
    """Boxes [K, 4] cx cy w h -> float32 x1 y1 x2 y2."""
    centred = np.asarray(centred, dtype=np.float32)
    half = centred[:, 2:] * np.float32(0.5)
    return np.concatenate((centred[:, :2] - half, centred[:, :2] + half), axis=1)


def whole_picture(transform: Transform, rows: int) -> NDArray[np.float32]:
    """The source picture's own box, `rows` times."""
    box = (0.0, 0.0, float(transform.source_width_px), float(transform.source_height_px))
    return np.tile(np.array(box, dtype=np.float32), (rows, 1))


def sigmoid(values: Array) -> NDArray[np.float32]:
    values = np.asarray(values, dtype=np.float32)
    result: NDArray[np.float32] = np.where(
        values >= 0, 1 / (1 + np.exp(-np.abs(values))), np.exp(-np.abs(values)) / (1 + np.exp(-np.abs(values)))
    ).astype(np.float32)
    return result


def softmax(values: Array, axis: int = -1) -> NDArray[np.float32]:
    values = np.asarray(values, dtype=np.float32)
    raised = np.exp(values - values.max(axis=axis, keepdims=True))
    result: NDArray[np.float32] = raised / raised.sum(axis=axis, keepdims=True)
    return result
