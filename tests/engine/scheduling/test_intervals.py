"""Interval reservations: nothing is ever reserved twice, gaps are used, and what is predicted comes true."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.scheduling.calendars import Calendar, common_gap
from framepool.engine.scheduling.commands import Dispatch, Hop
from framepool.engine.scheduling.events import PlanActivated, StageFinished
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.validation import validate_state
from framepool.engine.simulation.arrivals import Source, merged, poisson
from framepool.engine.simulation.driver import Simulation
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline

MS = 1_000_000
S = 1_000_000_000


class TestCalendar:
    @given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=30), st.integers(0, 100))
    def test_a_gap_is_free_and_no_earlier_one_is(self, wanted, now_ns) -> None:
        calendar = Calendar()
        taken: list[tuple[int, int]] = []
        for from_ns, length_ns in wanted:
            at_ns = calendar.first_gap(from_ns, length_ns)
            free = [
                start for start in range(from_ns, 1000)
                if all(start + length_ns <= a or start >= b for a, b in taken)
            ]  # fmt: skip
            assert at_ns == free[0]
            calendar.take(at_ns, at_ns + length_ns, 0)
            taken.append((at_ns, at_ns + length_ns))
        calendar.take(10_000, 10_001, now_ns)  # what has passed is forgotten, what has not is kept
        assert set(calendar.taken) - {(10_000, 10_001)} >= {(a, b) for a, b in taken if b > now_ns}

    def test_both_ends_must_be_free(self) -> None:
        up, down = Calendar(), Calendar()
        up.take(0, 10, 0)
        down.take(12, 20, 0)
        assert common_gap(up, down, 0, 2) == 10
        assert common_gap(up, down, 0, 3) == 20
        assert common_gap(None, down, 0, 12) == 0
        assert common_gap(up, None, 5, 1) == 10
        assert common_gap(None, None, 7, 100) == 7


def two_routes(
    quick: int, slow: int, last: int, out_ms: float, batch: int, shared: bool
) -> tuple[PlanActivated, float]:
    """A two-stage pipeline over links that several workers share, a slow one beside it; and their capacity."""
    first = [StageSketch(quick, 4.0, 2.0, out_ms, linked=True), StageSketch(last, 3.0, 1.0, linked=True)]
    second = [StageSketch(slow, 11.0, 3.0)]
    third = [StageSketch(1, 2.0, 1.0, 2 * out_ms, linked=True), StageSketch(1, 5.0, 1.0, linked=True)]
    made = [
        (pipeline("p", "m", first, batch=batch), first),
        (pipeline("q", "m", second, batch=batch), second),
        (pipeline("r", "m", third), third),
    ]
    plan = activated(made)
    if shared:  # all first stages behind one link, all last ones behind another
        links = {worker: f"server{worker.split('/')[1]}" for worker in plan.links}
        plan = PlanActivated(plan.plan, plan.workers, links)
    return plan, sum(p.capacity_fps for p, _ in made)


@settings(max_examples=40)
@given(
    quick=st.integers(1, 4),
    slow=st.integers(1, 3),
    last=st.integers(1, 4),
    out_ms=st.sampled_from([0.2, 1.0, 3.0]),
    batch=st.integers(1, 3),
    shared=st.booleans(),
    load=st.floats(0.3, 1.3),
    slo_ms=st.sampled_from([25, 60, 150]),
    ahead=st.booleans(),
    seed=st.integers(0, 99),
)
def test_nothing_is_reserved_twice_and_every_prediction_comes_true(
    quick, slow, last, out_ms, batch, shared, load, slo_ms, ahead, seed
) -> None:
    plan, capacity_fps = two_routes(quick, slow, last, out_ms, batch, shared)
    options = SchedulerOptions.published() if ahead else SchedulerOptions.late()
    scheduler = make_scheduler("framepool", options)
    moved_ns = {(p.id, s.index): round(s.in_us * 1000) if s.index else 0 for p in plan.plan.pipelines for s in p.stages}
    hops: dict[tuple[int, int], Hop] = {}
    busy: dict[str, list[tuple[int, int]]] = {}

    def observe(now_ns, event, commands) -> None:
        validate_state(scheduler)
        if isinstance(event, StageFinished):
            hop = hops.pop((event.batch_id, event.stage))
            assert (event.start_ns, event.end_ns) == (hop.start_ns, hop.end_ns)
        for command in commands:
            if not isinstance(command, Dispatch):
                continue
            before = None
            for hop in command.hops:
                hops[command.batch_id, hop.stage] = hop
                busy.setdefault(hop.worker_id, []).append((hop.start_ns, hop.end_ns))
                length_ns = moved_ns[command.pipeline_id, hop.stage] * len(command.frames)
                if before is not None and plan.links[before] != plan.links[hop.worker_id]:
                    for end in (f"up {plan.links[before]}", f"down {plan.links[hop.worker_id]}"):
                        busy.setdefault(end, []).append((hop.input_ns - length_ns, hop.input_ns))
                before = hop.worker_id

    simulation = Simulation(scheduler, plan, observe=observe)
    ids = itertools.count()
    streams = [
        poisson(Source(n, "m", slo_ms * MS), load * capacity_fps / 2, ids, seed=seed, until_ns=S // 2) for n in (0, 1)
    ]
    totals = simulation.run(merged(streams)).totals
    assert not hops, "a batch that was sent was never reported"
    assert totals.completed == totals.in_time, "a batch that was sent was late"
    assert totals.ingested == totals.ended
    for of, intervals in busy.items():
        for (_, end_ns), (start_ns, _) in itertools.pairwise(sorted(intervals)):
            assert end_ns <= start_ns, f"{of} is reserved twice"


def test_a_batch_goes_through_a_gap_that_horizons_do_not_see() -> None:
    """The long first stage reserves the link far ahead; the short pipeline's transfer fits before."""
    long = [StageSketch(1, 50.0, out_ms=1.0, linked=True), StageSketch(1, 1.0, linked=True)]
    short = [StageSketch(1, 5.0, out_ms=1.0, linked=True), StageSketch(1, 1.0, linked=True)]
    plan = activated([(pipeline("long", "m", long), long), (pipeline("short", "k", short), short)])
    links = {worker: f"server{worker.split('/')[1]}" for worker in plan.links}
    plan = PlanActivated(plan.plan, plan.workers, links)
    ends = {}
    for policy in ("ppipe", "framepool"):
        arrivals = merged([iter([Source(0, "m", 200 * MS).frame(1, 0)]), iter([Source(1, "k", 40 * MS).frame(2, MS)])])
        result = Simulation(make_scheduler(policy, SchedulerOptions.published()), plan).run(arrivals)
        ends[policy] = result.totals.in_time
    assert ends == {"ppipe": 1, "framepool": 2}


@pytest.mark.parametrize(
    ("prices", "taken"), [({"fast": 9.0, "slow": 1.0}, "slow"), ({"fast": 1.0, "slow": 9.0}, "fast")]
)
def test_of_idle_routes_the_cheapest_is_taken(prices, taken) -> None:
    fast, slow = [StageSketch(1, 10.0, device_class="fast")], [StageSketch(1, 10.0, device_class="slow")]
    plan = activated([(pipeline("fast", "m", fast), fast), (pipeline("slow", "m", slow), slow)])
    plan.plan.prices.update(prices)
    sent: list[str] = []
    simulation = Simulation(
        make_scheduler("framepool"),
        plan,
        observe=lambda _, __, commands: sent.extend(c.pipeline_id for c in commands if isinstance(c, Dispatch)),
    )
    simulation.run(iter([Source(0, "m", 100 * MS).frame(n, n * 30 * MS) for n in range(5)]))
    assert sent == [taken] * 5
