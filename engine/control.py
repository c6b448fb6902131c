"""The engine as its outer shells see it: the verbs and value types that API, client and CLI are thin layers over.

`Control` is implemented by `framepool.engine.core.Engine`. Every method may be called from any thread, blocks no
longer than its own bounded wait and raises the leaves of `engine.errors`, `models.errors` and `streams.errors`.
Wall-clock times are Unix nanoseconds UTC (`_unix_ns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from framepool.engine.planning.plan import PlacedPlan
from framepool.engine.scheduling.events import DropReason, ServiceClass


class StreamState(StrEnum):
    CONNECTING = "connecting"
    RUNNING = "running"
    STALLED = "stalled"  # connected, but no frame for longer than its watchdog allows
    RECONNECTING = "reconnecting"
    FINISHED = "finished"  # a file was read to its end
    FINISHED_WITH_ERRORS = "finished-with-errors"  # ended early or with damaged packets; see last_error
    FAILED = "failed"  # will not be retried (bad media, authentication)
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """A registration. `source` holds no password; `username`/`password` are write-only and kept apart.

    `loop` repeats a file for ever; `realtime` paces a file by its PTS (False: as fast as the engine takes it,
    offline class only). `target_fps` 0 is refused; frames above it are skipped before conversion.
    """

    name: str
    source: str
    model: str
    slo_ms: float
    target_fps: float
    username: str = ""
    password: str = field(default="", repr=False)
    service_class: ServiceClass = ServiceClass.LIVE
    loop: bool = False
    enabled: bool = True
    min_score: float = 0.0
    labels: tuple[str, ...] = ()  # publish only these classes (empty: all)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """ingested = completed + dropped (+ in flight). `in_time` <= completed; attainment = in_time / ended frames."""

    ingested: int = 0
    completed: int = 0
    in_time: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    decode_errors: int = 0
    reconnects: int = 0

    @property
    def dropped_total(self) -> int:
        return sum(self.dropped.values())

    @property
    def in_flight(self) -> int:
        return self.ingested - self.completed - self.dropped_total

    @property
    def attainment(self) -> float:
        """Share of ended frames published within the SLO; 1.0 while none has ended."""
        ended = self.completed + self.dropped_total
        return self.in_time / ended if ended else 1.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Milliseconds over the recent window of frames; 0.0 where there is none yet."""

    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class LatencyBreakdown:
    """Where a stream's latency goes. overhead = total - inference: what is ours."""

    total: Quantiles = Quantiles()
    decode: Quantiles = Quantiles()  # capture to frame in its slot (decode, convert, resize)
    queueing: Quantiles = Quantiles()  # waiting for dispatch and in workers' queues
    transfer: Quantiles = Quantiles()  # messages and copies between processes
    inference: Quantiles = Quantiles()  # model stages, heads included
    publish: Quantiles = Quantiles()  # head done to published
    overhead: Quantiles = Quantiles()


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A registered stream as it stands. `config.password` is always "" here and `config.source` redacted."""

    config: StreamConfig
    id: int
    state: StreamState
    create_time_unix_ns: int
    counters: StreamCounters
    last_error: str = ""
    last_error_code: str = ""
    width_px: int = 0
    height_px: int = 0
    measured_fps: float = 0.0
    codec: str = ""


@dataclass(frozen=True, slots=True)
class StreamChanges:
    """Fields to change (None: leave)."""

    source: str | None = None
    model: str | None = None
    slo_ms: float | None = None
    target_fps: float | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    enabled: bool | None = None
    min_score: float | None = None
    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, str] | None = None
    loop: bool | None = None


class DetectionRow(msgspec.Struct, frozen=True):
    """One published detection. Box x1 y1 x2 y2 in source pixels; `keypoints` J x (x, y, score)."""

    label: str
    class_id: int
    score: float
    box: tuple[float, float, float, float]
    keypoints: tuple[tuple[float, float, float], ...] = ()
    embedding: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FrameDetections:
    """The detections of one frame, as published, stored and watched.

    `cursor` grows with each published frame of the engine's store (resume token); `seq` numbers a stream's frames
    from 0; `capture_unix_ns` is when the frame was captured, `media_time_ns` its PTS from the media's start.
    """

    cursor: int
    stream: str
    stream_id: int
    seq: int
    capture_unix_ns: int
    media_time_ns: int
    latency_ns: int
    in_time: bool
    width_px: int
    height_px: int
    model: str
    rows: tuple[DetectionRow, ...]


@dataclass(frozen=True, slots=True)
class DetectionFilter:
    """What to select. Empty `streams`/`labels` select all. Times bound capture time: [start, end)."""

    streams: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    min_score: float = 0.0
    start_unix_ns: int | None = None
    end_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DetectionPage:
    """Frames in ascending cursor order, only matching rows, only frames that have one. "" token: last page."""

    frames: tuple[FrameDetections, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class WatchItem:
    """Either a frame's detections or a gap: `lost` frames were skipped because the watcher was slow or the
    resume point is older than what is kept."""

    frame: FrameDetections | None
    lost: int = 0


class Subscription(Protocol):
    """A watcher's end. `wake` is called (from any thread) when items are ready; `take` never blocks."""

    def take(self, limit: int) -> Sequence[WatchItem]: ...

    def set_wake(self, wake: Callable[[], None]) -> None: ...

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


