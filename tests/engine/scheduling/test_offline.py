"""The offline class fills what live streams leave, and loses nothing."""

from __future__ import annotations

from framepool.engine.scheduling.commands import Complete, Dispatch
from framepool.engine.scheduling.events import PlanActivated, WorkerLost, WorkerUp
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.simulation.handmade import StageSketch, single

MS = 1_000_000


def dispatches(commands: list) -> list[Dispatch]:
    return [command for command in commands if isinstance(command, Dispatch)]


def test_idle_workers_take_offline_frames_with_no_latest_start(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)], batch=4))
    (dispatch,) = dispatches(desk.arrive(1, 0, offline=True, slo_ms=0))
    assert dispatch.hops[0].latest_ns == FAR_FUTURE_NS
    for frame_id in range(2, 8):
        assert desk.arrive(frame_id, 1, offline=True) == []
    told = desk.finish(dispatch, 5000)
    assert told[0] == Complete(1, True)
    assert dispatches(told)[0].frames == (2, 3, 4, 5)


def test_live_frames_go_first(make_desk, policy):
    desk = make_desk(policy)
    desk.activate(single([StageSketch(1, 10.0)]))
    (first,) = dispatches(desk.arrive(1, 0))
    desk.arrive(2, 1, offline=True, stream=5)
    desk.arrive(3, 2)
    (second,) = dispatches(desk.finish(first))
    assert second.frames == (3,)
    assert dispatches(desk.finish(second))[0].frames == (2,)


def test_offline_batches_stay_small_while_live_frames_come(make_desk, policy):
    desk = make_desk(policy, offline_courtesy_ns=500 * MS)
    desk.activate(single([StageSketch(1, 10.0)], batch=4))
    (live,) = dispatches(desk.arrive(1, 0))
    for frame_id in range(2, 12):
        desk.arrive(frame_id, 1, offline=True, stream=5)
    (small,) = dispatches(desk.finish(live))
    assert len(small.frames) == 1
    (big,) = dispatches(desk.finish(small, 600))
    assert len(big.frames) == 4


def test_a_route_with_a_busy_stage_is_left_alone(make_desk):
    desk = make_desk()
    desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 30.0)]))
    (first,) = dispatches(desk.arrive(1, 0, offline=True))
    desk.arrive(2, 1, offline=True)
    assert desk.finish(first, hop=0) == []
    assert dispatches(desk.finish(first, hop=1))[0].frames == (2,)


def test_nothing_is_lost_with_a_worker_or_a_plan(make_desk, policy):
    desk = make_desk(policy)
    plan = single([StageSketch(1, 10.0)])
    desk.activate(plan)
    desk.arrive(1, 0, offline=True)
    desk.arrive(2, 1, offline=True)
    desk.tell(WorkerLost("p/0/0"), 5)
    empty = PlanActivated(single([StageSketch(1, 1.0)], model="other").plan, {}, {})
    assert desk.tell(empty, 6) == []
    desk.tell(plan, 7)
    (dispatch,) = dispatches(desk.tell(WorkerUp("p/0/0"), 8))
    assert dispatch.frames == (1,)
    assert desk.ended == {}
