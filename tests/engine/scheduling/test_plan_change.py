"""A new plan takes over: waiting frames are routed anew, batches in flight finish where they are."""

from __future__ import annotations

import pytest

from framepool.engine.planning.plan import Plan
from framepool.engine.scheduling.commands import Complete, Dispatch, Drop
from framepool.engine.scheduling.events import DropReason, PlanActivated, WorkerLost, WorkerUp
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline, single

EMPTY = PlanActivated(Plan((), (), 1.0, 1.0, 0.0, 0.0), {}, {})


def dispatches(commands: list) -> list[Dispatch]:
    return [command for command in commands if isinstance(command, Dispatch)]


def other_plan() -> PlanActivated:
    stages = [StageSketch(1, 5.0)]
    return activated([(pipeline("q", "m", stages), stages)])


def test_waiting_frames_take_the_new_plan_and_flying_batches_finish(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    (old,) = dispatches(desk.arrive(1, 0))
    desk.arrive(2, 1)
    desk.tell(WorkerUp("q/0/0"), 2)  # up before the plan that lists it
    (new,) = dispatches(desk.tell(other_plan(), 3))
    assert (new.frames, new.pipeline_id) == ((2,), "q")
    assert desk.finish(new) == [Complete(2, True)]
    assert desk.finish(old) == [Complete(1, True)]
    assert dispatches(desk.arrive(3, 20))[0].pipeline_id == "q"


def test_a_frame_lost_on_the_old_plan_is_saved_on_the_new(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    desk.arrive(1, 0)
    desk.activate(other_plan(), 1)
    (again,) = dispatches(desk.tell(WorkerLost("p/0/0"), 2))
    assert (again.frames, again.pipeline_id) == ((1,), "q")


def test_live_frames_of_a_model_that_left_the_plan_are_infeasible(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    (flying,) = dispatches(desk.arrive(1, 0))
    desk.arrive(2, 1)
    desk.arrive(3, 1, offline=True)
    assert desk.tell(EMPTY, 2) == [Drop(2, DropReason.INFEASIBLE)]
    assert desk.finish(flying) == [Complete(1, True)]
    assert set(desk.scheduler.state.ledger.entries) == {3}


def test_workers_keep_what_they_do_across_plans(make_desk, policy):
    desk = make_desk(policy)
    plan = single([StageSketch(1, 10.0)])
    desk.activate(plan)
    (first,) = dispatches(desk.arrive(1, 0))
    desk.tell(plan, 2)
    assert dispatches(desk.arrive(2, 3)) == []  # still busy with the first
    assert dispatches(desk.finish(first))[0].frames == (2,)


def test_frames_half_way_go_on_where_the_pipeline_stays(make_desk):
    desk = make_desk("reactive")
    plan = single([StageSketch(1, 10.0), StageSketch(1, 10.0)])
    desk.activate(plan)
    (first,) = dispatches(desk.arrive(1, 0))
    (ahead,) = dispatches(desk.finish(first))
    (second,) = dispatches(desk.arrive(2, 10))
    assert desk.finish(second, 15) == []  # waits for the second stage
    assert desk.tell(plan, 16) == []
    (going_on,) = dispatches(desk.finish(ahead))
    assert (going_on.frames, going_on.hops[0].stage) == ((2,), 1)


def test_and_start_over_where_it_does_not(make_desk):
    desk = make_desk("reactive")
    desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 10.0)]))
    (first,) = dispatches(desk.arrive(1, 0))
    desk.activate(other_plan(), 5)
    (again,) = dispatches(desk.finish(first))
    assert (again.frames, again.pipeline_id, again.hops[0].stage) == ((1,), "q", 0)


def test_a_worker_listed_twice_is_a_bug_and_changes_nothing(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 10.0)]))
    twice = PlanActivated(other_plan().plan, {("q", 0): ("x", "x")}, {})
    with pytest.raises(ValueError, match="listed twice"):
        desk.tell(twice, 1)
    assert dispatches(desk.arrive(1, 2))[0].pipeline_id == "p"


def test_lost_workers_that_no_plan_lists_are_forgotten(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    desk.activate(other_plan(), 1)
    desk.tell(WorkerLost("p/0/0"), 2)
    assert set(desk.scheduler.state.workers) == {"q/0/0"}
