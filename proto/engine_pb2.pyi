import datetime

from framepool.proto import streams_pb2 as _streams_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Device(_message.Message):
    __slots__ = ("id", "device_class", "backend", "hardware", "precision", "cores", "emulated", "state", "workers", "utilization")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    EMULATED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    device_class: str
    backend: str
    hardware: str
    precision: str
    cores: _containers.RepeatedScalarFieldContainer[int]
    emulated: bool
    state: str
    workers: _containers.RepeatedScalarFieldContainer[str]
    utilization: float
    def __init__(self, id: _Optional[str] = ..., device_class: _Optional[str] = ..., backend: _Optional[str] = ..., hardware: _Optional[str] = ..., precision: _Optional[str] = ..., cores: _Optional[_Iterable[int]] = ..., emulated: _Optional[bool] = ..., state: _Optional[str] = ..., workers: _Optional[_Iterable[str]] = ..., utilization: _Optional[float] = ...) -> None: ...

class VirtualDevice(_message.Message):
    __slots__ = ("device_id", "device_class", "device_index", "share", "slot")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    device_class: str
    device_index: int
    share: int
    slot: int
    def __init__(self, device_id: _Optional[str] = ..., device_class: _Optional[str] = ..., device_index: _Optional[int] = ..., share: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("model", "slo_ms", "rate_fps")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_FPS_FIELD_NUMBER: _ClassVar[int]
    model: str
    slo_ms: float
    rate_fps: float
    def __init__(self, model: _Optional[str] = ..., slo_ms: _Optional[float] = ..., rate_fps: _Optional[float] = ...) -> None: ...

class StagePlan(_message.Message):
    __slots__ = ("index", "first_block", "last_block", "device_class", "share", "devices", "latency_us", "in_bytes", "out_bytes", "in_us", "out_us")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    LAST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LATENCY_US_FIELD_NUMBER: _ClassVar[int]
    IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_US_FIELD_NUMBER: _ClassVar[int]
    OUT_US_FIELD_NUMBER: _ClassVar[int]
    index: int
    first_block: int
    last_block: int
    device_class: str
    share: int
    devices: int
    latency_us: _containers.RepeatedScalarFieldContainer[float]
    in_bytes: int
    out_bytes: int
    in_us: float
    out_us: float
    def __init__(self, index: _Optional[int] = ..., first_block: _Optional[int] = ..., last_block: _Optional[int] = ..., device_class: _Optional[str] = ..., share: _Optional[int] = ..., devices: _Optional[int] = ..., latency_us: _Optional[_Iterable[float]] = ..., in_bytes: _Optional[int] = ..., out_bytes: _Optional[int] = ..., in_us: _Optional[float] = ..., out_us: _Optional[float] = ...) -> None: ...

class Pipeline(_message.Message):
    __slots__ = ("id", "model", "batch", "stages", "rate_fps", "capacity_fps", "latency_us", "slo_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    RATE_FPS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FPS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_US_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    batch: int
    stages: _containers.RepeatedCompositeFieldContainer[StagePlan]
    rate_fps: float
    capacity_fps: float
    latency_us: float
    slo_ms: float
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., batch: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StagePlan, _Mapping]]] = ..., rate_fps: _Optional[float] = ..., capacity_fps: _Optional[float] = ..., latency_us: _Optional[float] = ..., slo_ms: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("pipelines", "demands", "objective", "bound", "gap", "solve_s")
    PIPELINES_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    SOLVE_S_FIELD_NUMBER: _ClassVar[int]
    pipelines: _containers.RepeatedCompositeFieldContainer[Pipeline]
    demands: _containers.RepeatedCompositeFieldContainer[Demand]
    objective: float
    bound: float
    gap: float
    solve_s: float
    def __init__(self, pipelines: _Optional[_Iterable[_Union[Pipeline, _Mapping]]] = ..., demands: _Optional[_Iterable[_Union[Demand, _Mapping]]] = ..., objective: _Optional[float] = ..., bound: _Optional[float] = ..., gap: _Optional[float] = ..., solve_s: _Optional[float] = ...) -> None: ...

class WorkerPlace(_message.Message):
    __slots__ = ("pipeline_id", "stage_index", "device")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_INDEX_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    stage_index: int
    device: VirtualDevice
    def __init__(self, pipeline_id: _Optional[str] = ..., stage_index: _Optional[int] = ..., device: _Optional[_Union[VirtualDevice, _Mapping]] = ...) -> None: ...

