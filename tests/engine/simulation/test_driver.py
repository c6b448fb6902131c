"""The driver obeys commands faithfully: order, windows, links, deaths; and counts what came of frames."""

from __future__ import annotations

import itertools

import pytest

from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.events import DropReason, Frame, WorkerLost, WorkerUp
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Source, camera, merged, poisson
from framepool.engine.simulation.driver import OfflineFile, Simulation, SimulationOptions
from framepool.engine.simulation.handmade import StageSketch, single
from framepool.engine.simulation.service import Exact, LognormalJitter

MS = 1_000_000
S = 1_000_000_000


def frames(count: int, *, every_ms: float, slo_ms: float = 200.0) -> list[tuple[int, Frame]]:
    return [
        (round(n * every_ms * MS), Frame(n, 0, "m", round(n * every_ms * MS), round((n * every_ms + slo_ms) * MS)))
        for n in range(count)
    ]


def test_predicted_and_measured_agree_when_service_is_exact(make_simulation):
    stages = [StageSketch(2, 4.0, out_ms=1.0, linked=True), StageSketch(1, 2.0, linked=True)]
    result = make_simulation("ppipe", single(stages), keep_rows=True).run(frames(50, every_ms=5))
    assert len(result.stages) == 100
    for row in result.stages:
        assert (row.start_ns, row.end_ns) == (row.predicted_start_ns, row.predicted_end_ns)
    assert result.totals.in_time == 50
    assert result.busy_ns["p/1/0"] == 50 * 2 * MS


def test_two_stages_work_at_the_same_time(make_simulation, policy):
    plan = single([StageSketch(1, 10.0), StageSketch(1, 10.0)])
    result = make_simulation(policy, plan, keep_rows=True).run(frames(20, every_ms=10))
    assert result.totals.in_time == 20
    first = {row.frames[0]: row for row in result.stages if row.stage == 0}
    second = {row.frames[0]: row for row in result.stages if row.stage == 1}
    assert all(first[n + 1].start_ns < second[n].end_ns for n in range(19))


def test_a_window_that_has_closed_is_refused_and_the_frame_ends_once(make_simulation):
    scheduling = SchedulerOptions(service_learning=0.0, commit_ahead_ns=None, start_slack_ns=0)
    simulation = make_simulation(
        "ppipe", single([StageSketch(1, 10.0)]), scheduling, service=LognormalJitter(0.01, 3.0)
    )
    result = simulation.run(frames(40, every_ms=10, slo_ms=60))
    assert result.refused > 0
    assert result.totals.open == 0


def test_what_a_dead_worker_held_is_run_elsewhere_or_dropped(make_simulation, policy):
    script = [(103 * MS, WorkerLost("p/0/0")), (303 * MS, WorkerUp("p/0/0"))]
    plan = single([StageSketch(2, 8.0)])
    result = make_simulation(policy, plan, keep_rows=True).run(frames(100, every_ms=5), script)
    assert result.totals.ended == 100
    assert result.totals.completed > 60
    dead = [row for row in result.stages if row.worker_id == "p/0/0" and 103 * MS < row.end_ns < 303 * MS]
    assert dead == []
    assert all(row.in_time for row in result.frames if row.capture_ns > 600 * MS)


def test_the_engine_is_back_at_full_attainment_after_a_restart(make_simulation, policy):
    script = [(203 * MS, WorkerLost("p/0/0")), (703 * MS, WorkerUp("p/0/0"))]
    result = make_simulation(policy, single([StageSketch(1, 8.0)]), keep_rows=True).run(
        frames(200, every_ms=10), script
    )
    assert result.totals.ended == 200
    assert all(row.in_time for row in result.frames if row.capture_ns >= 710 * MS)
    gone = {row.dropped for row in result.frames if not row.in_time}
    assert gone <= {DropReason.STALE, DropReason.WORKER_LOST}


def test_the_same_seed_gives_the_same_trace_and_another_does_not(make_simulation, policy):
    def trace(seed: int) -> list[object]:
        kept: list[object] = []
        plan = single([StageSketch(2, 6.0), StageSketch(1, 3.0)], batch=3)
        simulation = make_simulation(policy, plan, trace=kept, service=LognormalJitter(0.3), seed=seed)
        simulation.run(poisson(Source(0, "m", 150 * MS), 200, itertools.count(), seed=5, until_ns=S))
        return kept

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_a_file_is_analysed_in_full_on_what_live_streams_leave(make_simulation, policy):
    plan = single([StageSketch(1, 8.0)], batch=4)
    live = camera(Source(0, "m", 100 * MS), 20, itertools.count(), until_ns=3 * S)
    result = make_simulation(policy, plan).run(live, files=[OfflineFile(9, "m", frames=200)])
    assert result.streams[9].completed == 200
    assert result.streams[0].attainment == 1.0


def test_slots_bound_what_a_stream_may_have_open(make_simulation, policy):
    plan = single([StageSketch(1, 50.0)])
    result = make_simulation(policy, plan, slots_per_stream=3).run(frames(200, every_ms=5, slo_ms=10_000))
    totals = result.totals
    assert totals.ingested + result.skipped.get(0, 0) == 200
    assert totals.dropped[DropReason.OVERLOAD] > 0
    assert totals.open == 0


def test_a_scheduler_that_ends_a_frame_twice_is_caught():
    class Doubling(Scheduler):
        def handle(self, event, now_ns):
            return [command for command in super().handle(event, now_ns) for _ in range(2)]

    honest = make_scheduler("ppipe")
    doubling = Doubling(lambda state: honest._policy, SchedulerOptions())
    doubling.state, doubling._policy = honest.state, honest._policy
    simulation = Simulation(doubling, single([StageSketch(1, 1.0)]), SimulationOptions())
    with pytest.raises(RuntimeError, match="ended before"):
        simulation.run([(0, Frame(1, 0, "other", 0, S))])


def test_until_stops_the_clock(make_simulation):
    result = make_simulation("ppipe", single([StageSketch(1, 5.0)])).run(frames(100, every_ms=10), until_ns=500 * MS)
    assert result.end_ns <= 500 * MS
    assert 40 < result.totals.ingested < 60


class TestArrivals:
    def test_poisson_has_its_rate_and_its_seed(self):
        def times(seed: int) -> list[int]:
            source = Source(3, "m", 100 * MS, decode_ns=5)
            return [at for at, _ in poisson(source, 500, itertools.count(), seed=seed, until_ns=20 * S)]

        assert times(1) == times(1) != times(2)
        assert len(times(1)) == pytest.approx(10_000, rel=0.05)

    def test_cameras_are_periodic_with_their_phase(self):
        got = list(camera(Source(0, "m", 100 * MS), 25, itertools.count(), until_ns=S, phase_ns=7 * MS))
        assert len(got) == 25
        assert [at for at, _ in got[:3]] == [7 * MS, 47 * MS, 87 * MS]
        assert got[0][1].deadline_ns == 107 * MS

    def test_merged_streams_are_in_order_with_unique_ids(self):
        ids = itertools.count()
        sources = [poisson(Source(n, "m", MS), 100, ids, seed=n, until_ns=S) for n in range(5)]
        got = list(merged(sources))
        assert [at for at, _ in got] == sorted(at for at, _ in got)
        assert len({frame.id for _, frame in got}) == len(got)


def test_service_models_keep_their_mean():
    import random

    rng = random.Random(0)
    jitter = LognormalJitter(0.2, 1.5)
    drawn = [jitter.duration_ns(1_000_000, rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(1_500_000, rel=0.01)
    assert Exact().duration_ns(7, rng) == 7
