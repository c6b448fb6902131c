"""Storms of random events, right and wrong ones: every frame ends once, and the books agree after each event."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framepool.engine.planning.plan import Plan
from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, WakeAt
from framepool.engine.scheduling.events import (
    DropReason,
    Event,
    Frame,
    FrameArrived,
    PlanActivated,
    RefusalReason,
    RoomWanted,
    ServiceClass,
    StageFailed,
    StageFinished,
    StageRefused,
    StreamRemoved,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.scheduling.options import FirstLook, SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.validation import validate_state
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline

MS = 1_000_000
LINKED = [StageSketch(2, 3.0, base_ms=2.0, out_ms=0.5, linked=True), StageSketch(1, 2.0, linked=True)]
WHOLE = [StageSketch(2, 7.0)]
OTHER = [StageSketch(1, 4.0)]
PLANS = (
    activated(
        [
            (pipeline("split", "m", LINKED, batch=3), LINKED),
            (pipeline("whole", "m", WHOLE, batch=2), WHOLE),
            (pipeline("other", "n", OTHER), OTHER),
        ]
    ),
    activated([(pipeline("split", "m", LINKED, batch=3), LINKED)]),
    activated([(pipeline("other", "n", OTHER), OTHER), (pipeline("whole", "m", WHOLE, batch=4), WHOLE)]),
    PlanActivated(Plan((), (), 1.0, 1.0, 0.0, 0.0), {}, {}),
)
WORKERS = sorted({worker for plan in PLANS for ids in plan.workers.values() for worker in ids})


class Storm:
    """Interprets steps (kind, choice, milliseconds) as events; keeps what was sent so that reports can be made up."""

    def __init__(self, policy: str, options: SchedulerOptions) -> None:
        self.scheduler = make_scheduler(policy, options)
        self.now_ns = 0
        self.next_frame = 0
        self.open: set[int] = set()
        self.ended: dict[int, DropReason | None] = {}
        self.sent: list[Dispatch] = []
        self.reported: set[tuple[int, int]] = set()
        self.trace: list[tuple[Event, tuple[Command, ...]]] = []

    def tell(self, event: Event) -> None:
        commands = self.scheduler.handle(event, self.now_ns)
        validate_state(self.scheduler)
        self.trace.append((event, tuple(commands)))
        for command in commands:
            if isinstance(command, Dispatch):
                assert set(command.frames) <= self.open
                assert len(set(command.frames)) == len(command.frames)
                self.sent.append(command)
            elif isinstance(command, (Complete, Drop)):
                assert command.frame_id in self.open, f"frame {command.frame_id} ended twice or never came"
                self.open.discard(command.frame_id)
                self.ended[command.frame_id] = command.reason if isinstance(command, Drop) else None
            else:
                assert isinstance(command, WakeAt)

    def step(self, kind: int, choice: int, wait_ms: int) -> None:
        self.now_ns += wait_ms * MS
        if kind < 6:
            self.arrive(choice)
        elif kind < 12 and self.sent:
            self.report(choice, kind)
        elif kind == 12:
            self.tell(WorkerLost(WORKERS[choice % len(WORKERS)]))
        elif kind < 15:
            self.tell(WorkerUp(WORKERS[choice % len(WORKERS)]))
        elif kind == 15:
            self.tell(StreamRemoved(choice % 4))
        elif kind == 16:
            self.tell(RoomWanted(choice % 4))
        elif kind == 17:
            self.tell(PLANS[choice % len(PLANS)])
        else:
            self.tell(Tick())

    def arrive(self, choice: int) -> None:
        self.next_frame += 1
        service = ServiceClass.OFFLINE if choice % 7 == 0 else ServiceClass.LIVE
        model = "nmm"[choice % 3]
        deadline_ns = self.now_ns + (choice % 60 - 2) * MS
        self.open.add(self.next_frame)
        self.tell(FrameArrived(Frame(self.next_frame, choice % 4, model, self.now_ns, deadline_ns, service)))

    def report(self, choice: int, kind: int) -> None:
        """About any batch ever sent and any of its hops: in order, out of order, twice, long after it was lost."""
        dispatch = self.sent[-1 - choice % min(len(self.sent), 6)]
        hop = dispatch.hops[choice // 7 % len(dispatch.hops)]
        if kind == 11 and choice % 3 == 0:
            self.tell(StageRefused(dispatch.batch_id, hop.stage, hop.worker_id, RefusalReason.TOO_LATE))
        elif kind == 11 and choice % 3 == 1:
            self.tell(StageFailed(dispatch.batch_id, hop.stage, hop.worker_id, "failed"))
        else:
            failed = dispatch.frames[:1] if choice % 5 == 0 else ()
            start_ns = max(0, self.now_ns - choice % 9 * MS)
            self.tell(StageFinished(dispatch.batch_id, hop.stage, hop.worker_id, start_ns, self.now_ns, failed))

    def calm(self) -> None:
        """Every worker comes back and does what it is told: then all that is open must end."""
        self.tell(PLANS[0])
        for worker_id in WORKERS:
            self.tell(WorkerLost(worker_id))
            self.tell(WorkerUp(worker_id))
        done = 0
        for _ in range(100_000):
            if not self.open:
                break
            self.now_ns += MS
            if done < len(self.sent):
                dispatch = self.sent[done]
                done += 1
                for hop in dispatch.hops:
                    self.tell(StageFinished(dispatch.batch_id, hop.stage, hop.worker_id, self.now_ns, self.now_ns))
            else:
                self.tell(Tick())
        assert not self.open
        ledger = self.scheduler.state.ledger
        assert ledger.ingested == ledger.completed + ledger.dropped_total == self.next_frame == len(self.ended)
        assert self.scheduler.state.batches == {}


STEPS = st.lists(st.tuples(st.integers(0, 18), st.integers(0, 10_000), st.integers(0, 12)), max_size=120)
OPTIONS = st.builds(
    SchedulerOptions,
    publish_reserve_ns=st.sampled_from([0, 2 * MS]),
    commit_ahead_ns=st.sampled_from([None, 0, 3 * MS]),
    hold_to_fill=st.booleans(),
    first_look=st.sampled_from(FirstLook),
    fair_shedding=st.booleans(),
    max_waiting_per_model=st.sampled_from([2, 1024]),
    max_inflight_per_pipeline=st.sampled_from([1, 256]),
    max_attempts=st.sampled_from([1, 5]),
    offline_courtesy_ns=st.sampled_from([0, 1000 * MS]),
    service_learning=st.sampled_from([0.0, 0.3]),
    report_timeout_ns=st.sampled_from([20 * MS, 30_000 * MS]),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, options=OPTIONS, up=st.booleans())
def test_every_frame_ends_once_in_any_storm(policy, steps, options, up):
    storm = Storm(policy, options)
    storm.tell(PLANS[0])
    for worker_id in WORKERS if up else ():
        storm.tell(WorkerUp(worker_id))
    for step in steps:
        storm.step(*step)
    storm.calm()


@pytest.mark.parametrize("seed", range(40))
def test_long_storms_in_which_some_kinds_of_event_prevail(policy, seed):
    rng = random.Random(seed)
    options = SchedulerOptions(
        commit_ahead_ns=rng.choice([None, 0, 3 * MS]),
        hold_to_fill=rng.random() < 0.5,
        first_look=rng.choice(list(FirstLook)),
        report_timeout_ns=rng.choice([20 * MS, 30_000 * MS]),
    )
    storm = Storm(policy, options)
    storm.tell(PLANS[0])
    for worker_id in WORKERS:
        storm.tell(WorkerUp(worker_id))
    weights = [rng.random() + 0.05 for _ in range(19)]
    for _ in range(300):
        storm.step(rng.choices(range(19), weights)[0], rng.randrange(10_000), rng.choice([0, 0, 1, 2, 5, 12]))
    storm.calm()


@pytest.mark.parametrize("first", [PLANS[0], PLANS[3]])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_same_events_give_the_same_commands(policy, first, steps):
    traces = []
    for _ in range(2):
        storm = Storm(policy, SchedulerOptions())
        storm.tell(first)
        for worker_id in WORKERS:
            storm.tell(WorkerUp(worker_id))
        for step in steps:
            storm.step(*step)
        traces.append(storm.trace)
    assert traces[0] == traces[1]
