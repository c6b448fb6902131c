"""kill -9 under load: every frame is accounted for, streams go on, and the engine is back within seconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import engine_rig as rig
import psutil
import pytest

from framepool.engine.control import EngineStats, StreamChanges
from framepool.engine.core import Engine
from framepool.engine.runtime.arena import shared_memory_dir

RECOVERY_S = 5.0
"""So long a quiet machine needs at most; a busy one gets five times as long to show it."""
WINDOW_S = 3.0
FULL = 0.95
STREAMS = ("a", "b", "c")


def load(engine: Engine) -> None:
    """Three looping streams: about half of what two cores can do."""
    for name in STREAMS:
        engine.register_stream(rig.clip_stream(name, loop=True))
    assert rig.until(lambda: all(s.counters.completed > 10 for s in engine.stats().streams), 20)


def kill_stage(engine: Engine) -> None:
    os.kill(rig.framepool_children()["stage"][0], signal.SIGKILL)


def kill_decoder(engine: Engine) -> None:
    os.kill(rig.framepool_children()["decoder"][0], signal.SIGKILL)


def kill_both(engine: Engine) -> None:
    kill_stage(engine)
    kill_decoder(engine)


def kill_everything(engine: Engine) -> None:
    for pids in rig.framepool_children().values():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("kill", "split"),
    [(kill_stage, False), (kill_both, False), (kill_stage, True), (kill_decoder, True), (kill_everything, True)],
)
def test_kill_9_under_load(state_dir: Path, kill: Callable[[Engine], None], split: bool) -> None:
    planner = {"min_stages": 2, "distinct_classes": True} if split else {}
    with rig.engine(state_dir, rig.onnxruntime_pair(), planner=planner) as engine:
        load(engine)
        before = rig.framepool_children()
        kill(engine)
        killed_s = time.monotonic()
        slowest_call_s = 0.0
        while time.monotonic() - killed_s < RECOVERY_S:
            called_s = time.monotonic()
            engine.stats()
            engine.list_streams()
            slowest_call_s = max(slowest_call_s, time.monotonic() - called_s)
            time.sleep(0.1)
        assert slowest_call_s < 2.0
        shares: list[dict[str, float]] = []
        while not shares or min(shares[-1].values()) < FULL:
            assert time.monotonic() - killed_s < 5 * RECOVERY_S, shares
            shares.append(attainment(engine))
        after = engine.stats()
        now = rig.framepool_children()
        assert {kind: len(pids) for kind, pids in now.items()} == {kind: len(pids) for kind, pids in before.items()}
        assert after.worker_restarts >= 1
        quiet(engine)


def attainment(engine: Engine) -> dict[str, float]:
    """Each stream's attainment over the next seconds."""
    mark = {s.name: s.counters for s in engine.stats().streams}
    time.sleep(WINDOW_S)
    found = {}
    for stream in engine.stats().streams:
        start, end = mark[stream.name], stream.counters
        ended = end.completed + end.dropped_total - start.completed - start.dropped_total
        assert ended >= 15, (stream.name, ended)
        found[stream.name] = (end.in_time - start.in_time) / ended
    return found


def quiet(engine: Engine) -> EngineStats:
    """Stops the streams; at the quiet moment every frame has ended once."""
    for name in STREAMS:
        engine.delete_stream(name)
    assert rig.until(lambda: rig.balanced(engine.stats()), 10), engine.stats().totals
    return engine.stats()


def test_frames_of_a_lost_worker_are_sent_again(state_dir: Path) -> None:
    """With a long SLO a batch that died with its worker is run once more: nothing is dropped."""
    with rig.engine(state_dir, rig.onnxruntime_pair()) as engine:
        engine.register_stream(rig.clip_stream("a", loop=True, slo_ms=8000.0, target_fps=10.0))
        assert rig.until(lambda: engine.stats().totals.completed > 5, 20)
        for _ in range(3):
            kill_stage(engine)
            time.sleep(1.5)
        engine.update_stream("a", StreamChanges(enabled=False))
        assert rig.until(lambda: rig.balanced(engine.stats()), 15)
        totals = engine.stats().totals
        assert totals.dropped_total == 0, totals
        assert totals.completed == totals.ingested


def test_kill_9_of_the_engine(state_dir: Path) -> None:
    """Its children end by themselves; the next start removes what was left and resumes the streams."""
    with rig.served(state_dir, rig.onnxruntime_pair()) as first:
        first.client.register_stream(rig.clip_stream("gate", loop=True))
        assert rig.until(lambda: first.client.stats().totals.completed > 10, 20)
        number = first.client.get_stream("gate").id
        children = first.children()
        assert len(children) >= 2
        first.kill()
        assert not psutil.wait_procs(children, timeout=RECOVERY_S)[1]
        left = {path.stat().st_ino for path in shared_memory_dir().glob("framepool-*")}
        assert left
    with rig.served(state_dir, rig.onnxruntime_pair()) as second:
        assert not left & {path.stat().st_ino for path in shared_memory_dir().glob("framepool-*")}
        assert rig.until(lambda: second.client.stats().totals.completed > 10, 20)
        stream = second.client.get_stream("gate")
        assert stream.id == number
        assert second.terminate() == 0
    assert not list(shared_memory_dir().glob("framepool-*"))


def test_sigterm_drains(state_dir: Path) -> None:
    """Frames under way are published, then everything ends with code 0."""
    with rig.served(state_dir, rig.onnxruntime_pair()) as running:
        running.client.register_stream(rig.clip_stream("gate", loop=True))
        assert rig.until(lambda: running.client.stats().totals.completed > 10, 20)
        children = running.children()
        assert running.terminate() == 0
        assert not psutil.wait_procs(children, timeout=1.0)[1]
        assert '"event": "stopped"' in "".join(running.log)
        assert not [line for line in running.log if '"level": "error"' in line]
