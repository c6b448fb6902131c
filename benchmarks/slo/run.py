"""One run: a load offered as cameras, a warm-up, a window, and what the engine counted in it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from framepool.benchmarks import MeasurementError
from framepool.benchmarks.slo.offer import stream_rates
from framepool.benchmarks.slo.usage import Usage
from framepool.engine.client import Client
from framepool.engine.control import LatencyBreakdown, StreamConfig, StreamCounters, StreamState
from framepool.engine.errors import CapacityError
from framepool.engine.scheduling.events import ServiceClass

LEAST_INGESTED = 0.95
"""Of the offered frames: with fewer the decoders did not keep up, and the load was never really there."""
RUNNING_TIMEOUT_S = 60.0
POLL_S = 1.0
LONGEST_START_S = 2.0
"""Over which all cameras of a run are registered."""
PREFIX = "bench-"


@dataclass(frozen=True, slots=True)
class Cameras:
    """What is offered: cameras that show `source` at `fps`, analysed by `model` within `slo_ms`. They are registered at
    random moments, by `seed`, so that they show different places of a clip."""

    model: str
    source: str
    slo_ms: float
    fps: float
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Second:
    """What was counted from `from_s` to `until_s` of a window, and the rate meanwhile offered."""

    from_s: float
    until_s: float
    ended: int
    in_time: int


@dataclass(frozen=True, slots=True)
class Run:
    """A load and what became of it.

    `ingested`, `ended`, `in_time`, `dropped` count frames within the window of `seconds`; `offered` is how many the
    cameras should have sent in it. `latency` is over the window's published frames; `utilisation` by device and
    `cpu_ms_per_frame`, `rss_bytes` by kind of process are empty where they can't be known. `refused` says why the
    engine did not take the load in, or "".
    """

    load_fps: float
    streams: int
    seconds: float
    scenario: str = "steady"
    offered: float = 0.0
    ingested: int = 0
    ended: int = 0
    in_time: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    latency: LatencyBreakdown = field(default_factory=LatencyBreakdown)
    utilisation: Mapping[str, float] = field(default_factory=dict)
    cpu_ms_per_frame: Mapping[str, float] = field(default_factory=dict)
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    course: tuple[Second, ...] = ()
    refused: str = ""
    note: str = ""

    @property
    def valid(self) -> bool:
        return not self.refused and self.ingested >= LEAST_INGESTED * self.offered

    @property
    def attainment(self) -> float:
        return self.in_time / self.ended if self.ended else 0.0

    @property
    def goodput_fps(self) -> float:
        """Frames per second published within the SLO."""
        return self.in_time / self.seconds if self.seconds else 0.0


class Offering:
    """The streams that are registered for a run, under names of its own. `close` removes them."""

    def __init__(self, client: Client, cameras: Cameras) -> None:
        self._client = client
        self._cameras = cameras
        self._number = 0
        self.names: list[str] = []

    def add(self, fps: float, *, offline: bool = False) -> str:
        """One more camera, or a file that is analysed in full. Raises CapacityError where the engine takes no more."""
        cameras = self._cameras
        name = f"{PREFIX}{self._number:04d}"
        self._number += 1
        kind = ServiceClass.OFFLINE if offline else ServiceClass.LIVE
        self._client.register_stream(
            StreamConfig(name, cameras.source, cameras.model, cameras.slo_ms, fps, service_class=kind, loop=True)
        )
        self.names.append(name)
        return name

    def add_all(self, rates: Sequence[float]) -> None:
        """Cameras of these rates, and waits until all send. Raises CapacityError, MeasurementError."""
        pause_s = min(1.0 / self._cameras.fps, LONGEST_START_S / len(rates))
        rng = random.Random(self._cameras.seed)
        for rate in rates:
            self.add(rate)
            time.sleep(rng.uniform(0.0, pause_s))
        self.wait_running()

    def remove(self, name: str) -> None:
        self._client.delete_stream(name)
        self.names.remove(name)

    def wait_running(self) -> None:
        """Until every camera sends. Raises MeasurementError, with the cause, where one fails or does not begin."""
        until_s = time.monotonic() + RUNNING_TIMEOUT_S
        while True:
            states = {info.config.name: info for info in self._client.list_streams() if info.config.name in self.names}
            waiting = [info for info in states.values() if info.state is not StreamState.RUNNING]
            if not waiting and len(states) == len(self.names):
                return
            failed = [info for info in waiting if info.state is StreamState.FAILED]
            if failed or time.monotonic() > until_s:
                first = (failed or waiting)[0]
                cause = first.last_error or f"it is {first.state.value}"
                raise MeasurementError(f"stream {first.config.name} of {self._cameras.source} does not run: {cause}")
            time.sleep(0.1)

    def close(self) -> None:
        for name in list(self.names):
            self.remove(name)


@contextmanager
def offering(client: Client, cameras: Cameras) -> Iterator[Offering]:
    """An empty offering; what is in it at the end is removed."""
    offered = Offering(client, cameras)
    try:
        yield offered
    finally:
        offered.close()


@dataclass(frozen=True, slots=True)
class Window:
    """How long a run is watched: `seconds`, after `warm_up_s`."""

    seconds: float = 15.0
    warm_up_s: float = 3.0


def remove_leftovers(client: Client) -> None:
    """Streams of a harness that was broken off."""
    for info in client.list_streams():
        if info.config.name.startswith(PREFIX):
            client.delete_stream(info.config.name)


def run_once(client: Client, cameras: Cameras, load_fps: float, window: Window, pid: int | None = None) -> Run:
    """Offers `load_fps` and measures. `pid`: the engine's process, where it is on this machine."""
    rates = stream_rates(load_fps, cameras.fps)
    empty = Run(load_fps, len(rates), window.seconds)
    with offering(client, cameras) as offered:
        try:
            offered.add_all(rates)
        except CapacityError as error:
            return replace(empty, refused=str(error))
        return watched(client, empty, window, lambda _: None, pid)


