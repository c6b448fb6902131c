"""No worker stays booked for what never comes, and no frame waits for an event that may never come."""

from __future__ import annotations

import pytest

from framepool.engine.scheduling.commands import Complete, Dispatch, Drop
from framepool.engine.scheduling.events import (
    DropReason,
    RefusalReason,
    RoomWanted,
    StageFailed,
    StageFinished,
    StageRefused,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline, single

MS = 1_000_000
FOUR_STAGES = single([StageSketch(1, 10.0) for _ in range(4)])


def only_dispatch(commands: list) -> Dispatch:
    (dispatch,) = [command for command in commands if isinstance(command, Dispatch)]
    return dispatch


def booked(desk) -> set[str]:
    return {worker.id for worker in desk.scheduler.state.workers.values() if worker.bookings}


class TestAbandonedBatch:
    """Its last worker died while the first still runs it: the stages between are booked until it can't reach them."""

    @pytest.fixture
    def desk(self, make_desk):
        desk = make_desk(report_timeout_ns=1000 * MS)
        desk.activate(FOUR_STAGES)
        desk.arrive(1, 0, slo_ms=100)
        assert desk.tell(WorkerLost("p/3/0"), 1) == []
        assert booked(desk) == {"p/0/0", "p/1/0", "p/2/0"}
        return desk

    def test_is_run_to_where_it_was_lost(self, desk):
        dispatch = desk.sent[1]
        desk.finish(dispatch, 12, hop=0)
        assert booked(desk) == {"p/1/0", "p/2/0"}
        assert desk.scheduler.state.workers["p/1/0"].busy_ns == 22 * MS  # it comes 2 ms late there too
        desk.finish(dispatch, 22, hop=1)
        desk.finish(dispatch, 32, hop=2)
        assert booked(desk) == set()
        assert desk.finish(dispatch, 42, hop=3) == []

    @pytest.mark.parametrize(
        "event",
        [
            StageRefused(1, 0, "p/0/0", RefusalReason.NO_INPUT),
            StageFailed(1, 0, "p/0/0", "bad tensor"),
            WorkerLost("p/0/0"),
        ],
    )
    def test_frees_the_later_stages_when_the_first_does_not_run_it(self, desk, event):
        desk.tell(event, 5)
        assert booked(desk) == set()
        assert desk.scheduler.state.abandoned == {}

    def test_frees_them_when_a_middle_one_does_not_run_it(self, desk):
        desk.finish(desk.sent[1], hop=0)
        desk.tell(StageRefused(1, 1, "p/1/0", RefusalReason.TOO_LATE), 12)
        assert booked(desk) == set()

    def test_frees_them_when_nobody_reports(self, desk):
        while desk.scheduler.state.abandoned:
            desk.tell(Tick(), desk.wake_ms)
            assert desk.wake_ms <= 1040
        assert booked(desk) == set()
        assert desk.ended == {1: DropReason.WORKER_LOST}

    def test_its_frame_is_run_again_behind_it(self, desk):
        again = only_dispatch(desk.tell(WorkerUp("p/3/0"), 5) or desk.finish(desk.sent[1], hop=0))
        assert again.frames == (1,)
        assert again.hops[0].start_ns == 10 * MS
        desk.finish(desk.sent[1], hop=1)  # of the lost batch
        for hop in range(3):
            assert desk.finish(again, hop=hop) == []
        assert desk.finish(again, hop=3) == [Complete(1, True)]


def test_a_refusal_of_an_abandoned_batch_lets_the_next_frame_go(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 10.0), StageSketch(2, 10.0)]))
    dispatch = only_dispatch(desk.arrive(1, 0, offline=True))
    assert desk.tell(WorkerLost(dispatch.hops[1].worker_id), 1) == []
    told = desk.tell(StageRefused(dispatch.batch_id, 0, "p/0/0", RefusalReason.NO_INPUT), 2)
    assert only_dispatch(told).frames == (1,)


@pytest.mark.parametrize("ahead_ms", [0, 1, 10_000])
def test_a_report_from_a_clock_that_runs_ahead_holds_nothing_up(make_desk, policy, ahead_ms):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    dispatch = only_dispatch(desk.arrive(1, 0, offline=True))
    desk.arrive(2, 1, offline=True)
    report = StageFinished(dispatch.batch_id, 0, "p/0/0", ahead_ms * MS, (10 + ahead_ms) * MS)
    told = desk.tell(report, 10)
    assert only_dispatch(told).frames == (2,)
    assert only_dispatch(told).hops[0].start_ns == 10 * MS


def test_a_worker_that_a_plan_gave_to_another_model_serves_it_as_soon_as_it_is_free(make_desk, policy):
    stages = [StageSketch(1, 10.0)]
    before = single(stages, model="m")
    after = activated([(pipeline("p", "n", stages), stages)])  # the same worker, another model
    desk = make_desk(policy)
    desk.activate(before)
    dispatch = only_dispatch(desk.arrive(1, 0, model="m"))
    desk.activate(after, 1)
    assert desk.arrive(2, 2, model="n", offline=True) == []
    told = desk.finish(dispatch, 7)
    assert told[0] == Complete(1, True)
    assert only_dispatch(told).frames == (2,)


def test_a_live_frame_that_gives_way_lets_the_offline_one_behind_it_go(make_desk):
    desk = make_desk(hold_to_fill=True)
    desk.activate(single([StageSketch(1, 10.0)], batch=4))
    assert desk.arrive(1, 0, stream=1) == []  # waits for company
    assert desk.arrive(2, 1, stream=2, offline=True) == []
    told = desk.tell(RoomWanted(1), 2)
    assert told[0] == Drop(1, DropReason.OVERLOAD)
    assert only_dispatch(told).frames == (2,)


def test_beside_an_overdue_worker_the_reactive_policy_looks_again_when_the_other_is_nearly_free(make_desk):
    desk = make_desk("reactive", commit_ahead_ns=2 * MS)
    desk.activate(single([StageSketch(2, 10.0)]))
    desk.arrive(1, 0)
    desk.arrive(2, 6)
    assert desk.arrive(3, 12) == []  # the first worker should have reported at 10, the second will at 16
    assert desk.wake_ms == 14.0
    assert only_dispatch(desk.tell(Tick(), 14)).frames == (3,)


def test_a_frame_too_urgent_for_the_route_that_is_up_waits_for_the_other_only_while_there_is_hope(make_desk, policy):
    quick, slow = [StageSketch(1, 10.0)], [StageSketch(1, 50.0)]
    desk = make_desk(policy)
    desk.activate(activated([(pipeline("quick", "m", quick), quick), (pipeline("slow", "m", slow), slow)]))
    desk.tell(WorkerLost("quick/0/0"), 0)
    assert desk.arrive(1, 1, slo_ms=40) == []
    assert only_dispatch(desk.arrive(2, 2, slo_ms=100)).hops[0].worker_id == "slow/0/0"  # passes the urgent one
    assert desk.wake_ms == pytest.approx(31.0, abs=1e-5)  # ends at 41 at best, if the quick worker came back then
    assert desk.tell(Tick(), 30) == []
    assert desk.tell(Tick(), desk.wake_ms) == [
        Drop(1, DropReason.STALE if policy == "reactive" else DropReason.INFEASIBLE)
    ]
