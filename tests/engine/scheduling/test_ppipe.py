"""Policy ppipe: batches, windows, routes and drops, as a table of events and commands."""

from __future__ import annotations

import pytest

from framepool.engine.scheduling.commands import Dispatch, Drop
from framepool.engine.scheduling.events import DropReason, Tick
from framepool.engine.scheduling.options import FirstLook
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline, single

MS = 1_000_000


def dispatches(commands: list) -> list[Dispatch]:
    return [command for command in commands if isinstance(command, Dispatch)]


def test_e3_an_idle_worker_takes_what_waits_and_the_next_batch_what_came_meanwhile(make_desk):
    """E3: five requests at once on one worker: work-conserving, and no batch of one while others wait."""
    desk = make_desk()
    desk.activate(single([StageSketch(1, 2.0, base_ms=8.0)], batch=8))
    (first,) = dispatches(desk.arrive(1, 0))
    for frame_id in (2, 3, 4, 5):
        assert desk.arrive(frame_id, 0) == []
    told = desk.finish(first)
    (second,) = dispatches(told)
    assert second.frames == (2, 3, 4, 5)
    assert second.hops[0].end_ns == 26 * MS


def test_a_batch_never_grows_over_the_planned_one(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 1.0, base_ms=9.0)], batch=4))
    (first,) = dispatches(desk.arrive(1, 0))
    for frame_id in range(2, 9):
        desk.arrive(frame_id, 1)
    assert [len(d.frames) for d in dispatches(desk.finish(first))] == [4]


def test_frames_of_unlike_slo_are_served_by_deadline(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 10.0)]))
    (first,) = dispatches(desk.arrive(1, 0))
    desk.arrive(2, 1, slo_ms=500, stream=1)
    desk.arrive(3, 2, slo_ms=50, stream=2)
    assert [d.frames for d in dispatches(desk.finish(first))] == [(3,)]


def test_the_batch_shrinks_to_what_the_heads_deadline_allows(make_desk):
    desk = make_desk(first_look=FirstLook.OFF)
    desk.activate(single([StageSketch(1, 10.0)], batch=4))
    (first,) = dispatches(desk.arrive(1, 0))
    for frame_id in (2, 3, 4, 5):
        desk.arrive(frame_id, 0, slo_ms=35)
    (second,) = dispatches(desk.finish(first))
    assert second.frames == (2, 3)  # 10 + 20 ms <= 35 ms < 10 + 30 ms


class TestFirstLook:
    @pytest.mark.parametrize(
        ("first_look", "waiting", "dropped"),
        [
            (FirstLook.PUBLISHED, 1, True),
            (FirstLook.PRESSED, 1, False),
            (FirstLook.PRESSED, 4, True),
            (FirstLook.OFF, 4, False),
        ],
    )
    def test_a_head_that_a_full_batch_could_not_serve(self, make_desk, first_look, waiting, dropped):
        desk = make_desk(first_look=first_look)
        desk.activate(single([StageSketch(1, 10.0)], batch=4))
        desk.arrive(0, 0)
        for frame_id in range(2, waiting + 1):
            desk.arrive(frame_id, 0.5, slo_ms=1000)
        told = desk.arrive(1, 1, slo_ms=35)  # one or two would fit behind the first, four would not
        assert (Drop(1, DropReason.INFEASIBLE) in told) is dropped

    def test_nearly_full_is_full(self, make_desk):
        desk = make_desk(first_look=FirstLook.PUBLISHED, full_batch_fraction=0.5)
        desk.activate(single([StageSketch(1, 10.0)], batch=4))
        assert dispatches(desk.arrive(1, 0, slo_ms=25))  # two of four do


class TestHoldToFill:
    def test_waits_to_the_last_moment_at_which_one_more_would_fit(self, make_desk):
        desk = make_desk(hold_to_fill=True, commit_ahead_ns=None)
        desk.activate(single([StageSketch(1, 10.0)], batch=4))
        assert desk.arrive(1, 0, slo_ms=100) == []
        assert desk.wake_ms == 80.0
        assert desk.arrive(2, 5, slo_ms=100) == []
        assert desk.wake_ms == 70.0
        assert desk.tell(Tick(), 69) == []  # early: a third may still come
        assert desk.wake_ms == 70.0
        assert [d.frames for d in dispatches(desk.tell(Tick(), 70))] == [(1, 2)]

    def test_sends_when_that_moment_has_come(self, make_desk):
        desk = make_desk(hold_to_fill=True, commit_ahead_ns=None)
        desk.activate(single([StageSketch(1, 10.0)], batch=4))
        desk.arrive(1, 0, slo_ms=100)
        (dispatch,) = dispatches(desk.tell(Tick(), 80))
        assert dispatch.frames == (1,)

    def test_sends_a_full_batch_at_once_and_reserves_behind_it(self, make_desk):
        desk = make_desk(hold_to_fill=True, commit_ahead_ns=None)
        desk.activate(single([StageSketch(1, 10.0)], batch=2))
        desk.arrive(1, 0, slo_ms=100)
        (first,) = dispatches(desk.arrive(2, 1, slo_ms=100))
        desk.arrive(3, 2, slo_ms=100)
        (second,) = dispatches(desk.arrive(4, 3, slo_ms=100))
        assert second.hops[0].start_ns == first.hops[0].end_ns == 21 * MS


