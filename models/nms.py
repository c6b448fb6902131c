"""Class-wise non-maximum suppression in numpy: exact, stable and deterministic.

Theory of operation. Candidates are sorted once by score (ties by index) and taken in chunks. A chunk is first thinned
by the boxes kept so far (one matrix of overlaps), then within itself (a second one), so that the cost is a few
vectorised calls per chunk and memory stays bounded by ``_CHUNK * max(_CHUNK, kept)`` whatever the number of
candidates. Boxes of different classes never suppress each other. A box is suppressed when its IoU with a kept box of
its class is *greater* than the threshold. Degenerate boxes (no area) overlap nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CHUNK = 256  # candidates compared at once; 256 x 256 float32 overlaps fit into a core's L2 cache


def suppress(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    classes: NDArray[np.int32],
    iou_threshold: float,
    max_detections: int,
) -> NDArray[np.intp]:
    """Indices of the boxes kept, best score first, at most `max_detections`.

    `boxes` float32 [K, 4] x1 y1 x2 y2, `scores` float32 [K], `classes` int32 [K].
    """
    order = np.argsort(-scores, kind="stable")
    kept = np.empty(0, dtype=np.intp)
    for start in range(0, len(order), _CHUNK):
        room = max_detections - len(kept)
        if room <= 0:
            break
        chunk = order[start : start + _CHUNK]
        if len(kept):
            chunk = chunk[~_suppressing(boxes, classes, kept, chunk, iou_threshold).any(axis=0)]
        kept = np.concatenate((kept, chunk[_survivors(boxes, classes, chunk, iou_threshold, room)]))
    return kept


def _survivors(
    boxes: NDArray[np.float32], classes: NDArray[np.int32], chunk: NDArray[np.intp], iou_threshold: float, room: int
) -> list[int]:
    """Positions in `chunk` (best first) that no better one of the chunk suppresses, at most `room`."""
    suppressing = _suppressing(boxes, classes, chunk, chunk, iou_threshold)
    alive = np.ones(len(chunk), dtype=np.bool_)
    survivors: list[int] = []
    for position in range(len(chunk)):
        if alive[position]:
            survivors.append(position)
            if len(survivors) == room:
                break
            alive[suppressing[position]] = False
    return survivors


def _suppressing(
    boxes: NDArray[np.float32],
    classes: NDArray[np.int32],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    iou_threshold: float,
) -> NDArray[np.bool_]:
    """bool [len(first), len(second)]: would keeping the first box suppress the second?"""
    a, b = boxes[first], boxes[second]
    width = np.minimum(a[:, None, 2], b[None, :, 2]) - np.maximum(a[:, None, 0], b[None, :, 0])
    height = np.minimum(a[:, None, 3], b[None, :, 3]) - np.maximum(a[:, None, 1], b[None, :, 1])
    overlap = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    union = _areas(a)[:, None] + _areas(b)[None, :] - overlap
    result: NDArray[np.bool_] = overlap > np.float32(iou_threshold) * union
    result &= classes[first][:, None] == classes[second][None, :]
    return result


def _areas(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    areas: NDArray[np.float32] = sides[:, 0] * sides[:, 1]
    return areas
