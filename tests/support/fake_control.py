"""An engine in memory: `Control` without devices, processes or media, and handles for tests to break it with."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from framepool.engine.control import (
    CutInfo,
    DetectionFilter,
    DetectionPage,
    DetectionRow,
    DeviceInfo,
    EngineStats,
    FrameDetections,
    LatencyBreakdown,
    ModelInfo,
    ModelUpload,
    Progress,
    Quantiles,
    StreamChanges,
    StreamConfig,
    StreamCounters,
    StreamInfo,
    StreamState,
    StreamStats,
    WatchItem,
)
from framepool.engine.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from framepool.engine.planning.inventory import Device, VirtualDevice
from framepool.engine.planning.plan import Demand, Pipeline, PlacedPlan, Plan, StagePlan, WorkerPlace
from framepool.engine.scheduling.events import DropReason
from framepool.models.errors import ModelNotFoundError

START_UNIX_NS = 1_700_000_000_123_456_789


def model_info(name: str = "nanodet", **changes: object) -> ModelInfo:
    info = ModelInfo(
        name=name,
        task="detect",
        head="detections",
        digest="ab" * 32,
        input_width_px=416,
        input_height_px=416,
        labels=("person", "bicycle"),
        n_blocks=7,
        max_batch=8,
        batch_safe=True,
        opset=17,
        origin="zoo",
        license="Apache-2.0",
        builtin=True,
        latency_ms={"cpu-openvino-bf16": 12.5, "cpu-ort-fp32": 40.25},
    )
    return replace(info, **changes)


def frame(cursor: int, stream: str = "gate", *labels: str) -> FrameDetections:
    rows = tuple(
        DetectionRow(label, index, 0.75, (1.0, 2.0, 30.5, 40.25)) for index, label in enumerate(labels or ("person",))
    )
    return FrameDetections(
        cursor=cursor,
        stream=stream,
        stream_id=1,
        seq=cursor - 1,
        capture_unix_ns=START_UNIX_NS + cursor * 100_000_000,
        media_time_ns=cursor * 100_000_000,
        latency_ns=41_000_001,
        in_time=True,
        width_px=768,
        height_px=576,
        model="nanodet",
        rows=rows,
    )


def placed_plan() -> PlacedPlan:
    stage = StagePlan(0, 0, 7, "cpu-ort-fp32", 1, 1, (40_000.0, 78_500.5), 519_168, 7200, 0.0, 1.5)
    pipeline = Pipeline("nanodet/0", "nanodet", 2, (stage,), 20.0, 25.4, 78_502.0, 250.0)
    plan = Plan((pipeline,), (Demand("nanodet", 250.0, 20.0),), 1.25, 1.3, 0.04, 0.02)
    return PlacedPlan(plan, (WorkerPlace("nanodet/0", 0, VirtualDevice(Device("cpu-0", "cpu-ort-fp32", 0), 1, 0)),))


class FakeSubscription:
    """A bounded queue of items; the oldest gives way and becomes a gap."""

    def __init__(self, hub: FakeControl, query: DetectionFilter, capacity: int) -> None:
        self._hub = hub
        self._query = query
        self._capacity = capacity
        self._lock = threading.Lock()
        self._items: deque[WatchItem] = deque()
        self._lost = 0
        self._wake: Callable[[], None] | None = None
        self._closed = False
        self.position = 0

    def offer(self, item: FrameDetections) -> None:
        if self._query.streams and item.stream not in self._query.streams:
            return
        with self._lock:
            if len(self._items) >= self._capacity:
                self._items.popleft()
                self._lost += 1
            self._items.append(WatchItem(item))
            wake = self._wake
        if wake is not None:
            wake()

    def take(self, limit: int) -> Sequence[WatchItem]:
        with self._lock:
            taken: list[WatchItem] = []
            if self._lost and limit:
                taken.append(WatchItem(None, self._lost))
                self._lost = 0
            while self._items and len(taken) < limit:
                item = self._items.popleft()
                taken.append(item)
                if item.frame is not None:
                    self.position = item.frame.cursor
            return taken

    def set_wake(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wake = wake

    def close(self) -> None:
        if self in self._hub.subscriptions:
            self._hub.closed_subscriptions += 1
        self._closed = True
        self._hub.subscriptions.discard(self)

    def end(self) -> None:
        """As when the engine stops."""
        self._closed = True
        if self._wake is not None:
            self._wake()

    @property
    def closed(self) -> bool:
        return self._closed


class FakeControl:
    """`raises[verb]` is raised by that verb; `holds[verb]` is waited for first (at most 20 s); `calls` counts."""

    def __init__(self) -> None:
        self.raises: dict[str, BaseException] = {}
        self.holds: dict[str, threading.Event] = {}
        self.calls: list[str] = []
        self.configs: list[StreamConfig] = []
        self.changes: list[StreamChanges] = []
        self.queries: list[DetectionFilter] = []
        self.uploads: list[ModelUpload] = []
        self.subscriptions: set[FakeSubscription] = set()
        self.closed_subscriptions = 0
        self.subscription_capacity = 100
        self.stored: list[FrameDetections] = []
        self.streams: dict[str, StreamInfo] = {}
        self.models: dict[str, ModelInfo] = {"nanodet": model_info()}
        self.first_state = StreamState.RUNNING
        self.first_error = ("", "")
        self.profile_steps = 3
        self.stats_window_s = 0.0

    def _enter(self, verb: str) -> None:
        self.calls.append(verb)
        hold = self.holds.get(verb)
        if hold is not None:
            hold.wait(20)
        if verb in self.raises:
            raise self.raises[verb]

    def publish(self, item: FrameDetections) -> None:
        self.stored.append(item)
        for subscription in tuple(self.subscriptions):
            subscription.offer(item)

    def register_stream(self, config: StreamConfig) -> StreamInfo:
        self._enter("register_stream")
        if config.name in self.streams:
            raise AlreadyExistsError(f"stream {config.name} is registered already", field="stream_id")
        self.configs.append(config)
        error, code = self.first_error
        info = StreamInfo(
            config=replace(config, username="", password=""),
            id=len(self.configs),
            state=self.first_state,
            create_time_unix_ns=START_UNIX_NS,
            counters=StreamCounters(10, 7, 6, {DropReason.STALE: 2}, 1, 3),
            last_error=error,
            last_error_code=code,
            width_px=768,
            height_px=576,
            measured_fps=10.0,
            codec="h264",
        )
        self.streams[config.name] = info
        return info

    def get_stream(self, name: str) -> StreamInfo:
        self._enter("get_stream")
        if name not in self.streams:
            raise NotFoundError(f"there is no stream {name}", field="name")
        return self.streams[name]

    def list_streams(self) -> tuple[StreamInfo, ...]:
        self._enter("list_streams")
        return tuple(self.streams.values())

    def update_stream(self, name: str, changes: StreamChanges) -> StreamInfo:
        self._enter("update_stream")
        self.changes.append(changes)
        info = self.get_stream(name)
        plain = ("source", "model", "slo_ms", "target_fps", "enabled", "min_score", "labels", "metadata", "loop")
        wanted = {field: getattr(changes, field) for field in plain if getattr(changes, field) is not None}
        self.streams[name] = replace(info, config=replace(info.config, **wanted))
        return self.streams[name]

    def delete_stream(self, name: str) -> None:
        self._enter("delete_stream")
        self.get_stream(name)
        del self.streams[name]

    def query_detections(self, query: DetectionFilter, page_size: int, page_token: str) -> DetectionPage:
        self._enter("query_detections")
        self.queries.append(query)
        if page_token and not page_token.isdigit():
            raise InvalidArgumentError("page_token is from elsewhere", field="page_token")
        after = int(page_token or 0)
        frames = [f for f in self.stored if f.cursor > after and (not query.streams or f.stream in query.streams)]
        shown = tuple(frames[:page_size])
        return DetectionPage(shown, str(shown[-1].cursor) if len(frames) > page_size else "")

    def watch_detections(self, query: DetectionFilter, resume_cursor: int | None) -> FakeSubscription:
        self._enter("watch_detections")
        subscription = FakeSubscription(self, query, self.subscription_capacity)
        if resume_cursor is not None:
            for item in self.stored:
                if item.cursor > resume_cursor:
                    subscription.offer(item)
        self.subscriptions.add(subscription)
        return subscription

    def add_model(self, upload: ModelUpload) -> ModelInfo:
        self._enter("add_model")
        self.uploads.append(upload)
        info = model_info(upload.name, labels=upload.labels, builtin=False, head=upload.head)
        self.models[upload.name] = info
        return info

    def get_model(self, name: str) -> ModelInfo:
        self._enter("get_model")
        if name not in self.models:
            raise ModelNotFoundError(f"there is no model {name}", field="name")
        return self.models[name]

    def list_models(self) -> tuple[ModelInfo, ...]:
        self._enter("list_models")
        return tuple(self.models.values())

    def model_cuts(self, name: str) -> tuple[CutInfo, ...]:
        self._enter("model_cuts")
        self.get_model(name)
        return (CutInfo(1, ("stem",), 1_384_448, True, 0.0), CutInfo(2, ("c3", "c4"), 2_422_784, False, 6e-5))

    def remove_model(self, name: str) -> None:
        self._enter("remove_model")
        self.get_model(name)
        del self.models[name]

    def devices(self) -> tuple[DeviceInfo, ...]:
        self._enter("devices")
        return (
            DeviceInfo("cpu-0", "cpu-ort-fp32", "onnxruntime", "AMD EPYC", "fp32", (0,), False, "up", ("s0",), 0.5),
            DeviceInfo("emu-0", "emulated-v100", "emulated", "emulated V100", "fp16", (), True, "up", (), 0.0),
        )

    def profile(self, model: str, force: bool) -> Iterator[Progress]:
        self._enter("profile")
        self.get_model(model)
        for step in range(self.profile_steps):
            yield Progress(step + 1, self.profile_steps, f"{model} batch {step + 1} force={force}")

    def plan(self) -> PlacedPlan:
        self._enter("plan")
        return placed_plan()

    def replan(self) -> PlacedPlan:
        self._enter("replan")
        return placed_plan()

    def stats(self, window_s: float = 0.0) -> EngineStats:
        self._enter("stats")
        self.stats_window_s = window_s
        counters = StreamCounters(10, 7, 6, {DropReason.STALE: 2}, 1, 3)
        latency = LatencyBreakdown(
            total=Quantiles(41.5, 50.0, 61.25, 70.0, 100), decode=Quantiles(3.0, 4.0, 5.0, 6.0, 9)
        )
        return EngineStats(
            version="0.1.0",
            uptime_s=12.5,
            policy="ppipe",
            streams=tuple(
                StreamStats(s.config.name, s.config.model, s.state, s.config.slo_ms, s.config.target_fps, counters,
                            0.995, 9.9, latency)
                for s in self.streams.values()
            ),
            totals=counters,
            worker_restarts=2,
            store_backlog=3,
            store_dropped=4,
            store_state="ok",
            watchers=len(self.subscriptions),
            latency=latency,
        )  # fmt: skip
