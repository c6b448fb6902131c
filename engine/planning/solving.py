"""Solves for a plan: checks the question, enumerates, searches, settles, and puts the answer together. Pure.

Deterministic: the same question gets the same answer, and a template keeps its pipeline id from plan to plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from framepool.engine.planning.allotting import MOST_CELLS, allot
from framepool.engine.planning.assembly import pipelines_of
from framepool.engine.planning.errors import PlanInfeasibleError, PlanningError
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.planning.program import ModelWants, Program, Sharing
from framepool.engine.planning.queueing import Queueing
from framepool.engine.planning.search import SearchLimits, SearchResult, class_prices, maximise, settle, settling_price
from framepool.engine.planning.spare import with_spare
from framepool.engine.planning.templates import (
    TemplateSet,
    enumerate_templates,
    fastest_us,
)
from framepool.models.profile import ModelProfile

_POOL_SHARES = frozenset({1, 2, 3, 4})
"""Shares that always pack into whole devices when their sum allows it; see `placement`."""


def solve(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
    expected_fps: Mapping[str, float] | None = None,
    queueing: Queueing | None = None,
) -> Plan:
    """The plan of greatest z (up to `options.enough`), best latency among equals.

    `profiles` is keyed by model name. `expected_fps` overrides the rates at which batches are taken to build. With
    `queueing` only capacity that can be used counts; objective and bound of the plan are then those of z times what can
    be used, its rates and capacities whole as ever. With no demands the plan is empty and its objective infinite.
    Raises PlanInfeasibleError when some demand's SLO can't be met by any pipeline, however little load there is; a
    plan of z < 1 is returned, not raised.
    """
    began = time.perf_counter()
    merged = _checked(profiles, inventory, demands, options)
    if not merged:
        return Plan(pipelines=(), demands=(), objective=math.inf, bound=math.inf, gap=0.0, solve_s=0.0)
    if expected_fps is None:
        expected_fps = expected_rates(profiles, inventory, merged, options)
    sets = _template_sets(profiles, inventory, merged, options, expected_fps)
    program = whole = _program(sets, merged, (), inventory, options)
    if queueing is not None:
        program = _program([_usable(s, queueing) for s in sets], merged, (), inventory, options)
    limits = SearchLimits(gap=options.gap, time_limit_s=options.time_limit_s, z_cap=options.enough)
    found = _best_chains(program) if options.chains else maximise(program, limits)
    if found is None:
        raise PlanningError(
            f"no plan for {len(merged)} demands was found in time_limit_s = {options.time_limit_s:g} s; raise it"
        )
    if options.tie_break and not options.chains:
        found = settle(program, found, limits)
    if options.use_spare and not options.chains:
        counts = with_spare(program, found.counts, settling_price(program))
        z = program.objective(counts)
        found = SearchResult(counts, z, max(found.bound, z))
    pipelines = pipelines_of(profiles, inventory, whole, sets, found)
    return Plan(
        pipelines=pipelines,
        demands=tuple(merged),
        objective=found.objective,
        bound=found.bound,
        gap=(found.bound - found.objective) / found.objective if found.objective > 0 else math.inf,
        solve_s=time.perf_counter() - began,
        prices={c.name: price for c, price in zip(inventory.classes, class_prices(program), strict=True) if price},
    )


def _usable(templates: TemplateSet, queueing: Queueing) -> TemplateSet:
    """The same templates with rates that can be used."""
    return replace(templates, rate_fps=templates.rate_fps * queueing.share(templates)[:, None])


def _best_chains(program: Program) -> SearchResult:
    counts = allot(program, chains=True)
    if counts is None:
        raise PlanningError(
            f"plans of one chain a model are found for one SLO a model and up to {MOST_CELLS} combinations of devices",
            field="policy",
        )
    z = program.objective(counts)
    return SearchResult(counts, z, z)


def most_fps(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    existing: Sequence[Demand],
    wanted: Demand,
    options: PlannerOptions,
) -> float:
    """The greatest rate of `wanted`, up to what it asks, beside `existing` demands served in full; 0: none.

    Batches are taken to build at the rates that all demands, `wanted` as asked, would get without partition.
    """
    every = _checked(profiles, inventory, [*existing, wanted], options)
    expected_fps = expected_rates(profiles, inventory, every, options)
    sets = _template_sets(profiles, inventory, every, options, expected_fps)
    program = _program(sets, [wanted], existing, inventory, options)
    limits = SearchLimits(gap=options.gap, time_limit_s=options.time_limit_s, z_cap=1.0)
    found = maximise(program, limits)
    return 0.0 if found is None else max(0.0, min(found.objective, 1.0)) * wanted.rate_fps


def expected_rates(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
) -> dict[str, float]:
    """Rate (per second) of each demanded model in the no-partition plan without batch building; batches build at it.

    Where no single device meets some SLO, the plan with partition takes its place. Empty without `batch_building`.
    """
    if not options.batch_building or options.max_batch == 1:
        return {}
    whole = replace(options.templates(), min_stages=1, max_stages=1, sequences=None, keep_faster=False)
    for template_options in (whole, replace(options.templates(), keep_faster=False)):
        sets = [
            enumerate_templates(profiles[model], inventory, _slos_us(demands, model), template_options)
            for model in _models(demands)
        ]
        if all(len(s) and s.tightest.min() == 0 for s in sets):
            break
    else:
        return {}
    program = _program(sets, demands, (), inventory, options)
    found = maximise(program, SearchLimits(gap=options.gap, time_limit_s=options.time_limit_s))
    if found is None or found.objective <= 0:
        return {}
    capacity = program.capacity(found.counts)
    rates = {}
    for m, wants in enumerate(program.wants):
        mine = slice(int(program.first_template[m]), int(program.first_template[m + 1]))
        rates[wants.templates.model] = float(capacity[mine].sum()) * wants.total_fps
    return {model: rate for model, rate in rates.items() if rate > 0}


def _checked(
    profiles: Mapping[str, ModelProfile], inventory: Inventory, demands: Sequence[Demand], options: PlannerOptions
) -> list[Demand]:
    """The demands, one per (model, SLO), ordered by model and SLO."""
    merged: dict[tuple[str, float], float] = {}
    for demand in demands:
        if demand.model not in profiles:
            raise PlanningError(
                f"model {demand.model!r} has no profile; profiled are: {', '.join(sorted(profiles)) or 'none'}",
                field="model",
            )
        for name, value in (("rate_fps", demand.rate_fps), ("slo_ms", demand.slo_ms)):
            if not (math.isfinite(value) and value > 0):
                raise PlanningError(f"{name} of model {demand.model!r} is {value:g}; it must be above 0", field=name)
        key = (demand.model, demand.slo_ms)
        merged[key] = merged.get(key, 0.0) + demand.rate_fps
    if options.sharing is Sharing.POOL:
        for device_class in inventory.classes:
            if odd := set(device_class.shares) - _POOL_SHARES:
                raise PlanningError(
                    f"class {device_class.name!r} allows share 1/{max(odd)}; sharing by pool packs shares down to 1/4"
                    " only: leave it out or share by device",
                    field="shares",
                )
    return [Demand(model, slo_ms, rate) for (model, slo_ms), rate in sorted(merged.items())]


def _models(demands: Sequence[Demand]) -> list[str]:
    return sorted({d.model for d in demands})


def _slos_us(demands: Sequence[Demand], model: str) -> list[float]:
    return sorted({d.slo_ms * 1e3 for d in demands if d.model == model})


def _template_sets(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
    expected_fps: Mapping[str, float],
) -> list[TemplateSet]:
    """One set per demanded model; raises PlanInfeasibleError naming every demand that none of its templates meets."""
    template_options = options.templates()
    sets = []
    failed: dict[Demand, float | None] = {}
    for model in _models(demands):
        slos_us = _slos_us(demands, model)
        rate = expected_fps.get(model) if options.batch_building else None
        found = enumerate_templates(profiles[model], inventory, slos_us, template_options, rate)
        sets.append(found)
        reached = int(found.tightest.min(initial=len(slos_us)))
        for demand in demands:
            if demand.model == model and demand.slo_ms * 1e3 < [*slos_us, math.inf][reached]:
                failed[demand] = fastest_slo_ms(profiles[model], inventory, options)
    if failed:
        lines = []
        for demand, fastest in failed.items():
            cure = (
                "it is profiled on no device at hand" if fastest is None else f"the fastest possible is {fastest:g} ms"
            )
            lines.append(f"{demand.model!r} within {demand.slo_ms:g} ms: {cure}")
        margin = f"with {options.slo_margin:.0%} of the SLO kept free"
        raise PlanInfeasibleError(f"no pipeline meets the SLO ({margin}) of " + "; ".join(lines), fastest_slo_ms=failed)
    return sets


def fastest_slo_ms(profile: ModelProfile, inventory: Inventory, options: PlannerOptions) -> float | None:
    """The smallest SLO (in steps of 0.1 ms) that some pipeline meets at batch 1, margin included; None: no profile."""
    need_us = fastest_us(profile, inventory, options.templates())
    if need_us is None or options.slo_margin >= 1:
        return None
    slo_ms = math.ceil(need_us / (1 - options.slo_margin) / 100) / 10
    while need_us > slo_ms * 1e3 - round(options.slo_margin * slo_ms * 1e3):  # the margin is rounded
        slo_ms = round(slo_ms + 0.1, 1)
    return slo_ms


def _program(
    sets: Sequence[TemplateSet],
    demands: Sequence[Demand],
    fixed: Sequence[Demand],
    inventory: Inventory,
    options: PlannerOptions,
) -> Program:
    """The program for `demands` (served z times) and `fixed` ones (served once)."""
    wants = []
    for templates in sets:
        weight = np.zeros(len(templates.slos_us))
        floor = np.zeros(len(templates.slos_us))
        for rates, group in ((weight, demands), (floor, fixed)):
            for d in group:
                if d.model == templates.model:
                    rates[templates.slos_us.index(d.slo_ms * 1e3)] += d.rate_fps
        wants.append(ModelWants(templates, tuple(weight.tolist()), tuple(floor.tolist())))
    counts = [c.count for c in inventory.classes]
    return Program(wants, counts, options.sharing, options.restrict_sequences)