class PlacedPlan(_message.Message):
    __slots__ = ("plan", "workers")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    workers: _containers.RepeatedCompositeFieldContainer[WorkerPlace]
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[WorkerPlace, _Mapping]]] = ...) -> None: ...

class Quantiles(_message.Message):
    __slots__ = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "count")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P90_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    count: int
    def __init__(self, p50_ms: _Optional[float] = ..., p90_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., max_ms: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class LatencyBreakdown(_message.Message):
    __slots__ = ("total", "decode", "queueing", "transfer", "inference", "publish", "overhead")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    QUEUEING_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    total: Quantiles
    decode: Quantiles
    queueing: Quantiles
    transfer: Quantiles
    inference: Quantiles
    publish: Quantiles
    overhead: Quantiles
    def __init__(self, total: _Optional[_Union[Quantiles, _Mapping]] = ..., decode: _Optional[_Union[Quantiles, _Mapping]] = ..., queueing: _Optional[_Union[Quantiles, _Mapping]] = ..., transfer: _Optional[_Union[Quantiles, _Mapping]] = ..., inference: _Optional[_Union[Quantiles, _Mapping]] = ..., publish: _Optional[_Union[Quantiles, _Mapping]] = ..., overhead: _Optional[_Union[Quantiles, _Mapping]] = ...) -> None: ...

class StreamStats(_message.Message):
    __slots__ = ("stream", "model", "state", "slo_ms", "target_fps", "counters", "recent_attainment", "goodput_fps", "latency")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FPS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    RECENT_ATTAINMENT_FIELD_NUMBER: _ClassVar[int]
    GOODPUT_FPS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    stream: str
    model: str
    state: _streams_pb2.StreamState
    slo_ms: float
    target_fps: float
    counters: _streams_pb2.StreamCounters
    recent_attainment: float
    goodput_fps: float
    latency: LatencyBreakdown
    def __init__(self, stream: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[_Union[_streams_pb2.StreamState, str]] = ..., slo_ms: _Optional[float] = ..., target_fps: _Optional[float] = ..., counters: _Optional[_Union[_streams_pb2.StreamCounters, _Mapping]] = ..., recent_attainment: _Optional[float] = ..., goodput_fps: _Optional[float] = ..., latency: _Optional[_Union[LatencyBreakdown, _Mapping]] = ...) -> None: ...

class EngineStats(_message.Message):
    __slots__ = ("version", "uptime", "policy", "streams", "totals", "worker_restarts", "store_backlog", "store_dropped", "store_state", "watchers", "latency")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    WORKER_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STORE_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    STORE_DROPPED_FIELD_NUMBER: _ClassVar[int]
    STORE_STATE_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime: _duration_pb2.Duration
    policy: str
    streams: _containers.RepeatedCompositeFieldContainer[StreamStats]
    totals: _streams_pb2.StreamCounters
    worker_restarts: int
    store_backlog: int
    store_dropped: int
    store_state: str
    watchers: int
    latency: LatencyBreakdown
    def __init__(self, version: _Optional[str] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., policy: _Optional[str] = ..., streams: _Optional[_Iterable[_Union[StreamStats, _Mapping]]] = ..., totals: _Optional[_Union[_streams_pb2.StreamCounters, _Mapping]] = ..., worker_restarts: _Optional[int] = ..., store_backlog: _Optional[int] = ..., store_dropped: _Optional[int] = ..., store_state: _Optional[str] = ..., watchers: _Optional[int] = ..., latency: _Optional[_Union[LatencyBreakdown, _Mapping]] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ...) -> None: ...

class GetPlanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("latency_window",)
    LATENCY_WINDOW_FIELD_NUMBER: _ClassVar[int]
    latency_window: _duration_pb2.Duration
    def __init__(self, latency_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("model", "force")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    model: str
    force: bool
    def __init__(self, model: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class ProfileResponse(_message.Message):
    __slots__ = ("done", "total", "what")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    done: int
    total: int
    what: str
    def __init__(self, done: _Optional[int] = ..., total: _Optional[int] = ..., what: _Optional[str] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Version(_message.Message):
    __slots__ = ("version", "api_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    api_version: str
    def __init__(self, version: _Optional[str] = ..., api_version: _Optional[str] = ...) -> None: ...
