"""Streams that come, change and go: admission, replanning without harm to those that stay, nothing left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import engine_rig as rig
import psutil

from framepool.engine.control import DetectionFilter, StreamChanges, StreamState
from framepool.engine.core import Engine
from framepool.engine.runtime.arena import shared_memory_dir
from framepool.engine.scheduling.events import ServiceClass
from framepool.engine.simulation.replay import replay_log

CYCLES = 200
RESTARTS = 20
RSS_GROWTH = 1.05


def use(engine: Engine) -> dict[str, float]:
    """What the engine and its children hold."""
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    return {
        "processes": len(family),
        "threads": sum(p.num_threads() for p in family),
        "fds": sum(p.num_fds() for p in family),
        "shm": len(list(shared_memory_dir().glob("framepool-*"))),
        "rss": sum(p.memory_info().rss for p in family),
    }


def cycle(engine: Engine, count: int) -> None:
    for number in range(count):
        engine.register_stream(rig.clip_stream("churn", loop=True))
        if number % 10 == 0:
            done = engine.get_stream("churn").counters.completed
            assert rig.until(lambda done=done: engine.get_stream("churn").counters.completed > done, 10)
        engine.delete_stream("churn")


def settled(engine: Engine, before: dict[str, float]) -> bool:
    """Back where it was; the database's pool may have opened one connection more (three descriptors each)."""
    now = use(engine)
    spare = {"processes": 0, "threads": 0, "fds": 3, "shm": 0}
    return all(now[name] <= before[name] + more for name, more in spare.items())


def test_a6_a7_f17_200_cycles_leave_nothing_behind(state_dir: Path) -> None:
    """A6, A7, F17: processes, threads, descriptors, shared memory and RSS are back where they were."""
    with rig.engine(state_dir, rig.onnxruntime_pair()) as engine:
        engine.register_stream(rig.clip_stream("stays", loop=True))
        cycle(engine, 20)
        time.sleep(1.0)
        before = use(engine)
        cycle(engine, CYCLES)
        assert rig.until(lambda: settled(engine, before), 10), (before, use(engine))
        after = use(engine)
        assert after["rss"] <= RSS_GROWTH * before["rss"], (before, after)
        stays = engine.get_stream("stays").counters
        assert stays.attainment >= 0.8, stays
        engine.delete_stream("stays")
        assert rig.until(lambda: rig.balanced(engine.stats()), 10)


def test_20_worker_restarts_leave_nothing_behind(state_dir: Path) -> None:
    with rig.engine(state_dir, rig.onnxruntime_pair()) as engine:
        engine.register_stream(rig.clip_stream("stays", loop=True))
        assert rig.until(lambda: engine.get_stream("stays").counters.completed > 5, 20)
        restart_worker(engine)
        before = use(engine)
        for _ in range(RESTARTS):
            restart_worker(engine)
        assert rig.until(lambda: settled(engine, before), 10), (before, use(engine))
        assert use(engine)["rss"] <= RSS_GROWTH * before["rss"], (before, use(engine))
        assert engine.stats().worker_restarts >= RESTARTS


def restart_worker(engine: Engine) -> None:
    restarts = engine.stats().worker_restarts
    engine._fleet.forgive()
    os.kill(rig.framepool_children()["stage"][0], signal.SIGKILL)
    assert rig.until(lambda: engine.stats().worker_restarts > restarts, 20)


def test_a_stream_that_stays_is_not_harmed_when_others_come_and_go(state_dir: Path) -> None:
    with rig.engine(state_dir, rig.unlike_pair()) as engine:
        engine.register_stream(rig.clip_stream("stays", loop=True))
        assert rig.until(lambda: engine.get_stream("stays").counters.completed > 10, 20)
        for number in range(8):
            engine.register_stream(rig.clip_stream(f"guest-{number}", loop=True, slo_ms=200.0 + 50 * (number % 3)))
            if number >= 1:
                engine.delete_stream(f"guest-{number - 1}")
        time.sleep(1.0)
        stays = engine.get_stream("stays").counters
        assert stays.attainment >= 0.8, stays


def test_updates_take_effect_without_losing_frames(state_dir: Path) -> None:
    with rig.engine(state_dir, rig.onnxruntime_pair()) as engine:
        engine.register_stream(rig.clip_stream("gate", loop=True))
        assert rig.until(lambda: engine.get_stream("gate").counters.completed > 5, 20)
        engine.update_stream("gate", StreamChanges(min_score=0.99))
        time.sleep(0.5)
        page = engine.query_detections(DetectionFilter(), 1000, "")
        known = len(page.frames)
        time.sleep(1.0)
        assert len(engine.query_detections(DetectionFilter(), 1000, "").frames) == known
        engine.update_stream("gate", StreamChanges(min_score=0.0, target_fps=5.0, slo_ms=300.0))
        before = engine.get_stream("gate").counters.ingested
        time.sleep(3.0)
        assert 10 <= engine.get_stream("gate").counters.ingested - before <= 20
        engine.update_stream("gate", StreamChanges(enabled=False))
        assert engine.get_stream("gate").state is StreamState.DISABLED
        assert rig.until(lambda: rig.balanced(engine.stats()), 10)
        totals = engine.stats().totals
        assert totals.dropped_total == 0, totals
        frames = engine.query_detections(DetectionFilter(), 1000, "").frames
        assert len({frame.seq for frame in frames}) == len(frames)


def test_what_the_scheduler_did_live_is_replayed_alike(state_dir: Path, tmp_path: Path) -> None:
    """The live engine runs the very scheduler that is simulated: its recorded events give its recorded commands."""
    log = tmp_path / "events.jsonl"
    with rig.engine(state_dir, rig.onnxruntime_pair(), scheduler={"event_log": str(log)}) as engine:
        for name in ("a", "b"):
            engine.register_stream(rig.clip_stream(name, loop=True))
        assert rig.until(lambda: engine.stats().totals.completed > 40, 20)
        os.kill(rig.framepool_children()["stage"][0], signal.SIGKILL)
        engine.delete_stream("b")
        assert rig.until(lambda: engine.stats().totals.completed > 80, 20)
    lines = log.read_bytes().splitlines()
    assert len(lines) > 100
    assert replay_log(lines) is None


def test_watchers_get_every_frame_once_across_a_reconnect(state_dir: Path) -> None:
    """Watch, break off, resume from the cursor: no frame is missed, none comes twice."""
    with rig.served(state_dir, rig.onnxruntime_pair()) as running:
        client = running.client
        client.register_stream(rig.clip_stream("gate", service_class=ServiceClass.LIVE, loop=True))
        seqs: list[int] = []
        cursor: int | None = None
        for _ in range(3):
            watch = client.watch_detections(DetectionFilter(streams=("gate",)), resume_cursor=cursor)
            timer = threading.Timer(1.5, watch.close)
            timer.start()
            for item in watch:
                assert item.frame is not None, item
                seqs.append(item.frame.seq)
            cursor = watch.cursor
            timer.join()
            time.sleep(0.7)
        assert len(seqs) > 30
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
