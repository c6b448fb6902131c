"""Policy reactive: pools that batch on their own, one hop at a time."""

from __future__ import annotations

from framepool.engine.scheduling.commands import Complete, Dispatch, Drop
from framepool.engine.scheduling.events import DropReason, Tick, WorkerLost
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline, single

MS = 1_000_000


def dispatches(commands: list) -> list[Dispatch]:
    return [command for command in commands if isinstance(command, Dispatch)]


def test_a_frame_goes_stage_by_stage(make_desk):
    desk = make_desk("reactive")
    desk.activate(single([StageSketch(1, 10.0), StageSketch(1, 20.0)]))
    (first,) = dispatches(desk.arrive(1, 0))
    assert [hop.stage for hop in first.hops] == [0]
    (second,) = dispatches(desk.finish(first))
    assert [(hop.stage, hop.worker_id) for hop in second.hops] == [(1, "p/1/0")]
    assert desk.finish(second) == [Complete(1, True)]


def test_a_later_stage_mixes_frames_of_several_earlier_batches(make_desk):
    desk = make_desk("reactive")
    desk.activate(single([StageSketch(2, 10.0), StageSketch(1, 12.0, base_ms=8.0)], batch=4))
    (first,) = dispatches(desk.arrive(1, 0, slo_ms=500))
    (second,) = dispatches(desk.arrive(2, 1, slo_ms=500))
    desk.arrive(3, 2, slo_ms=500)
    told = desk.finish(first)
    (busy,) = [d for d in dispatches(told) if d.hops[0].stage == 1]
    (third,) = [d for d in dispatches(told) if d.hops[0].stage == 0]
    assert dispatches(desk.finish(second)) == []
    assert dispatches(desk.finish(third)) == []
    (mixed,) = dispatches(desk.finish(busy))
    assert (mixed.frames, mixed.hops[0].stage) == ((2, 3), 1)


def test_heads_that_cannot_make_it_are_dropped_and_the_rest_served(make_desk):
    desk = make_desk("reactive")
    desk.activate(single([StageSketch(1, 10.0)]))
    (first,) = dispatches(desk.arrive(1, 0))
    desk.arrive(2, 0, slo_ms=15)
    desk.arrive(3, 0, slo_ms=60)
    assert desk.wake_ms == 5.000001
    assert desk.tell(Tick(), desk.wake_ms) == [Drop(2, DropReason.INFEASIBLE)]
    assert dispatches(desk.finish(first))[0].frames == (3,)


def test_frames_are_dealt_out_in_proportion_to_planned_rates(make_desk):
    big, small = [StageSketch(60, 10.0)], [StageSketch(30, 10.0)]
    plan = activated(
        [(pipeline("big", "m", big, rate_fps=200), big), (pipeline("small", "m", small, rate_fps=100), small)]
    )
    desk = make_desk("reactive")
    desk.activate(plan)
    sent = [dispatches(desk.arrive(frame_id, 0))[0].pipeline_id for frame_id in range(9)]
    assert sent.count("big") == 6
    assert sent[:3].count("small") == 1  # smoothly, not in runs


def test_a_pipeline_too_slow_for_the_slo_gets_none(make_desk):
    quick, slow = [StageSketch(1, 10.0)], [StageSketch(1, 90.0)]
    plan = activated([(pipeline("quick", "m", quick), quick), (pipeline("slow", "m", slow), slow)])
    desk = make_desk("reactive")
    desk.activate(plan)
    sent = [d.pipeline_id for frame_id in range(4) for d in dispatches(desk.arrive(frame_id, frame_id * 20, slo_ms=50))]
    assert set(sent) == {"quick"}


def test_waiting_frames_of_a_pipeline_that_lost_its_pool_go_to_another(make_desk):
    one, two = [StageSketch(1, 10.0)], [StageSketch(1, 10.0)]
    plan = activated([(pipeline("one", "m", one), one), (pipeline("two", "m", two), two)])
    desk = make_desk("reactive")
    desk.activate(plan)
    sent = [d for frame_id in range(4) for d in dispatches(desk.arrive(frame_id, 0))]
    assert sorted(d.pipeline_id for d in sent) == ["one", "two"]
    desk.tell(WorkerLost("one/0/0"), 1)
    alive = next(d for d in sent if d.pipeline_id == "two")
    for _ in range(4):
        alive = next(iter(dispatches(desk.finish(alive))), alive)
    assert [desk.ended[frame_id] for frame_id in range(4)] == [True] * 4


def test_the_batch_shrinks_to_what_its_head_allows(make_desk):
    desk = make_desk("reactive")
    desk.activate(single([StageSketch(1, 10.0)], batch=4))
    (first,) = dispatches(desk.arrive(1, 0))
    for frame_id in (2, 3, 4, 5):
        desk.arrive(frame_id, 0, slo_ms=35)
    assert dispatches(desk.finish(first))[0].frames == (2, 3)