def watched(client: Client, about: Run, window: Window, act: Callable[[float], None], pid: int | None = None) -> Run:
    """Measures what is being offered, `about` filled in. `act` is called all along with the seconds since the window
    began and may change what is offered; what it changes is not part of `offered`."""
    time.sleep(window.warm_up_s)
    usage_before = Usage.of(pid) if pid is not None else None
    began_s = time.monotonic()
    before = last = client.stats().totals
    shares: list[dict[str, float]] = []
    course: list[Second] = []
    at_s = 0.0
    while at_s < window.seconds:
        act(at_s)
        time.sleep(max(0.0, min(POLL_S, window.seconds - at_s)))
        now_s = time.monotonic() - began_s
        now = client.stats(window.seconds).totals
        course.append(Second(at_s, now_s, _ended(now) - _ended(last), now.in_time - last.in_time))
        last, at_s = now, now_s
        if len(course) % 4 == 0:
            shares.append({device.id: device.utilization for device in client.devices()})
    stats = client.stats(window.seconds)
    after, seconds = stats.totals, time.monotonic() - began_s
    ingested, ended = after.ingested - before.ingested, _ended(after) - _ended(before)
    usage = Usage.of(pid) if pid is not None else None
    return replace(
        about,
        seconds=seconds,
        offered=about.load_fps * seconds,
        ingested=ingested,
        ended=ended,
        in_time=after.in_time - before.in_time,
        dropped={
            reason.value: count - before.dropped.get(reason, 0)
            for reason, count in after.dropped.items()
            if count > before.dropped.get(reason, 0)
        },
        latency=stats.latency,
        utilisation=_mean(shares),
        cpu_ms_per_frame=usage.cpu_ms_per_frame(usage_before, ended) if usage and usage_before else {},
        rss_bytes=usage.rss_bytes if usage else {},
        course=tuple(course),
    )


def _ended(counters: StreamCounters) -> int:
    return counters.completed + counters.dropped_total


def _mean(shares: list[dict[str, float]]) -> dict[str, float]:
    names = shares[-1] if shares else {}
    return {name: sum(share.get(name, 0.0) for share in shares) / len(shares) for name in names}
