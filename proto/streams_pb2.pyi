import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ServiceClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVICE_CLASS_UNSPECIFIED: _ClassVar[ServiceClass]
    SERVICE_CLASS_LIVE: _ClassVar[ServiceClass]
    SERVICE_CLASS_OFFLINE: _ClassVar[ServiceClass]

class StreamState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_STATE_UNSPECIFIED: _ClassVar[StreamState]
    STREAM_STATE_CONNECTING: _ClassVar[StreamState]
    STREAM_STATE_RUNNING: _ClassVar[StreamState]
    STREAM_STATE_STALLED: _ClassVar[StreamState]
    STREAM_STATE_RECONNECTING: _ClassVar[StreamState]
    STREAM_STATE_FINISHED: _ClassVar[StreamState]
    STREAM_STATE_FINISHED_WITH_ERRORS: _ClassVar[StreamState]
    STREAM_STATE_FAILED: _ClassVar[StreamState]
    STREAM_STATE_DISABLED: _ClassVar[StreamState]

class DropReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DROP_REASON_UNSPECIFIED: _ClassVar[DropReason]
    DROP_REASON_STALE: _ClassVar[DropReason]
    DROP_REASON_INFEASIBLE: _ClassVar[DropReason]
    DROP_REASON_OVERLOAD: _ClassVar[DropReason]
    DROP_REASON_WORKER_LOST: _ClassVar[DropReason]
    DROP_REASON_STREAM_REMOVED: _ClassVar[DropReason]
    DROP_REASON_ERROR: _ClassVar[DropReason]
SERVICE_CLASS_UNSPECIFIED: ServiceClass
SERVICE_CLASS_LIVE: ServiceClass
SERVICE_CLASS_OFFLINE: ServiceClass
STREAM_STATE_UNSPECIFIED: StreamState
STREAM_STATE_CONNECTING: StreamState
STREAM_STATE_RUNNING: StreamState
STREAM_STATE_STALLED: StreamState
STREAM_STATE_RECONNECTING: StreamState
STREAM_STATE_FINISHED: StreamState
STREAM_STATE_FINISHED_WITH_ERRORS: StreamState
STREAM_STATE_FAILED: StreamState
STREAM_STATE_DISABLED: StreamState
DROP_REASON_UNSPECIFIED: DropReason
DROP_REASON_STALE: DropReason
DROP_REASON_INFEASIBLE: DropReason
DROP_REASON_OVERLOAD: DropReason
DROP_REASON_WORKER_LOST: DropReason
DROP_REASON_STREAM_REMOVED: DropReason
DROP_REASON_ERROR: DropReason

class DropCount(_message.Message):
    __slots__ = ("reason", "frames")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    reason: DropReason
    frames: int
    def __init__(self, reason: _Optional[_Union[DropReason, str]] = ..., frames: _Optional[int] = ...) -> None: ...

class StreamCounters(_message.Message):
    __slots__ = ("ingested", "completed", "in_time", "dropped", "decode_errors", "reconnects", "attainment")
    INGESTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    IN_TIME_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    DECODE_ERRORS_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    ATTAINMENT_FIELD_NUMBER: _ClassVar[int]
    ingested: int
    completed: int
    in_time: int
    dropped: _containers.RepeatedCompositeFieldContainer[DropCount]
    decode_errors: int
    reconnects: int
    attainment: float
    def __init__(self, ingested: _Optional[int] = ..., completed: _Optional[int] = ..., in_time: _Optional[int] = ..., dropped: _Optional[_Iterable[_Union[DropCount, _Mapping]]] = ..., decode_errors: _Optional[int] = ..., reconnects: _Optional[int] = ..., attainment: _Optional[float] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "source", "username", "password", "model", "slo_ms", "target_fps", "service_class", "loop", "disabled", "min_score", "labels", "metadata", "id", "state", "create_time", "counters", "last_error", "last_error_code", "width_px", "height_px", "measured_fps", "codec")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FPS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_PX_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_PX_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FPS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    username: str
    password: str
    model: str
    slo_ms: float
    target_fps: float
    service_class: ServiceClass
    loop: bool
    disabled: bool
    min_score: float
    labels: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.ScalarMap[str, str]
    id: int
    state: StreamState
    create_time: _timestamp_pb2.Timestamp
    counters: StreamCounters
    last_error: str
    last_error_code: str
    width_px: int
    height_px: int
    measured_fps: float
    codec: str
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., username: _Optional[str] = ..., password: _Optional[str] = ..., model: _Optional[str] = ..., slo_ms: _Optional[float] = ..., target_fps: _Optional[float] = ..., service_class: _Optional[_Union[ServiceClass, str]] = ..., loop: _Optional[bool] = ..., disabled: _Optional[bool] = ..., min_score: _Optional[float] = ..., labels: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., id: _Optional[int] = ..., state: _Optional[_Union[StreamState, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., counters: _Optional[_Union[StreamCounters, _Mapping]] = ..., last_error: _Optional[str] = ..., last_error_code: _Optional[str] = ..., width_px: _Optional[int] = ..., height_px: _Optional[int] = ..., measured_fps: _Optional[float] = ..., codec: _Optional[str] = ...) -> None: ...

class RegisterStreamRequest(_message.Message):
    __slots__ = ("stream_id", "stream")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    stream: Stream
    def __init__(self, stream_id: _Optional[str] = ..., stream: _Optional[_Union[Stream, _Mapping]] = ...) -> None: ...

class GetStreamRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "next_page_token")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    next_page_token: str
    def __init__(self, streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateStreamRequest(_message.Message):
    __slots__ = ("stream", "update_mask")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class DeleteStreamRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