@runtime_checkable
class Positioned(Protocol):
    """A subscription that can say how far it is, so that a watcher of a quiet stream can resume without a loss."""

    @property
    def position(self) -> int:
        """Cursor up to which every frame was taken or did not match; 0 where it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A registered model. `latency_ms` maps a device class to the profiled batch-1 latency (empty: not profiled)."""

    name: str
    task: str
    head: str
    digest: str
    input_width_px: int
    input_height_px: int
    labels: tuple[str, ...]
    n_blocks: int
    max_batch: int
    batch_safe: bool
    opset: int
    origin: str
    license: str
    builtin: bool
    latency_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutInfo:
    """One registered cut. `block` numbers the block after it."""

    block: int
    tensors: tuple[str, ...]
    bytes_per_frame: int
    exact: bool
    max_abs_error: float


@dataclass(frozen=True, slots=True)
class ModelUpload:
    """A model to add: a local path (engine's own machine) or bytes (external data by file name beside it).

    `spec_toml` overrides what the file says; `labels`, `head`, `input_*` override both. `replace` False refuses a
    taken name.
    """

    name: str
    path: Path | None = None
    content: bytes | None = field(default=None, repr=False)
    external_data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    spec_toml: str = ""
    head: str = ""
    labels: tuple[str, ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device as the engine uses it. `workers` names the stages that run on it now."""

    id: str
    device_class: str
    backend: str
    hardware: str
    precision: str
    cores: tuple[int, ...]
    emulated: bool
    state: str
    workers: tuple[str, ...]
    utilization: float  # busy share of the last 10 s, 0..1


@dataclass(frozen=True, slots=True)
class StreamStats:
    name: str
    model: str
    state: StreamState
    slo_ms: float
    target_fps: float
    counters: StreamCounters
    recent_attainment: float  # over the last 10 s
    goodput_fps: float  # over the last 10 s
    latency: LatencyBreakdown


@dataclass(frozen=True, slots=True)
class EngineStats:
    """`totals` sums all streams ever registered since start, removed ones included; `latency` is over the frames of
    all present streams together."""

    version: str
    uptime_s: float
    policy: str
    streams: tuple[StreamStats, ...]
    totals: StreamCounters
    worker_restarts: int
    store_backlog: int
    store_dropped: int
    store_state: str  # "ok" | "degraded"
    watchers: int
    latency: LatencyBreakdown = LatencyBreakdown()


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a long call: `done` of `total`, what is being worked on."""

    done: int
    total: int
    what: str


class Control(Protocol):
    """The verbs. See the module docstring for threads, waits and errors."""

    def register_stream(self, config: StreamConfig) -> StreamInfo: ...

    def get_stream(self, name: str) -> StreamInfo: ...

    def list_streams(self) -> tuple[StreamInfo, ...]: ...

    def update_stream(self, name: str, changes: StreamChanges) -> StreamInfo: ...

    def delete_stream(self, name: str) -> None: ...

    def query_detections(self, query: DetectionFilter, page_size: int, page_token: str) -> DetectionPage: ...

    def watch_detections(self, query: DetectionFilter, resume_cursor: int | None) -> Subscription:
        """Frames from now on, or, with a cursor, everything stored after it and then live, without a gap."""
        ...

    def add_model(self, upload: ModelUpload) -> ModelInfo: ...

    def get_model(self, name: str) -> ModelInfo: ...

    def list_models(self) -> tuple[ModelInfo, ...]: ...

    def model_cuts(self, name: str) -> tuple[CutInfo, ...]: ...

    def remove_model(self, name: str) -> None: ...

    def devices(self) -> tuple[DeviceInfo, ...]: ...

    def profile(self, model: str, force: bool) -> Iterator[Progress]:
        """Measures `model` on every device class that has no kept profile (all, when `force`)."""
        ...

    def plan(self) -> PlacedPlan: ...

    def replan(self) -> PlacedPlan: ...

    def stats(self, window_s: float = 0.0) -> EngineStats:
        """How the engine fares; latencies over frames published within `window_s` (0: each stream's last 1000)."""
        ...
