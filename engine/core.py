"""The engine: puts the parts together and implements `Control` over them.

Order of start: state lock, what a dead engine left is swept, store, hardware, data plane, fleet, first decoder, streams
of the last run. Order of stop: no new frames, frames under way finish (bounded), children, data plane, store, names.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from framepool import __version__
from framepool.engine.config import EngineConfig
from framepool.engine.control import (
    CutInfo,
    DetectionFilter,
    DetectionPage,
    DeviceInfo,
    EngineStats,
    ModelInfo,
    ModelUpload,
    Progress,
    StreamChanges,
    StreamConfig,
    StreamInfo,
    StreamState,
    Subscription,
)
from framepool.engine.decoders import Decoders
from framepool.engine.deployment import WORKER_MODULE, Deployment
from framepool.engine.errors import DeadlineError, EngineStoppedError, FailedPreconditionError
from framepool.engine.hardware import build_hardware
from framepool.engine.planning.plan import PlacedPlan
from framepool.engine.profiling import Profiles
from framepool.engine.publisher import Publisher
from framepool.engine.replanning import Replanner
from framepool.engine.reports import cut_infos, device_infos, model_info, overall, snapshots
from framepool.engine.run_dir import RunDir
from framepool.engine.runtime.data_plane import DataPlane, PlaneHooks
from framepool.engine.runtime.event_log import EventLog
from framepool.engine.runtime.fleet import ChildSpec, Fleet, FleetHooks
from framepool.engine.runtime.messages import ChildReady
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.stage_files import StageFiles
from framepool.engine.store.store import DetectionStore, StoreOptions
from framepool.engine.stream_control import SEQUENCE_PERIOD_S, StreamControl
from framepool.engine.watching import WatchHub
from framepool.models.registry import ModelRegistry

log = structlog.get_logger("framepool.engine")

CONTROL_TIMEOUT_S = 100.0
"""Longest wait for another change to end: that may be measuring a model."""
CHILD_STOP_S = 8.0
DAY_S = 86_400.0


class Engine:
    """Implements `framepool.engine.control.Control`. `start` and `stop` once each."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._control = threading.Lock()
        self._started_s = time.monotonic()
        self._running = False
        self._chores: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._run_dir = RunDir(config.engine.state_dir)
        try:
            self._build()
        except BaseException:
            self._run_dir.release()
            raise

    def _build(self) -> None:
        config, state_dir = self._config, self._config.engine.state_dir
        self._hardware = build_hardware(config.devices)
        self._registry = ModelRegistry(state_dir / "models")
        stages = StageFiles(state_dir / "stages")
        self._stages = stages
        self._profiles = Profiles(state_dir / "profiles", stages, self._hardware, config.profiles)
        options = SchedulerOptions(
            publish_reserve_ns=round(config.scheduler.publish_reserve_ms * 1e6),
            commit_ahead_ns=round(config.scheduler.commit_ahead_ms * 1e6),
        )
        scheduler = make_scheduler(config.scheduler.policy, options)
        self._store = DetectionStore.open(
            config.store.url.get_secret_value(),
            state_dir,
            StoreOptions(max_age_s=config.store.max_age_days * DAY_S, max_bytes=config.store.max_bytes),
        )
        self._hub = WatchHub(config.api.max_watchers, newest=self._store.last_cursor)
        publisher = Publisher(self._store, self._hub)
        log_path = config.scheduler.event_log
        self._fleet = Fleet(FleetHooks(self._child_up, self._child_lost, self._stop_child))
        self._plane = DataPlane(
            self._run_dir.engine_endpoint,
            scheduler,
            PlaneHooks(
                publish=publisher.publish,
                next_cursor=publisher.next_cursor,
                child_ready=self._fleet.ready,
                child_refused=self._fleet.refused,
                child_hung=self._fleet.kill,
                stream_state=self._stream_state,
            ),
            EventLog(log_path, config.scheduler.policy, options) if log_path is not None else None,
        )
        self._deployment = Deployment(
            self._registry, self._hardware, stages, self._fleet, self._plane, config.workers, self._run_dir.path,
            self._run_dir.name_arena,
        )  # fmt: skip
        self._replanner = Replanner(self._registry, self._profiles, self._hardware, self._deployment, config.planner)
        self._decoders = Decoders(self._fleet, self._run_dir.engine_endpoint, config.decoders)
        self._streams = StreamControl(
            config, self._store.registrations, self._replanner, self._plane, self._decoders, self._run_dir.name_arena
        )
        self._chore_thread = threading.Thread(target=self._do_chores, name="framepool-chores", daemon=True)

    # Life

    def start(self) -> None:
        """Starts serving and resumes the streams of the last run. Raises what a part raises, with all undone."""
        if self._run_dir.swept_arenas:
            log.warning("removed what an earlier engine left behind", arenas=self._run_dir.swept_arenas)
        self._running = True
        self._plane.start()
        self._fleet.start()
        self._chore_thread.start()
        try:
            with self._changing():
                self._decoders.start()
                self._streams.resume()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Lets frames under way finish within `engine.drain_s`, then ends everything. Idempotent."""
        with self._control:
            if not self._running:
                return
            self._running = False
        self._chores.put(None)
        self._chore_thread.join(10)
        self._plane.call(self._plane.stop_decoding)
        until_s = time.monotonic() + self._config.engine.drain_s
        while time.monotonic() < until_s and self._plane.call(lambda: self._plane.open_frames):
            time.sleep(0.02)
        self._plane.call(self._plane.end_open_frames)
        self._streams.keep_sequence_numbers(final=True)
        self._fleet.stop(CHILD_STOP_S)
        self._plane.stop()
        self._hub.close()
        self._store.close()
        self._run_dir.release()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """The control lock: one change at a time."""
        if not self._control.acquire(timeout=CONTROL_TIMEOUT_S):
            raise DeadlineError(f"another change is still being made after {CONTROL_TIMEOUT_S:g} s; try again")
        try:
            self._check_running()
            yield
        finally:
            self._control.release()

    def _check_running(self) -> None:
        if not self._running:
            raise EngineStoppedError("the engine is stopping; ask again when it is back")

    # What the fleet and the data plane tell (their threads)

    def _child_up(self, spec: ChildSpec, report: ChildReady) -> None:
        if spec.module == WORKER_MODULE:
            self._deployment.worker_ready(spec, report)
        else:
            self._plane.post(lambda: self._plane.decoder_up(spec.id, report.child_id))

    def _child_lost(self, spec: ChildSpec, child_id: str) -> None:
        if spec.module == WORKER_MODULE:
            self._plane.post(lambda: self._plane.worker_lost(spec.id, child_id))
        else:
            self._plane.post(lambda: self._plane.decoder_lost(spec.id, child_id))

    def _stop_child(self, child_id: str) -> None:
        self._plane.post(lambda: self._plane.tell_stop(child_id))

    def _stream_state(self, stream_id: int, state: StreamState) -> None:
        if self._streams.state_changed(stream_id, state):
            self._chores.put(self._replan_quietly)

    def _replan_quietly(self) -> None:
        with self._changing():
            self._replanner.apply(self._streams.wishes())

    def _do_chores(self) -> None:
        """Work nobody waits for, one thing at a time."""
        while True:
            try:
                chore = self._chores.get(timeout=SEQUENCE_PERIOD_S)
            except queue.Empty:
                chore = self._streams.keep_sequence_numbers
            if chore is None:
                return
            try:
                chore()
            except Exception:
                log.exception("a chore failed")

    # Streams

    def register_stream(self, config: StreamConfig) -> StreamInfo:
        self._check_running()
        self._streams.check_source(config)
        self._measure_if_needed(config.model)
        with self._changing():
            return self._streams.register(config)

    def get_stream(self, name: str) -> StreamInfo:
        return self._streams.info(name)

    def list_streams(self) -> tuple[StreamInfo, ...]:
        return self._streams.infos()

    def update_stream(self, name: str, changes: StreamChanges) -> StreamInfo:
        self._check_running()
        with self._changing():
            return self._streams.update(name, changes)

    def delete_stream(self, name: str) -> None:
        with self._changing():
            self._streams.delete(name)

    def _measure_if_needed(self, model: str) -> None:
        for _ in self._replanner.ensure_profile(model):
            pass

    # Detections

    def query_detections(self, query: DetectionFilter, page_size: int, page_token: str) -> DetectionPage:
        self._check_running()
        return self._store.query(query, page_size, page_token)

    def watch_detections(self, query: DetectionFilter, resume_cursor: int | None) -> Subscription:
        self._check_running()
        return self._hub.subscribe(query, resume_cursor, self._store)

    # Models

    def add_model(self, upload: ModelUpload) -> ModelInfo:
        self._check_running()
        if upload.replace and (users := self._streams.uses_model(upload.name)):
            raise _in_use(upload.name, users)
        entry = self._registry.add(
            upload.name,
            upload.path if upload.path is not None else upload.content or b"",
            external_data=upload.external_data,
            spec_toml=upload.spec_toml,
            head=upload.head,
            labels=upload.labels,
            replace=upload.replace,
        )
        return model_info(entry, self._registry.partition(entry.name), {})

    def get_model(self, name: str) -> ModelInfo:
        entry = self._registry.get(name)
        partition = self._registry.partition(name)
        return model_info(entry, partition, self._profiles.whole_model_ms(entry, partition))

    def list_models(self) -> tuple[ModelInfo, ...]:
        infos = []
        for entry in self._registry.list():
            partition = self._registry.known_partition(entry.name)
            latency_ms = {} if partition is None else self._profiles.whole_model_ms(entry, partition)
            infos.append(model_info(entry, partition, latency_ms))
        return tuple(infos)

    def model_cuts(self, name: str) -> tuple[CutInfo, ...]:
        return cut_infos(self._registry.partition(name))

    def remove_model(self, name: str) -> None:
        with self._changing():
            if users := self._streams.uses_model(name):
                raise _in_use(name, users)
            entry = self._registry.get(name)
            self._registry.remove(name)
            self._stages.forget(entry.spec.digest)

    # Engine

    def devices(self) -> tuple[DeviceInfo, ...]:
        active = self._deployment.active
        names: dict[str, list[str]] = defaultdict(list)
        for device_id, worker_id in self._deployment.active_workers():
            names[device_id].append(worker_id)
        utilization = self._plane.call(self._plane.utilization)
        return device_infos(self._hardware, active, names, self._fleet.status(), utilization)

    def profile(self, model: str, force: bool) -> Iterator[Progress]:
        self._check_running()
        yield from self._replanner.ensure_profile(model, force)

    def plan(self) -> PlacedPlan:
        return self._deployment.active

    def replan(self) -> PlacedPlan:
        with self._changing():
            return self._replanner.apply(self._streams.wishes(), anew=True)

    def stats(self, window_s: float = 0.0) -> EngineStats:
        self._check_running()
        copies, totals = snapshots(self._plane, window_s)
        store = self._store.stats()
        return EngineStats(
            version=__version__,
            uptime_s=time.monotonic() - self._started_s,
            policy=self._config.scheduler.policy,
            streams=tuple(copy.stats() for copy in sorted(copies, key=lambda copy: copy.config.name)),
            totals=totals,
            latency=overall(copies),
            worker_restarts=self._fleet.restarts,
            store_backlog=store.backlog,
            store_dropped=store.dropped,
            store_state=store.state,
            watchers=self._hub.watchers,
        )


def _in_use(model: str, users: list[str]) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"model {model!r} is used by stream {users[0]!r}"
        f"{f' and {len(users) - 1} more' if len(users) > 1 else ''}; remove or update the streams first",
        field="name",
    )
