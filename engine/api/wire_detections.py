"""Detections on the wire: engine values to messages and back. No checks."""

from __future__ import annotations

from framepool.engine.api.wire_values import (
    bare,
    duration,
    duration_ns,
    model_resource,
    stream_resource,
    timestamp,
    timestamp_ns,
)
from framepool.engine.control import DetectionFilter, DetectionRow, FrameDetections
from framepool.proto import detections_pb2


def row_to_wire(row: DetectionRow) -> detections_pb2.Detection:
    x1, y1, x2, y2 = row.box
    return detections_pb2.Detection(
        label=row.label,
        class_id=row.class_id,
        score=row.score,
        box=detections_pb2.Box(x1=x1, y1=y1, x2=x2, y2=y2),
        keypoints=[detections_pb2.Keypoint(x=x, y=y, score=score) for x, y, score in row.keypoints],
        embedding=row.embedding,
    )


def row_from_wire(message: detections_pb2.Detection) -> DetectionRow:
    box = message.box
    return DetectionRow(
        label=message.label,
        class_id=message.class_id,
        score=message.score,
        box=(box.x1, box.y1, box.x2, box.y2),
        keypoints=tuple((point.x, point.y, point.score) for point in message.keypoints),
        embedding=tuple(message.embedding),
    )


def frame_to_wire(frame: FrameDetections) -> detections_pb2.FrameDetections:
    return detections_pb2.FrameDetections(
        cursor=frame.cursor,
        stream=stream_resource(frame.stream),
        stream_id=frame.stream_id,
        sequence=frame.seq,
        capture_time=timestamp(frame.capture_unix_ns),
        media_time=duration(frame.media_time_ns),
        latency=duration(frame.latency_ns),
        in_time=frame.in_time,
        width_px=frame.width_px,
        height_px=frame.height_px,
        model=model_resource(frame.model),
        detections=[row_to_wire(row) for row in frame.rows],
    )


def frame_from_wire(message: detections_pb2.FrameDetections) -> FrameDetections:
    return FrameDetections(
        cursor=message.cursor,
        stream=bare(message.stream),
        stream_id=message.stream_id,
        seq=message.sequence,
        capture_unix_ns=timestamp_ns(message.capture_time),
        media_time_ns=duration_ns(message.media_time),
        latency_ns=duration_ns(message.latency),
        in_time=message.in_time,
        width_px=message.width_px,
        height_px=message.height_px,
        model=bare(message.model),
        rows=tuple(row_from_wire(row) for row in message.detections),
    )


def filter_to_wire(query: DetectionFilter) -> detections_pb2.DetectionFilter:
    message = detections_pb2.DetectionFilter(
        streams=[stream_resource(stream) for stream in query.streams], labels=query.labels, min_score=query.min_score
    )
    if query.start_unix_ns is not None:
        message.start_time.CopyFrom(timestamp(query.start_unix_ns))
    if query.end_unix_ns is not None:
        message.end_time.CopyFrom(timestamp(query.end_unix_ns))
    return message
