"""The checker must see every kind of broken plan: a sound one is spoilt in one place at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framepool.engine.planning.checker import check_placement, check_plan
from framepool.engine.planning.placement import place
from framepool.engine.planning.plan import Demand, PlacedPlan, Plan, WorkerPlace
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve


@pytest.fixture
def case(make_profile, make_inventory):
    profiles = {"m": make_profile("m", {"a": [3000, 5000], "b": [6000, 9000]}, shares=(1, 2), seed=1)}
    inventory = make_inventory({"a": 2, "b": 2}, shares=(1, 2), link_gbps=1.0)
    options = PlannerOptions(min_stages=2, distinct_classes=True, batch_building=False)
    return profiles, inventory, solve(profiles, inventory, [Demand("m", 100, 20)], options)


def _problems(case, plan: Plan) -> str:
    profiles, inventory, _ = case
    return "; ".join(check_plan(plan, profiles, inventory, slo_margin=0.1, sharing=Sharing.DEVICE).problems)


def _with_stage(plan: Plan, **changes: object) -> Plan:
    first, *rest = plan.pipelines
    stage, *stages = first.stages
    return replace(plan, pipelines=(replace(first, stages=(replace(stage, **changes), *stages)), *rest))  # type: ignore[arg-type]


def test_a_sound_plan_passes(case) -> None:
    assert _problems(case, case[2]) == ""


def test_spoilt_plans_are_seen(case) -> None:
    plan = case[2]
    first, *rest = plan.pipelines

    def with_first(**changes: object) -> Plan:
        return replace(plan, pipelines=(replace(first, **changes), *rest))  # type: ignore[arg-type]

    assert "needs" in _problems(case, with_first(slo_ms=1.0))
    assert "latency" in _problems(case, with_first(latency_us=first.latency_us + 1))
    assert "capacity" in _problems(case, with_first(capacity_fps=first.capacity_fps * 1.01))
    assert "above its capacity" in _problems(case, with_first(rate_fps=first.capacity_fps * 2))
    assert "fps served" in _problems(case, with_first(rate_fps=first.rate_fps / 2))
    assert "objective" in _problems(case, replace(plan, objective=plan.objective * 1.001))
    assert "below the objective" in _problems(case, replace(plan, bound=plan.objective / 2))
    assert "occurs twice" in _problems(case, replace(plan, pipelines=(first, first)))
    assert "devices of 2" in _problems(case, _with_stage(plan, devices=9))
    assert "does not continue" in _problems(case, _with_stage(plan, last_block=2))
    assert "is not split" in _problems(case, _with_stage(plan, share=3))
    assert "link times" in _problems(case, _with_stage(plan, out_us=0.0))


def test_spoilt_placements_are_seen(case) -> None:
    _, inventory, plan = case
    placed = place(plan, inventory)
    assert check_placement(placed, inventory, Sharing.DEVICE) == ()
    worker, *others = placed.workers

    def problems(*workers: WorkerPlace) -> str:
        return "; ".join(check_placement(PlacedPlan(plan, workers), inventory, Sharing.DEVICE))

    assert f"workers instead of {plan.pipelines[0].stages[0].devices}" in problems(*others)
    assert "on one virtual device" in problems(worker, worker, *others)
    assert "of another class" in problems(replace(worker, device=others[-1].device), *others[:-1])
    assert "that the plan lacks" in problems(replace(worker, stage_index=7), *others)
