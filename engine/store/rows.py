"""Frames to rows and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import Row

from framepool.engine.control import DetectionRow, FrameDetections

FRAME_COLUMNS = (
    "cursor", "stream", "stream_id", "seq", "capture_unix_ns", "media_time_ns", "latency_ns", "in_time", "width_px",
    "height_px", "model",
)  # fmt: skip


def frame_row(frame: FrameDetections) -> dict[str, Any]:
    return {name: getattr(frame, name) for name in FRAME_COLUMNS}


def detection_rows(frame: FrameDetections) -> list[dict[str, Any]]:
    return [
        {
            "cursor": frame.cursor,
            "row": number,
            "label": row.label,
            "class_id": row.class_id,
            "score": row.score,
            "x1": row.box[0],
            "y1": row.box[1],
            "x2": row.box[2],
            "y2": row.box[3],
            "keypoints": _packed(row.keypoints),
            "embedding": _packed(row.embedding),
        }
        for number, row in enumerate(frame.rows)
    ]


def _packed(values: Sequence[Any]) -> bytes | None:
    return np.array(values, dtype="<f4").tobytes() if values else None


def frames_of(frame_rows: Iterable[Row[Any]], found: Iterable[Row[Any]]) -> tuple[FrameDetections, ...]:
    """Frames with their detections. Both ordered by cursor."""
    rows_of = {cursor: list(group) for cursor, group in groupby(found, key=lambda row: row.cursor)}
    return tuple(
        FrameDetections(
            **{name: getattr(row, name) for name in FRAME_COLUMNS},
            rows=tuple(_detection(item) for item in rows_of.get(row.cursor, ())),
        )
        for row in frame_rows
    )


def _detection(row: Row[Any]) -> DetectionRow:
    keypoints: tuple[tuple[float, float, float], ...] = ()
    if row.keypoints:
        keypoints = tuple((x, y, s) for x, y, s in np.frombuffer(row.keypoints, "<f4").reshape(-1, 3).tolist())
    embedding = tuple(np.frombuffer(row.embedding, "<f4").tolist()) if row.embedding else ()
    box = (row.x1, row.y1, row.x2, row.y2)
    return DetectionRow(row.label, row.class_id, row.score, box, keypoints, embedding)