class TestCommitAhead:
    def test_sends_shortly_before_the_worker_is_free(self, make_desk):
        desk = make_desk(commit_ahead_ns=2 * MS)
        desk.activate(single([StageSketch(1, 10.0)]))
        desk.arrive(1, 0)
        assert desk.arrive(2, 1) == []
        assert desk.wake_ms == 8.0
        (dispatch,) = dispatches(desk.tell(Tick(), 8))
        assert dispatch.hops[0].start_ns == 10 * MS
        assert dispatch.hops[0].earliest_ns == 8 * MS  # starts sooner if the worker is done sooner

    def test_holds_the_first_stage_back_when_the_second_is_the_bottleneck(self, make_desk):
        desk = make_desk(commit_ahead_ns=0)
        desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 30.0)]))
        (first,) = dispatches(desk.arrive(1, 0, slo_ms=1000))
        assert desk.arrive(2, 0, slo_ms=1000) == []
        assert desk.finish(first, hop=0) == []
        assert desk.wake_ms == 30.0
        (second,) = dispatches(desk.tell(Tick(), 30))
        assert [hop.start_ns for hop in second.hops] == [30 * MS, 40 * MS]


class TestRoutes:
    def test_two_stages_overlap(self, make_desk):
        desk = make_desk(commit_ahead_ns=None)
        desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        (second,) = dispatches(desk.arrive(2, 0))
        assert [(hop.start_ns // MS, hop.end_ns // MS) for hop in first.hops] == [(0, 10), (10, 20)]
        assert [(hop.start_ns // MS, hop.end_ns // MS) for hop in second.hops] == [(10, 20), (20, 30)]

    def test_each_hops_latest_start_leaves_time_for_the_rest(self, make_desk):
        desk = make_desk(publish_reserve_ns=5 * MS, start_slack_ns=3 * MS)
        desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 20.0)]))
        (dispatch,) = dispatches(desk.arrive(1, 0, slo_ms=100))
        assert [hop.latest_ns // MS for hop in dispatch.hops] == [100 + 3 - 30, 100 + 3 - 20]

    def test_a_transfer_occupies_the_links_and_delays_the_next_stage(self, make_desk):
        stages = [StageSketch(1, 10.0, out_ms=4.0, linked=True), StageSketch(2, 10.0, linked=True)]
        desk = make_desk(commit_ahead_ns=None)
        desk.activate(single(stages))
        (first,) = dispatches(desk.arrive(1, 0))
        assert first.hops[1].start_ns == 14 * MS
        (second,) = dispatches(desk.arrive(2, 0))
        assert second.hops[1].start_ns == 24 * MS
        assert second.hops[1].worker_id != first.hops[1].worker_id

    def test_the_pipeline_with_the_least_queueing_is_taken(self, make_desk):
        quick, slow = [StageSketch(1, 10.0)], [StageSketch(1, 30.0)]
        plan = activated([(pipeline("quick", "m", quick), quick), (pipeline("slow", "m", slow), slow)])
        desk = make_desk(commit_ahead_ns=None)
        desk.activate(plan)
        sent = [dispatches(desk.arrive(frame_id, 0))[0].pipeline_id for frame_id in (1, 2, 3)]
        assert sent == ["quick", "slow", "quick"]

    def test_a_frame_too_urgent_for_it_takes_another(self, make_desk):
        quick, slow = [StageSketch(1, 10.0)], [StageSketch(1, 30.0)]
        plan = activated([(pipeline("quick", "m", quick), quick), (pipeline("slow", "m", slow), slow)])
        desk = make_desk(commit_ahead_ns=None, first_look=FirstLook.OFF)
        desk.activate(plan)
        desk.arrive(1, 0)
        (dispatch,) = dispatches(desk.arrive(2, 0, slo_ms=25))
        assert dispatch.pipeline_id == "quick"

    def test_a_stalled_worker_is_not_chosen_for_being_free_by_now(self, make_desk):
        desk = make_desk()
        desk.activate(single([StageSketch(2, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        (second,) = dispatches(desk.arrive(2, 5))
        desk.finish(second)
        (third,) = dispatches(desk.arrive(3, 40))
        assert third.hops[0].worker_id == second.hops[0].worker_id != first.hops[0].worker_id


class TestPrediction:
    def test_a_late_report_moves_what_is_behind_it(self, make_desk):
        desk = make_desk(commit_ahead_ns=None)
        desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        desk.arrive(2, 0)
        desk.finish(first, 16, hop=0)
        (third,) = dispatches(desk.arrive(3, 16))
        assert [hop.start_ns // MS for hop in third.hops] == [26, 36]

    def test_an_early_report_frees_the_worker(self, make_desk):
        desk = make_desk()
        desk.activate(single([StageSketch(1, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        desk.arrive(2, 1)
        (second,) = dispatches(desk.finish(first, 4))
        assert second.hops[0].start_ns == 4 * MS

    def test_measured_latencies_are_learned(self, make_desk):
        desk = make_desk(service_learning=0.5)
        desk.activate(single([StageSketch(1, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        desk.finish(first, 20)
        (second,) = dispatches(desk.arrive(2, 20))
        assert second.hops[0].end_ns - second.hops[0].start_ns == 15 * MS

    def test_learning_never_locks_an_idle_pipeline_out(self, make_desk):
        desk = make_desk(service_learning=1.0)
        desk.activate(single([StageSketch(1, 10.0)]))
        (first,) = dispatches(desk.arrive(1, 0))
        desk.finish(first, 40)
        assert dispatches(desk.arrive(2, 50, slo_ms=30))


def test_e4_a_hopeless_frame_is_rejected_at_once_and_never_run(make_desk):
    """E4: a stage of 2 s and an SLO of 500 ms: ten frames, none executed, each rejected before its deadline."""
    desk = make_desk()
    desk.activate(single([StageSketch(1, 2000.0)], slo_ms=500))
    for frame_id in range(10):
        assert desk.arrive(frame_id, frame_id, slo_ms=500) == [Drop(frame_id, DropReason.INFEASIBLE)]
    assert desk.sent == {}
