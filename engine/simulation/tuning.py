"""Plans by what they will carry, not by what they could: queueing is foreseen, simulated, and foreseen better. Pure.

Theory of operation. A plan made with `Queueing` counts of each template only the capacity that chance arrivals let it
use within its slack. The foreseen share is a rule for simple queues; so the plan is simulated, model by model, the
ratio of what it carried to what was foreseen corrects the rule for that model, and the next plan is made with that:
devices move from models that use theirs well to those that don't, and templates with more slack come in where slack
was worth more. A few rounds of this, from a few rules (how much of the time left counts as time to wait), give plans
of which the best few are simulated again in full, and the best is kept. No share of the SLO is kept free beforehand;
what is, differs from template to template.

The load is the rate that all demands can have at once, each in proportion to its weight, with enough frames in time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.planning.planner import expected_rates, solve
from framepool.engine.planning.queueing import Queueing
from framepool.engine.simulation.loads import Trial
from framepool.models.profile import ModelProfile

SLACKS = (1.0, 0.7, 1.4)
"""Shares of the time left that are tried as time to wait. Above 1: the rule foresees too much loss."""
ROUNDS = 3
FINALISTS = 3
COARSE = 0.5
"""Rounds simulate so much of the time."""
GRID = 0.01
MOST = 2.0
"""Times what was foreseen: more is not looked for."""
CLOSE_ENOUGH = 5e-3
"""Gap of the rounds' plans: the rule is no more exact than that."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """A plan and what it carried on the search's seeds, by model; `load` is the least of them by weight. With `options`
    and `queueing`, `solve` makes the plan again."""

    plan: Plan
    carried_fps: Mapping[str, float]
    load: float
    tried: int
    options: PlannerOptions
    queueing: Queueing


def tuned(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
    how: Trial,
    *,
    gap_cv: float = 1.0,
    progress: Callable[[int], None] = lambda tried: None,
) -> Tuned:
    """The plan that carries most under `how`. `options.slo_margin` should be 0.

    Raises what `solve` raises, and ValueError where a model has more than one demand, or nothing is demanded.
    """
    if not demands:
        raise ValueError("there is nothing to plan for: no demands")
    if len({demand.model for demand in demands}) < len(demands):
        raise ValueError("a model with several SLOs can't be tuned; plan with a margin instead")
    options = replace(options, keep_faster=True, gap=max(options.gap, CLOSE_ENOUGH))
    coarse = replace(how, seconds=how.seconds * COARSE)
    first_fps = expected_rates(profiles, inventory, demands, options)
    found: dict[tuple[object, ...], tuple[Plan, dict[str, float], Queueing]] = {}
    known: dict[object, float] = {}

    def carried(plan: Plan, demand: Demand, foreseen_fps: float) -> float:
        key = (demand, plan.of_model(demand.model))
        if key not in known:
            known[key] = foreseen_fps * coarse.largest_factor(
                plan, inventory, demand, foreseen_fps, grid=GRID, most=MOST, guess=1.0
            )
        return known[key]

    for slack in SLACKS:
        usable = dict.fromkeys((d.model for d in demands), 1.0)
        rates = {d.model: first_fps.get(d.model, d.rate_fps) for d in demands}
        for _ in range(ROUNDS):
            queueing = Queueing(rates, gap_cv=gap_cv, slack=slack, reserve=how.reserve, usable=usable)
            plan = solve(profiles, inventory, demands, options, queueing=queueing)
            got = {d.model: carried(plan, d, plan.objective * d.rate_fps) for d in demands}
            found.setdefault(plan.pipelines, (plan, got, queueing))
            progress(len(found))
            usable = {
                d.model: usable[d.model] * max(got[d.model], 1e-3) / (plan.objective * d.rate_fps) for d in demands
            }
            rates = {model: max(rate, 1e-3) for model, rate in got.items()}

    def score(got: Mapping[str, float]) -> tuple[float, float]:
        shares = [got[d.model] / d.rate_fps for d in demands]
        return min(shares), statistics.fmean(shares)

    finals: list[tuple[tuple[float, float], Tuned]] = []
    for plan, roughly, queueing in sorted(found.values(), key=lambda f: score(f[1]), reverse=True)[:FINALISTS]:
        got = {}
        for d in demands:
            unit = roughly[d.model] or plan.objective * d.rate_fps
            got[d.model] = unit * how.largest_factor(plan, inventory, d, unit, grid=GRID / 2, most=MOST, guess=1.0)
        finals.append((score(got), Tuned(plan, got, score(got)[0], len(found), options, queueing)))
    return max(finals, key=lambda final: final[0])[1]
