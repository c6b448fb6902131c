import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Box(_message.Message):
    __slots__ = ("x1", "y1", "x2", "y2")
    X1_FIELD_NUMBER: _ClassVar[int]
    Y1_FIELD_NUMBER: _ClassVar[int]
    X2_FIELD_NUMBER: _ClassVar[int]
    Y2_FIELD_NUMBER: _ClassVar[int]
    x1: float
    y1: float
    x2: float
    y2: float
    def __init__(self, x1: _Optional[float] = ..., y1: _Optional[float] = ..., x2: _Optional[float] = ..., y2: _Optional[float] = ...) -> None: ...

class Keypoint(_message.Message):
    __slots__ = ("x", "y", "score")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    score: float
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class Detection(_message.Message):
    __slots__ = ("label", "class_id", "score", "box", "keypoints", "embedding")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CLASS_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    KEYPOINTS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    label: str
    class_id: int
    score: float
    box: Box
    keypoints: _containers.RepeatedCompositeFieldContainer[Keypoint]
    embedding: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, label: _Optional[str] = ..., class_id: _Optional[int] = ..., score: _Optional[float] = ..., box: _Optional[_Union[Box, _Mapping]] = ..., keypoints: _Optional[_Iterable[_Union[Keypoint, _Mapping]]] = ..., embedding: _Optional[_Iterable[float]] = ...) -> None: ...

class FrameDetections(_message.Message):
    __slots__ = ("cursor", "stream", "stream_id", "sequence", "capture_time", "media_time", "latency", "in_time", "width_px", "height_px", "model", "detections")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_TIME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TIME_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    IN_TIME_FIELD_NUMBER: _ClassVar[int]
    WIDTH_PX_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_PX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DETECTIONS_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    stream: str
    stream_id: int
    sequence: int
    capture_time: _timestamp_pb2.Timestamp
    media_time: _duration_pb2.Duration
    latency: _duration_pb2.Duration
    in_time: bool
    width_px: int
    height_px: int
    model: str
    detections: _containers.RepeatedCompositeFieldContainer[Detection]
    def __init__(self, cursor: _Optional[int] = ..., stream: _Optional[str] = ..., stream_id: _Optional[int] = ..., sequence: _Optional[int] = ..., capture_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., media_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., in_time: _Optional[bool] = ..., width_px: _Optional[int] = ..., height_px: _Optional[int] = ..., model: _Optional[str] = ..., detections: _Optional[_Iterable[_Union[Detection, _Mapping]]] = ...) -> None: ...

class DetectionFilter(_message.Message):
    __slots__ = ("streams", "labels", "min_score", "start_time", "end_time")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.RepeatedScalarFieldContainer[str]
    min_score: float
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, streams: _Optional[_Iterable[str]] = ..., labels: _Optional[_Iterable[str]] = ..., min_score: _Optional[float] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class QueryDetectionsRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: DetectionFilter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[DetectionFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class QueryDetectionsResponse(_message.Message):
    __slots__ = ("frames", "next_page_token")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[FrameDetections]
    next_page_token: str
    def __init__(self, frames: _Optional[_Iterable[_Union[FrameDetections, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchDetectionsRequest(_message.Message):
    __slots__ = ("filter", "resume_cursor")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESUME_CURSOR_FIELD_NUMBER: _ClassVar[int]
    filter: DetectionFilter
    resume_cursor: int
    def __init__(self, filter: _Optional[_Union[DetectionFilter, _Mapping]] = ..., resume_cursor: _Optional[int] = ...) -> None: ...

class WatchDetectionsResponse(_message.Message):
    __slots__ = ("frame", "gap", "heartbeat")
    class Gap(_message.Message):
        __slots__ = ("lost_frames",)
        LOST_FRAMES_FIELD_NUMBER: _ClassVar[int]
        lost_frames: int
        def __init__(self, lost_frames: _Optional[int] = ...) -> None: ...
    class Heartbeat(_message.Message):
        __slots__ = ("cursor", "time")
        CURSOR_FIELD_NUMBER: _ClassVar[int]
        TIME_FIELD_NUMBER: _ClassVar[int]
        cursor: int
        time: _timestamp_pb2.Timestamp
        def __init__(self, cursor: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    FRAME_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    frame: FrameDetections
    gap: WatchDetectionsResponse.Gap
    heartbeat: WatchDetectionsResponse.Heartbeat
    def __init__(self, frame: _Optional[_Union[FrameDetections, _Mapping]] = ..., gap: _Optional[_Union[WatchDetectionsResponse.Gap, _Mapping]] = ..., heartbeat: _Optional[_Union[WatchDetectionsResponse.Heartbeat, _Mapping]] = ...) -> None: ...
