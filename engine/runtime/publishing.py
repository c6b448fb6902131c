"""From a frame's raw result to the detections that are published: labels, the stream's own filter, source pixels."""

from __future__ import annotations

import numpy as np

from framepool.engine.control import DetectionRow, FrameDetections
from framepool.engine.runtime.feeds import LiveFrame, labelled
from framepool.engine.runtime.messages import FrameResult


def build_detections(
    frame: LiveFrame, result: FrameResult, cursor: int, published_ns: int, in_time: bool
) -> FrameDetections:
    """The frame's detections as stored and watched; rows the stream does not want are left out."""
    stream = frame.feed.stream
    return FrameDetections(
        cursor=cursor,
        stream=stream.config.name,
        stream_id=stream.id,
        seq=frame.seq,
        capture_unix_ns=frame.capture_unix_ns,
        media_time_ns=frame.media_time_ns,
        latency_ns=published_ns - frame.capture_ns,
        in_time=in_time,
        width_px=frame.width_px,
        height_px=frame.height_px,
        model=stream.config.model,
        rows=tuple(_rows(frame, result)),
    )


def _rows(frame: LiveFrame, result: FrameResult) -> list[DetectionRow]:
    stream = frame.feed.stream
    scores: list[float] = np.frombuffer(result.scores, dtype="<f4").tolist()
    if not scores:
        return []
    classes: list[int] = np.frombuffer(result.classes, dtype="<i4").tolist()
    boxes: list[list[float]] = np.frombuffer(result.boxes, dtype="<f4").reshape(-1, 4).tolist()
    keypoints: list[list[list[float]]] = []
    if result.keypoints_per_row:
        shape = (-1, result.keypoints_per_row, 3)
        keypoints = np.frombuffer(result.keypoints, dtype="<f4").reshape(shape).tolist()
    embedding = tuple(np.frombuffer(result.embedding, dtype="<f4").tolist())
    labels = stream.spec.labels
    rows = []
    for i, (score, class_id, (x1, y1, x2, y2)) in enumerate(zip(scores, classes, boxes, strict=True)):
        label = labelled(labels, class_id)
        if stream.wants(label, score):
            points = tuple((x, y, s) for x, y, s in keypoints[i]) if keypoints else ()
            rows.append(DetectionRow(label, class_id, score, (x1, y1, x2, y2), points, embedding))
    return rows
