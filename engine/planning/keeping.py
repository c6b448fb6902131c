"""Whether a plan that runs still serves demands that have changed, so that it need not be replaced. Pure.

A change of plan costs: workers start, load and warm up on cores that others use. A plan is kept while it serves all
demands with room to spare, even where another would be a little better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from framepool.engine.planning.plan import Demand, Pipeline, Plan


def kept_plan(plan: Plan, demands: Sequence[Demand], slo_margin: float, least_objective: float) -> Plan | None:
    """`plan` for `demands`: same pipelines, rates spread anew; None where it would serve less than
    `least_objective` times the demands, or a model that it does not know."""
    objective = served_times(plan.pipelines, demands, slo_margin)
    if not demands or objective < least_objective:
        return None
    wanted: dict[str, float] = defaultdict(float)
    for demand in demands:
        wanted[demand.model] += demand.rate_fps
    capacity: dict[str, float] = defaultdict(float)
    for pipeline in plan.pipelines:
        capacity[pipeline.model] += pipeline.capacity_fps
    if set(capacity) != set(wanted):
        return None
    pipelines = tuple(replace(p, rate_fps=wanted[p.model] * p.capacity_fps / capacity[p.model]) for p in plan.pipelines)
    return replace(plan, pipelines=pipelines, demands=tuple(demands), objective=objective)


def served_times(pipelines: Sequence[Pipeline], demands: Sequence[Demand], slo_margin: float) -> float:
    """The greatest z such that z times every demand fits the pipelines; 0.0 where one has none.

    A pipeline serves each SLO that its latency, and the time until a batch of its size has come together, fits into.
    Those for a short SLO serve every longer one, so it suffices that for each SLO all demands up to it fit the
    pipelines that meet it (Hall's condition on nested sets).
    """
    times = float("inf")
    for model in {demand.model for demand in demands}:
        mine = sorted((d for d in demands if d.model == model), key=lambda d: d.slo_ms)
        total_fps = sum(d.rate_fps for d in mine)
        rate_fps = 0.0
        for demand in mine:
            rate_fps += demand.rate_fps
            budget_us = demand.slo_ms * 1e3 * (1 - slo_margin)
            capacity_fps = sum(
                p.capacity_fps
                for p in pipelines
                if p.model == model and p.latency_us + (p.batch - 1) / total_fps * 1e6 <= budget_us
            )
            times = min(times, capacity_fps / rate_fps)
    return times
