"""Attainment and fairness under load, on virtual time; and the field's overload cases E1, E3, E4, E5."""

from __future__ import annotations

import itertools

import pytest

from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.arrivals import Source, camera, merged, poisson
from framepool.engine.simulation.driver import Simulation
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline, single
from framepool.engine.simulation.service import LognormalJitter

MS = 1_000_000
S = 1_000_000_000
WHOLE = [StageSketch(4, 10.0, linked=True)]
SPLIT = [StageSketch(6, 12.0, out_ms=0.5, linked=True), StageSketch(2, 4.0, linked=True)]


def cluster(batch: int):
    return activated(
        [(pipeline("whole", "m", WHOLE, batch=batch), WHOLE), (pipeline("split", "m", SPLIT, batch=batch), SPLIT)]
    )


def attainment_at(
    make_simulation, policy: str, load: float, *, batch: int = 1, slo_ms: float = 120.0, **options
) -> float:
    plan = cluster(batch)
    rate_fps = load * sum(made.capacity_fps for made in plan.plan.pipelines)
    arrivals = poisson(Source(0, "m", round(slo_ms * MS)), rate_fps, itertools.count(), seed=3, until_ns=2 * S)
    result = make_simulation(policy, plan, **options).run(arrivals)
    assert result.totals.open == 0
    return result.totals.attainment


@pytest.mark.parametrize(("batch", "slo_ms"), [(1, 120.0), (4, 300.0)])
def test_all_in_time_at_load_factor_0_6(make_simulation, policy, batch, slo_ms):
    assert attainment_at(make_simulation, policy, 0.6, batch=batch, slo_ms=slo_ms) >= 0.999


def test_all_in_time_at_load_factor_0_6_with_jitter_and_slow_reports(make_simulation, policy):
    service = LognormalJitter(0.1)
    assert attainment_at(make_simulation, policy, 0.6, service=service, report_delay_ns=1 * MS) >= 0.995


def test_the_published_settings_hold_load_factor_0_9(make_simulation):
    assert attainment_at(make_simulation, "ppipe", 0.9, scheduling=SchedulerOptions.published()) >= 0.99


def test_twice_the_load_still_serves_what_the_devices_can(make_simulation, policy):
    assert attainment_at(make_simulation, policy, 2.0) >= 0.45


def test_a_single_worker_is_saturated(make_simulation, policy):
    plan = single([StageSketch(1, 10.0)])
    source = Source(0, "m", 200 * MS)
    result = make_simulation(policy, plan).run(camera(source, 200, itertools.count(), until_ns=4 * S))
    assert result.totals.in_time >= 0.97 * 4 * 100
    assert result.busy_ns["p/0/0"] >= 0.97 * 4 * S


def test_batches_grow_with_the_load_and_carry_more_than_single_frames_could(make_simulation, policy):
    plan = single([StageSketch(1, 1.0, base_ms=9.0)], batch=8)
    source = Source(0, "m", 150 * MS)
    simulation = make_simulation(policy, plan, keep_rows=True)
    result = simulation.run(camera(source, 300, itertools.count(), until_ns=3 * S))
    assert result.totals.attainment >= 0.99  # batches of one would carry 100 fps
    assert max(len(row.frames) for row in result.stages) > 2


def test_e1_results_stay_young_when_compute_is_slower_than_the_camera(make_simulation, policy):
    """E1: 25 fps into a stage of 200 ms for 60 s: age below the SLO, queue bounded, drops counted."""
    plan = single([StageSketch(1, 200.0)], slo_ms=500)
    longest = 0

    simulation: Simulation = make_simulation(policy, plan, keep_rows=True, slots_per_stream=8)
    tell = simulation._tell

    def watched(event) -> None:
        nonlocal longest
        tell(event)
        longest = max(longest, len(simulation._open))

    simulation._tell = watched
    result = simulation.run(camera(Source(0, "m", 500 * MS), 25, itertools.count(), until_ns=60 * S))
    done = [row for row in result.frames if row.dropped is None]
    assert len(done) >= 0.95 * 60 * 5
    assert max(row.end_ns - row.capture_ns for row in done) <= 500 * MS
    assert longest <= 8
    assert result.totals.dropped_total == result.totals.ingested - len(done)


def test_e3_five_at_once_take_two_batches(make_simulation, policy):
    """E3: work-conserving: the first goes at once, the next batch takes all that waits."""
    plan = single([StageSketch(1, 2.0, base_ms=20.0)], batch=8)
    arrivals = [Source(0, "m", 300 * MS).frame(n, 0) for n in range(5)]
    result = make_simulation(policy, plan, keep_rows=True).run(arrivals)
    assert [len(row.frames) for row in result.stages] == [1, 4]


def test_e4_late_frames_cost_no_work(make_simulation, policy):
    """E4: a stage of 2 s, an SLO of 500 ms: nothing is run; every frame is rejected no later than its deadline."""
    arrivals = [Source(0, "m", 500 * MS).frame(n, n * 10 * MS) for n in range(10)]
    result = make_simulation(policy, single([StageSketch(1, 2000.0)], slo_ms=500), keep_rows=True).run(arrivals)
    assert result.stages == ()
    assert len(result.frames) == 10
    assert all(row.end_ns <= row.deadline_ns for row in result.frames)


def greedy_and_modest(until_ns: int):
    ids = itertools.count()
    streams = [camera(Source(0, "m", 250 * MS), 120, ids, until_ns=until_ns)]
    streams += [
        camera(Source(n, "m", 250 * MS), 5, ids, until_ns=3 * until_ns, phase_ns=n * 13 * MS) for n in range(1, 5)
    ]
    return merged(streams)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("stages", [[StageSketch(1, 16.0)], [StageSketch(1, 10.0), StageSketch(1, 16.0)]])
def test_e5_a_greedy_stream_does_not_take_its_neighbours_share(make_simulation, policy, batch, stages):
    """E5: 120 fps and four times 5 fps into 60 fps: the four get all they send, the greedy one the rest."""
    result = make_simulation(policy, single(stages, batch=batch), keep_rows=True).run(greedy_and_modest(4 * S))
    for stream in range(1, 5):
        assert result.streams[stream].attainment >= 0.95
    assert result.streams[0].in_time >= 0.55 * 4 * 40
    after = [row for row in result.frames if row.capture_ns > 5 * S]
    assert after
    assert all(row.in_time for row in after)  # the burst is forgotten


def test_without_fairness_they_would_lose_like_everyone(make_simulation):
    scheduling = SchedulerOptions(fair_shedding=False)
    result = make_simulation("ppipe", single([StageSketch(1, 16.0)]), scheduling).run(greedy_and_modest(4 * S))
    modest = [result.streams[stream].attainment for stream in range(1, 5)]
    assert min(modest) < 0.95


def test_e9_a_device_that_is_slower_makes_nothing_worse(make_simulation):
    """E9: a pool 20 times slower beside the other: nothing that was in time is late for it."""
    quick, slow = [StageSketch(1, 10.0)], [StageSketch(1, 200.0)]
    alone = activated([(pipeline("quick", "m", quick), quick)])
    both = activated([(pipeline("quick", "m", quick), quick), (pipeline("slow", "m", slow), slow)])

    def in_time(plan) -> int:
        arrivals = poisson(Source(0, "m", 150 * MS), 80, itertools.count(), seed=1, until_ns=5 * S)
        return make_simulation("ppipe", plan).run(arrivals).totals.in_time

    assert in_time(both) >= in_time(alone)
