"""What cameras and machines do to an engine beside a steady load: bursts, streams that come and go, a worker killed.

Each scenario runs at a load that the engine holds, and tells what share of all frames was still in time, and how long
it took until they were again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from framepool.benchmarks.slo.offer import stream_rates
from framepool.benchmarks.slo.run import Cameras, Offering, Run, Window, offering, watched
from framepool.benchmarks.slo.usage import stage_workers
from framepool.engine.client import Client
from framepool.engine.errors import CapacityError

SCENARIOS = ("burst", "churn", "kill")
BURST_SHARE = 0.25
"""More load during a burst, of the steady one."""
BURST_PERIOD_S, BURST_S = 6.0, 2.0
CHURN_PERIOD_S = 1.0
KILL_AT = 0.25
"""When the worker is killed, as a share of the window."""

OFFLINE_SLO_MS = 3_600_000.0
"""Of offline files: none that matters, every frame that completes counts."""
OFFLINE_FPS = 1000.0
"""Of offline files: every frame is used."""

Act = Callable[[float], None]


def run_scenario(
    name: str, client: Client, cameras: Cameras, load_fps: float, window: Window, pid: int | None, attainment: float
) -> Run:
    """Runs one of `SCENARIOS` at `load_fps`. "kill" needs the engine's process on this machine."""
    rates = stream_rates(load_fps, cameras.fps)
    about = Run(load_fps, len(rates), window.seconds, scenario=name)
    if name == "kill" and pid is None:
        return replace(about, refused="an engine elsewhere has no process here to kill")
    with offering(client, cameras) as offered:
        try:
            offered.add_all(rates)
        except CapacityError as error:
            return replace(about, refused=str(error))
        match name:
            case "burst":
                act: Act = _Bursts(offered, load_fps, cameras.fps)
            case "churn":
                act = _Churn(offered, cameras.fps)
            case "kill":
                assert pid is not None
                act = _Kill(pid, KILL_AT * window.seconds)
            case _:
                raise ValueError(f"scenario {name!r} is unknown; there are {', '.join(SCENARIOS)}")
        run = watched(client, about, window, act, pid)
    return replace(run, note=_note(run, attainment, KILL_AT * window.seconds if name == "kill" else None))


def run_offline(client: Client, cameras: Cameras, files: int, window: Window, pid: int | None) -> Run:
    """No cameras: `files` files analysed in full, as fast as the engine can. Goodput is frames completed a second."""
    about = Run(0.0, files, window.seconds, scenario="offline")
    with offering(client, replace(cameras, slo_ms=OFFLINE_SLO_MS)) as offered:
        for _ in range(files):
            offered.add(OFFLINE_FPS, offline=True)
        offered.wait_running()
        return watched(client, about, window, lambda _: None, pid)


class _Bursts:
    """More cameras for a while, again and again."""

    def __init__(self, offered: Offering, load_fps: float, fps: float) -> None:
        self._offered = offered
        self._rates = stream_rates(BURST_SHARE * load_fps, fps)
        self._more: list[str] = []

    def __call__(self, at_s: float) -> None:
        wanted = at_s % BURST_PERIOD_S >= BURST_PERIOD_S - BURST_S
        if wanted and not self._more:
            self._more = [self._offered.add(rate) for rate in self._rates]
        elif not wanted and self._more:
            for name in self._more:
                self._offered.remove(name)
            self._more = []


class _Churn:
    """The oldest camera leaves and a new one joins, every second."""

    def __init__(self, offered: Offering, fps: float) -> None:
        self._offered = offered
        self._fps = fps
        self._order = deque(offered.names)
        self._next_s = CHURN_PERIOD_S

    def __call__(self, at_s: float) -> None:
        if at_s < self._next_s:
            return
        self._next_s += CHURN_PERIOD_S
        self._offered.remove(self._order.popleft())
        self._order.append(self._offered.add(self._fps))


class _Kill:
    """One stage worker dies without a word."""

    def __init__(self, pid: int, at_s: float) -> None:
        self._pid = pid
        self._at_s = at_s
        self._done = False

    def __call__(self, at_s: float) -> None:
        if not self._done and at_s >= self._at_s:
            self._done = True
            for worker in stage_workers(self._pid)[:1]:
                worker.kill()


def _note(run: Run, attainment: float, from_s: float | None) -> str:
    """The worst half second, and when the last bad one after `from_s` ended."""
    parts = [part for part in run.course if part.ended]
    if not parts:
        return "no frame ended"
    worst = min(part.in_time / part.ended for part in parts)
    note = f"worst half second {worst:.1%}"
    if from_s is None:
        return note
    bad = [part.until_s for part in parts if part.until_s > from_s and part.in_time < attainment * part.ended]
    if bad and math.isclose(bad[-1], parts[-1].until_s):
        return f"{note}, not recovered"
    return f"{note}, recovered after {max(0.0, bad[-1] - from_s) if bad else 0.0:.1f} s"
