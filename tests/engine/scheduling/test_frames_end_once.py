"""Event in, commands out: each frame ends exactly once, whatever is reported, lost, refused or repeated."""

from __future__ import annotations

import pytest

from framepool.engine.scheduling.commands import Complete, Dispatch, Drop
from framepool.engine.scheduling.events import (
    DropReason,
    Frame,
    FrameArrived,
    RefusalReason,
    RoomWanted,
    StageFailed,
    StageFinished,
    StageRefused,
    StreamRemoved,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.simulation.handmade import StageSketch, single

MS = 1_000_000
ONE = single([StageSketch(1, 10.0)])
TWO_STAGES = single([StageSketch(1, 10.0), StageSketch(1, 20.0)])
TWO_WORKERS = single([StageSketch(2, 10.0)])


def only_dispatch(commands: list) -> Dispatch:
    (dispatch,) = [command for command in commands if isinstance(command, Dispatch)]
    return dispatch


def test_a_frame_is_sent_run_and_completed(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(ONE)
    dispatch = only_dispatch(desk.arrive(1, 5))
    (hop,) = dispatch.hops
    assert (dispatch.frames, dispatch.pipeline_id) == ((1,), "p")
    assert (hop.stage, hop.worker_id, hop.earliest_ns, hop.start_ns, hop.end_ns) == (
        0,
        "p/0/0",
        5 * MS,
        5 * MS,
        15 * MS,
    )
    assert hop.latest_ns == 95 * MS  # 105 ms deadline less 10 ms of work
    assert desk.finish(dispatch) == [Complete(1, True)]


@pytest.mark.parametrize(("end_ms", "in_time"), [(100.0, True), (100.001, False)])
def test_in_time_means_published_no_later_than_the_deadline(make_desk, policy, end_ms, in_time):
    desk = make_desk(policy)
    desk.activate(ONE)
    dispatch = only_dispatch(desk.arrive(1, 0, slo_ms=100))
    assert desk.finish(dispatch, end_ms) == [Complete(1, in_time)]


def test_repeated_and_unknown_events_change_nothing(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(ONE)
    dispatch = only_dispatch(desk.arrive(1, 0))
    assert desk.tell(FrameArrived(Frame(1, 0, "m", 0, 100 * MS)), 1) == []
    for stranger in (
        StageFinished(999, 0, "p/0/0", 0, 1),
        StageFinished(dispatch.batch_id, 0, "nobody", 0, 1),
        StageFinished(dispatch.batch_id, 7, "p/0/0", 0, 1),
        StageRefused(999, 0, "nobody", RefusalReason.TOO_LATE),
        StageFailed(999, 3, "p/0/0", "?"),
        WorkerLost("nobody"),
        WorkerUp("p/0/0"),
        StreamRemoved(77),
        RoomWanted(77),
        Tick(),
    ):
        assert desk.tell(stranger, 2) == []
    assert desk.finish(dispatch) == [Complete(1, True)]
    assert desk.finish(dispatch) == []


def test_reports_in_the_wrong_order_complete_once(make_desk):
    desk = make_desk()
    desk.activate(TWO_STAGES)
    dispatch = only_dispatch(desk.arrive(1, 0))
    assert desk.finish(dispatch, hop=1) == [Complete(1, True)]
    assert desk.finish(dispatch, 30.1, hop=0) == []


def test_an_unknown_model_is_infeasible_at_once_but_offline_frames_wait_for_a_plan(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(ONE)
    assert desk.arrive(1, 0, model="other") == [Drop(1, DropReason.INFEASIBLE)]
    assert desk.arrive(2, 0, model="other", offline=True) == []
    told = desk.activate(single([StageSketch(1, 10.0)], model="other"), 1)
    assert only_dispatch(told).frames == (2,)


def test_a_failed_batch_drops_its_frames_and_frees_the_worker(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(ONE)
    dispatch = only_dispatch(desk.arrive(1, 0))
    desk.arrive(2, 1)
    told = desk.tell(StageFailed(dispatch.batch_id, 0, "p/0/0", "bad tensor"), 4)
    assert told[0] == Drop(1, DropReason.ERROR)
    assert only_dispatch(told).frames == (2,)
    assert desk.finish(dispatch, 10) == []


def test_failed_frames_of_a_batch_end_as_errors_and_the_others_complete(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 10.0)], batch=2))
    first = only_dispatch(desk.arrive(1, 0))
    desk.arrive(2, 1)
    desk.arrive(3, 2)
    second = only_dispatch(desk.finish(first))
    assert second.frames == (2, 3)
    told = desk.tell(StageFinished(second.batch_id, 0, "p/0/0", 10 * MS, 30 * MS, failed_frames=(2, 999)), 30)
    assert told == [Drop(2, DropReason.ERROR), Complete(3, True)]


class TestWorkerLost:
    def test_its_frames_go_to_another_worker_while_their_deadline_allows(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(TWO_WORKERS)
        dispatch = only_dispatch(desk.arrive(1, 0))
        again = only_dispatch(desk.tell(WorkerLost(dispatch.hops[0].worker_id), 5))
        assert again.frames == (1,)
        assert again.hops[0].worker_id != dispatch.hops[0].worker_id
        assert desk.finish(dispatch, 10) == []  # a late report of the lost batch
        assert desk.finish(again) == [Complete(1, True)]

    def test_else_they_end_as_worker_lost(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(TWO_WORKERS)
        dispatch = only_dispatch(desk.arrive(1, 0, slo_ms=12))
        assert desk.tell(WorkerLost(dispatch.hops[0].worker_id), 5) == [Drop(1, DropReason.WORKER_LOST)]

    def test_with_no_worker_left_frames_wait_for_its_return(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(ONE)
        desk.arrive(1, 0)
        assert desk.tell(WorkerLost("p/0/0"), 5) == []
        assert desk.arrive(2, 20) == []
        told = desk.tell(WorkerUp("p/0/0"), 60)
        assert only_dispatch(told).frames == (1,)

    def test_and_are_dropped_when_even_its_return_could_not_save_them(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(ONE)
        desk.arrive(1, 0, slo_ms=100)
        desk.tell(WorkerLost("p/0/0"), 5)
        desk.arrive(2, 20, slo_ms=100)
        assert desk.wake_ms == pytest.approx(90.0, abs=1e-5)
        assert desk.tell(Tick(), 89) == []
        assert desk.tell(Tick(), desk.wake_ms) == [Drop(1, DropReason.WORKER_LOST)]
        assert desk.wake_ms == pytest.approx(110.0, abs=1e-5)
        assert desk.tell(Tick(), desk.wake_ms) == [Drop(2, DropReason.STALE)]

    def test_a_batch_that_still_needs_the_lost_worker_is_lost_at_once(self, make_desk):
        desk = make_desk()
        desk.activate(single([StageSketch(1, 10.0), StageSketch(2, 20.0)]))
        dispatch = only_dispatch(desk.arrive(1, 0))
        told = desk.tell(WorkerLost(dispatch.hops[1].worker_id), 3)
        assert told == []  # the first stage still runs the batch that nobody wants
        again = only_dispatch(desk.finish(dispatch))
        assert again.frames == (1,)
        assert again.hops[0].start_ns == 10 * MS
        assert again.hops[1].worker_id != dispatch.hops[1].worker_id

    def test_a_stage_that_is_done_needs_its_worker_no_more(self, make_desk):
        desk = make_desk()
        desk.activate(TWO_STAGES)
        dispatch = only_dispatch(desk.arrive(1, 0))
        assert desk.finish(dispatch, hop=0) == []
        assert desk.tell(WorkerLost("p/0/0"), 11) == []
        assert desk.finish(dispatch, hop=1) == [Complete(1, True)]

    def test_a_frame_that_keeps_killing_workers_is_given_up(self, make_desk, policy):
        desk = make_desk(policy, max_attempts=3)
        desk.activate(ONE)
        desk.arrive(1, 0, offline=True)
        for at_ms in (1, 3):
            assert desk.tell(WorkerLost("p/0/0"), at_ms) == []
            assert only_dispatch(desk.tell(WorkerUp("p/0/0"), at_ms + 1)).frames == (1,)
        assert desk.tell(WorkerLost("p/0/0"), 5) == [Drop(1, DropReason.ERROR)]


class TestRefused:
    def test_a_refused_batch_is_sent_again_while_the_deadline_allows(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(ONE)
        dispatch = only_dispatch(desk.arrive(1, 0))
        again = only_dispatch(desk.tell(StageRefused(dispatch.batch_id, 0, "p/0/0", RefusalReason.NO_INPUT), 50))
        assert again.frames == (1,)

    @pytest.mark.parametrize(("at_ms", "reason"), [(95, DropReason.INFEASIBLE), (101, DropReason.STALE)])
    def test_else_dropped(self, make_desk, policy, at_ms, reason):
        desk = make_desk(policy)
        desk.activate(ONE)
        dispatch = only_dispatch(desk.arrive(1, 0, slo_ms=100))
        told = desk.tell(StageRefused(dispatch.batch_id, 0, "p/0/0", RefusalReason.TOO_LATE), at_ms)
        assert told == [Drop(1, reason)]

    def test_an_offline_batch_goes_back_to_the_front(self, make_desk, policy):
        desk = make_desk(policy)
        desk.activate(ONE)
        dispatch = only_dispatch(desk.arrive(1, 0, offline=True))
        desk.arrive(2, 1, offline=True)
        again = only_dispatch(desk.tell(StageRefused(dispatch.batch_id, 0, "p/0/0", RefusalReason.NO_INPUT), 5000))
        assert again.frames == (1,)


def test_e8_a_removed_stream_ends_everywhere_at_once(make_desk, policy):
    """E8: frames waiting and in flight are dropped once; what comes in later is ignored; others are not touched."""
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 10.0)], batch=2))
    first = only_dispatch(desk.arrive(1, 0, stream=7))
    desk.arrive(2, 1, stream=7)
    desk.arrive(3, 2, stream=8)
    desk.arrive(4, 3, stream=7)
    told = desk.tell(StreamRemoved(7), 4)
    assert {command.frame_id for command in told if isinstance(command, Drop)} == {1, 2, 4}
    assert all(desk.ended[frame_id] is DropReason.STREAM_REMOVED for frame_id in (1, 2, 4))
    for _ in range(8):
        for dispatch in [d for d in desk.sent.values() if d.batch_id >= first.batch_id]:
            for hop in range(len(dispatch.hops)):
                desk.finish(dispatch, hop=hop)
    assert desk.ended[3] is True
    assert desk.scheduler.state.ledger.entries == {}
    assert desk.tell(StreamRemoved(7), 100) == []


def test_room_wanted_takes_the_oldest_waiting_live_frame(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(ONE)
    desk.arrive(1, 0, stream=1)
    assert desk.tell(RoomWanted(1), 1) == []  # in flight is not waiting
    desk.arrive(2, 2, stream=1)
    desk.arrive(3, 3, stream=2)
    desk.arrive(4, 4, stream=1)
    assert desk.tell(RoomWanted(1), 5) == [Drop(2, DropReason.OVERLOAD)]
    desk.arrive(5, 6, stream=3, offline=True)
    assert desk.tell(RoomWanted(3), 7) == []


def test_a_batch_that_is_never_reported_counts_as_lost(make_desk, policy):
    desk = make_desk(policy, report_timeout_ns=1000 * MS)
    desk.activate(ONE)
    desk.arrive(1, 0, slo_ms=100)
    assert desk.wake_ms == 1010.0
    assert desk.tell(Tick(), 1010) == [Drop(1, DropReason.WORKER_LOST)]


def test_the_waiting_queue_is_bounded(make_desk, policy):
    desk = make_desk(policy, max_waiting_per_model=3, fair_shedding=False)
    desk.activate(ONE)
    for frame_id in range(1, 6):
        desk.arrive(frame_id, frame_id * 0.1, slo_ms=1000)
    assert desk.ended == {2: DropReason.OVERLOAD}
    assert desk.scheduler.state.lanes["m"].counts.total == 3
