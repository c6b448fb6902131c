"""Suppression against the plain definition: best first, a box falls to a better kept one of its class."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.models.nms import suppress


def naive(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, threshold: float, most: int) -> list[int]:
    """One box at a time, in float32 as the real thing."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(kept) == most:
            break
        for j in kept:
            if classes[i] != classes[j]:
                continue
            w = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            h = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            overlap = max(w, np.float32(0)) * max(h, np.float32(0))
            areas = [
                max(b[2] - b[0], np.float32(0)) * max(b[3] - b[1], np.float32(0)) for b in (boxes[j], boxes[i])
            ]  # fmt: skip
            if overlap > np.float32(threshold) * (areas[0] + areas[1] - overlap):
                break
        else:
            kept.append(i)
    return kept


def some_boxes(seed: int, count: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes that overlap a lot, scores with ties, some without area."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 40, (count, 2))
    size = rng.integers(0, 30, (count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = (rng.integers(0, 20, count) / 20).astype(np.float32)
    return boxes, scores, rng.integers(0, classes, count).astype(np.int32)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 90), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
       st.integers(1, 100))  # fmt: skip
def test_it_is_the_plain_definition(seed: int, count: int, classes: int, threshold: float, most: int) -> None:
    boxes, scores, ids = some_boxes(seed, count, classes)
    assert suppress(boxes, scores, ids, threshold, most).tolist() == naive(boxes, scores, ids, threshold, most)


def test_more_boxes_than_are_compared_at_once() -> None:
    boxes, scores, ids = some_boxes(7, 900, 2)
    boxes[:, ::2] *= 4
    assert suppress(boxes, scores, ids, 0.5, 300).tolist() == naive(boxes, scores, ids, 0.5, 300)


def test_equal_to_the_threshold_is_not_above_it() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 5]], dtype=np.float32)  # IoU 0.5
    scores, ids = np.array([0.9, 0.8], np.float32), np.zeros(2, np.int32)
    assert suppress(boxes, scores, ids, 0.5, 9).tolist() == [0, 1]
    assert suppress(boxes, scores, ids, 0.49, 9).tolist() == [0]


def test_classes_are_apart_and_ties_go_to_the_first() -> None:
    boxes = np.tile(np.array([[0, 0, 10, 10]], dtype=np.float32), (3, 1))
    scores = np.full(3, 0.5, np.float32)
    assert suppress(boxes, scores, np.array([0, 1, 0], np.int32), 0.5, 9).tolist() == [0, 1]


def test_boxes_without_area_suppress_nobody() -> None:
    boxes = np.array([[5, 5, 5, 5], [5, 5, 5, 5], [4, 4, 9, 9]], dtype=np.float32)
    assert len(suppress(boxes, np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, np.int32), 0.5, 9)) == 3


def test_nothing_in_nothing_out() -> None:
    empty = suppress(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32), 0.5, 9)
    assert empty.tolist() == []
