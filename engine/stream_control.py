"""Registered streams: taking them in, changing them, letting them go, bringing them back after a restart.

Every change runs under the engine's control lock: check, admit, plan, deploy, write down, decode. A stream is only
written down once it is served, so what a crash interrupts was never promised.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from framepool import FramepoolError
from framepool.engine.admission import Wish
from framepool.engine.config import EngineConfig
from framepool.engine.control import StreamChanges, StreamConfig, StreamInfo, StreamState
from framepool.engine.decoders import Decoders
from framepool.engine.errors import AlreadyExistsError, NotFoundError
from framepool.engine.planning.phases import Phase, choose_phase
from framepool.engine.registration import changed, check_config, check_labels, needs_new_feed
from framepool.engine.replanning import Replanner
from framepool.engine.reports import snapshot
from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.data_plane import ENDED_STATES, DataPlane, without_password
from framepool.engine.runtime.feeds import FeedSource
from framepool.engine.scheduling.events import ServiceClass
from framepool.engine.store.registrations import Registration, Registrations
from framepool.models.spec import ModelSpec
from framepool.streams import SAMPLES_DIR
from framepool.streams.probe import probe
from framepool.streams.source_url import parse_source

log = structlog.get_logger("framepool.streams")

SPARE_SLOTS = 4
"""Frame slots beyond those that a stream's SLO and rate fill: granted, in the decoder's hands, on their way back."""
MOST_SLOTS = 256
OFFLINE_SLOTS = 16
SEQUENCE_PERIOD_S = 5.0


@dataclass(slots=True)
class _Known:
    """A registered stream: `registration.config` holds its password."""

    registration: Registration
    ended: bool = False
    phase: Phase | None = None


class StreamControl:
    """The registered streams. The caller holds the engine's control lock around everything but reads."""

    def __init__(
        self,
        config: EngineConfig,
        registrations: Registrations,
        replanner: Replanner,
        plane: DataPlane,
        decoders: Decoders,
        name_arena: Callable[[], str],
    ) -> None:
        self._config = config
        self._registrations = registrations
        self._replanner = replanner
        self._plane = plane
        self._decoders = decoders
        self._name_arena = name_arena
        self._feed_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    # Reads (any thread)

    def info(self, name: str) -> StreamInfo:
        known = self._get(name)
        try:
            copy = snapshot(self._plane, known.registration.id)
        except KeyError:
            raise _not_found(name) from None
        return copy.info(known.registration.create_time_unix_ns)

    def infos(self) -> tuple[StreamInfo, ...]:
        with self._lock:
            names = sorted(self._known)
        infos = []
        for name in names:
            try:
                infos.append(self.info(name))
            except NotFoundError:
                continue  # removed meanwhile
        return tuple(infos)

    def uses_model(self, model: str) -> list[str]:
        """Names of streams registered for the model."""
        with self._lock:
            return sorted(name for name, known in self._known.items() if known.registration.config.model == model)

    def id_of(self, name: str) -> int:
        return self._get(name).registration.id

    def _get(self, name: str) -> _Known:
        with self._lock:
            known = self._known.get(name)
        if known is None:
            raise _not_found(name)
        return known

    def wishes(self, without: str = "") -> list[Wish]:
        """What the streams that run ask of the planner."""
        with self._lock:
            return [
                Wish.of(known.registration.config)
                for name, known in sorted(self._known.items())
                if name != without and known.registration.config.enabled and not known.ended
            ]

    # Changes (under the control lock)

    def check_source(self, config: StreamConfig) -> None:
        """Raises SourceError where the source can never be played; a camera that is away now is no error."""
        roots = self._config.sources.file_roots or (Path.cwd(), SAMPLES_DIR)
        spec = parse_source(config.source, config.username, config.password, file_roots=roots)
        if spec.is_file and config.enabled:
            probe(spec, self._config.sources.probe_timeout_s)

    def register(self, config: StreamConfig) -> StreamInfo:
        """Takes the stream in. Its source was checked before (`check_source`), outside the lock."""
        check_config(config)
        with self._lock:
            if config.name in self._known:
                raise AlreadyExistsError(
                    f"a stream named {config.name!r} is registered; choose another name or update that one",
                    field="name",
                )
        spec = self._replanner.registry.get(config.model).spec
        check_labels(config, spec)
        if config.enabled:
            wish = Wish.of(config)
            existing = self.wishes()
            self._replanner.admit(existing, wish)
            self._replanner.apply([*existing, wish])
        registration = self._registrations.add(config)
        self._know(registration, spec)
        if config.enabled:
            self._open_feed(registration, spec)
        log.info("stream registered", stream=config.name, model=config.model, slo_ms=config.slo_ms)
        return self.info(config.name)

    def _know(self, registration: Registration, spec: ModelSpec) -> None:
        shown = without_password(registration.config)
        self._plane.call(lambda: self._plane.add_stream(registration.id, shown, spec, registration.next_seq))
        with self._lock:
            self._known[registration.config.name] = _Known(registration)

    def _open_feed(self, registration: Registration, spec: ModelSpec) -> None:
        config = registration.config
        slot_bytes = spec.input.width_px * spec.input.height_px * 3
        arena = Arena.create(ArenaSpec(self._name_arena(), frame_slots(config), slot_bytes))
        decoder = self._decoders.assign(registration.id)
        offline = config.service_class is ServiceClass.OFFLINE
        phase_ns = -1 if offline else self._phase_ns(config)
        source = FeedSource(
            config.source, config.username, config.password, config.target_fps, offline, config.loop, phase_ns
        )
        feed_id = next(self._feed_ids)
        self._plane.call(lambda: self._plane.open_feed(feed_id, registration.id, source, arena, decoder))

    def _phase_ns(self, config: StreamConfig) -> int:
        """When within its period the stream's frames should come, so that they do not meet those of others."""
        with self._lock:
            mine = self._known[config.name]
            others = [k.phase for k in self._known.values() if k is not mine and k.phase is not None and not k.ended]
            mine.phase = choose_phase(config.target_fps, others)
        return mine.phase.phase_ns

    def update(self, name: str, changes: StreamChanges) -> StreamInfo:
        """Changes the stream; its frames under way go on. Raises, with nothing changed, what `register` raises."""
        known = self._get(name)
        before = known.registration.config
        config = changed(before, changes)
        check_config(config)
        entry = self._replanner.registry.get(config.model)
        check_labels(config, entry.spec)
        anew = needs_new_feed(before, config)
        if config.enabled:
            existing = self.wishes(without=name)
            self._replanner.admit(existing, Wish.of(config))
            self._replanner.apply([*existing, Wish.of(config)])
        registration = replace(known.registration, config=config)
        self._registrations.update(registration.id, config)
        shown = without_password(config)
        self._plane.call(lambda: self._plane.change_stream(registration.id, shown, entry.spec))
        with self._lock:
            phase = known.phase if config.enabled else None
            self._known[name] = _Known(registration, known.ended and not anew, phase)
        if anew and config.enabled:
            self._open_feed(registration, entry.spec)
        elif not config.enabled:
            self._plane.call(lambda: self._plane.disable_stream(registration.id))
            self._replanner.apply(self.wishes())
        return self.info(name)

    def delete(self, name: str) -> None:
        """Ends the stream; its frames under way end as dropped."""
        with self._lock:
            known = self._known.pop(name, None)
        if known is None:
            raise _not_found(name)
        registration = known.registration
        self._registrations.remove(registration.id)
        self._plane.call(lambda: self._plane.remove_stream(registration.id))
        self._decoders.release(registration.id)
        log.info("stream removed", stream=name)
        self._replanner.apply(self.wishes())

    def state_changed(self, stream_id: int, state: StreamState) -> bool:
        """A stream's state, as its decoder tells; True when that changes what is asked of the planner."""
        with self._lock:
            for known in self._known.values():
                if known.registration.id == stream_id:
                    before, known.ended = known.ended, state in ENDED_STATES
                    return known.ended != before
        return False

    def resume(self) -> None:
        """Takes up the registered streams of an earlier run; those whose model is gone stay written down."""
        resumed: list[tuple[Registration, ModelSpec]] = []
        for registration in self._registrations.list():
            try:
                spec = self._replanner.registry.get(registration.config.model).spec
            except FramepoolError as exc:
                log.error("stream can't be resumed", stream=registration.config.name, cause=str(exc))
                continue
            self._know(registration, spec)
            resumed.append((registration, spec))
        if not resumed:
            return
        try:
            self._replanner.apply(self.wishes())
        except FramepoolError as exc:
            log.error("the resumed streams can't be served now", cause=str(exc))
        for registration, spec in resumed:
            if registration.config.enabled:
                self._open_feed(registration, spec)
        log.info("streams resumed", streams=len(resumed))

    def keep_sequence_numbers(self, *, final: bool = False) -> None:
        """Writes down from where frames are to be numbered after a restart (called every `SEQUENCE_PERIOD_S`).

        Until the last time that is ahead of what was reached: an engine that dies must not number frames twice.
        """

        def collect() -> dict[int, int]:
            ahead_s = 0.0 if final else 2 * SEQUENCE_PERIOD_S
            streams = self._plane.streams().values()
            return {s.id: s.next_seq + math.ceil(ahead_s * s.config.target_fps) for s in streams}

        self._registrations.keep_next_seq(self._plane.call(collect))


def frame_slots(config: StreamConfig) -> int:
    """Frame slots of a stream: all frames that can be within their SLO at once, and some to spare."""
    if config.service_class is ServiceClass.OFFLINE:
        return OFFLINE_SLOTS
    within_slo = int(config.slo_ms * config.target_fps / 1e3) + 1
    return min(MOST_SLOTS, within_slo + SPARE_SLOTS)


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(f"no stream is named {name!r}; see `framepool streams list`", field="name")
