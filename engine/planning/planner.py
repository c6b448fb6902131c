"""The planner's door: profiles, devices and demands in, a `Plan` or a best offer out.

Pure and deterministic: the same question gets the same answer, and a template keeps its pipeline id from plan to plan.
Enumerates with `templates`, solves with `search`; who sits on which device is `placement`'s part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.errors import PlanInfeasibleError, PlanningError
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.planning.program import ModelWants, Program, Sharing
from framepool.engine.planning.search import SearchLimits, SearchResult, maximise, settle
from framepool.engine.planning.templates import (
    TemplateOptions,
    TemplateSet,
    enumerate_templates,
    fastest_us,
    transfer_us,
)
from framepool.models.profile import ModelProfile

_POOL_SHARES = frozenset({1, 2, 3, 4})
"""Shares that always pack into whole devices when their sum allows it; see `placement`."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """How to plan. The defaults are those of the live engine on the devices at hand.

    `slo_margin` is the share of each SLO kept free for what no profile knows (jitter, decoding, publishing).
    `max_stages` 1 means no partition; `min_stages` 2 with `distinct_classes` asks for pipelines across unlike classes;
    `sequences` allows only these sequences of class names. `restrict_sequences` is PPipe's restriction to one template
    per class sequence of a model. `batch_building` charges a batch with the time until it is built, at the rate that
    the model gets without partition. `enough`: capacity for more than this many times the demand is not looked
    for; beyond it, latency counts (math.inf: throughput only). `tie_break` False returns any plan of best z.
    """

    slo_margin: float = 0.1
    max_stages: int = 2
    min_stages: int = 1
    sharing: Sharing = Sharing.DEVICE
    restrict_sequences: bool = False
    batch_building: bool = True
    max_batch: int = 16
    sequences: tuple[tuple[str, ...], ...] | None = None
    distinct_classes: bool = False
    enough: float = 2.0
    tie_break: bool = True
    time_limit_s: float = 5.0
    gap: float = 1e-4

    def templates(self) -> TemplateOptions:
        return TemplateOptions(
            slo_margin=self.slo_margin,
            min_stages=self.min_stages,
            max_stages=self.max_stages,
            max_batch=self.max_batch,
            sequences=self.sequences,
            distinct_classes=self.distinct_classes,
            keep_faster=self.tie_break,
            any_share=self.sharing is Sharing.POOL,
        )


def solve(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions = PlannerOptions(),  # noqa: B008 (frozen)
    expected_fps: Mapping[str, float] | None = None,
) -> Plan:
    """The plan of greatest z (up to `options.enough`), best latency among equals.

    `profiles` is keyed by model name. `expected_fps` overrides the rates at which batches are taken to build. With
    no demands the plan is empty and its objective infinite. Raises PlanInfeasibleError when some demand's SLO can't be
    met by any pipeline, however little load there is; a plan of z < 1 is returned, not raised.
    """
    began = time.perf_counter()
    merged = _checked(profiles, inventory, demands, options)
    if not merged:
        return Plan(pipelines=(), demands=(), objective=math.inf, bound=math.inf, gap=0.0, solve_s=0.0)
    if expected_fps is None:
        expected_fps = expected_rates(profiles, inventory, merged, options)
    sets = _template_sets(profiles, inventory, merged, options, expected_fps)
    program = _program(sets, merged, (), inventory, options)
    limits = SearchLimits(gap=options.gap, time_limit_s=options.time_limit_s, z_cap=options.enough)
    found = maximise(program, limits)
    if found is None:
        raise PlanningError(
            f"no plan was found within time_limit_s = {options.time_limit_s:g} for {len(merged)} demands; raise the limit"
        )
    if options.tie_break:
        found = settle(program, found, limits)
    pipelines = _pipelines(profiles, inventory, program, sets, found, merged)
    return Plan(
        pipelines=pipelines,
        demands=tuple(merged),
        objective=found.objective,
        bound=found.bound,
        gap=(found.bound - found.objective) / found.objective if found.objective > 0 else math.inf,
        solve_s=time.perf_counter() - began,
    )


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


def pipeline_id(model: str, batch: int, stages: Sequence[tuple[str, int, int, int]]) -> str:
    """Id of a template, the same in every plan; `stages` are (class, share, first block, last block).

    Reads like ``nanodet.b2.cpu-a@0-4.cpu-b:2@4-10``: blocks 0..3 on class cpu-a, 4..9 on halves of cpu-b, batch 2.
    """
    parts = [f"{name}{'' if share == 1 else f':{share}'}@{first}-{last}" for name, share, first, last in stages]
    return ".".join([model, f"b{batch}", *parts])


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
            if demand.model == model and demand.slo_ms * 1e3 < (slos_us + [math.inf])[reached]:
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


def _pipelines(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    program: Program,
    sets: Sequence[TemplateSet],
    found: SearchResult,
    demands: Sequence[Demand],
) -> tuple[Pipeline, ...]:
    capacity = program.capacity(found.counts)
    out = []
    for m, templates in enumerate(sets):
        first = int(program.first_template[m])
        profile = profiles[templates.model]
        total = program.wants[m].total_fps
        capacity_fps = capacity[first : first + len(templates)] * total
        weights = program.wants[m].weight_fps
        rate_fps = _spread(capacity_fps, templates.tightest, weights, min(found.objective, 1.0))
        for t in np.flatnonzero(capacity_fps > 0):
            entry = int(program.e_first[first + t])
            stages = tuple(
                _stage(profile, inventory, templates, int(t), k, int(found.counts[entry + k]))
                for k in range(int(templates.n_stages[t]))
            )
            key = [(s.device_class, s.share, s.first_block, s.last_block) for s in stages]
            out.append(
                Pipeline(
                    id=pipeline_id(templates.model, int(templates.batch[t]), key),
                    model=templates.model,
                    batch=int(templates.batch[t]),
                    stages=stages,
                    rate_fps=float(rate_fps[t]),
                    capacity_fps=float(capacity_fps[t]),
                    latency_us=float(templates.latency_us[t]),
                    slo_ms=templates.slos_us[int(templates.tightest[t])] / 1e3,
                )
            )
    return tuple(out)


def _stage(
    profile: ModelProfile, inventory: Inventory, templates: TemplateSet, t: int, k: int, count: int
) -> StagePlan:
    classes = [inventory.classes[int(g)] for g in templates.classes[t, : templates.n_stages[t]]]
    first, last = int(templates.first[t, k]), int(templates.last[t, k])
    share = int(templates.shares[t, k])
    block = profile.of(classes[k].name, share)
    if block is None:
        raise KeyError((classes[k].name, share))
    batch = int(templates.batch[t])
    ends = k == 0, k == len(classes) - 1
    return StagePlan(
        index=k,
        first_block=first,
        last_block=last,
        device_class=classes[k].name,
        share=share,
        devices=count,
        latency_us=tuple(block.stage_us(first, last, b) for b in range(1, batch + 1)),
        in_bytes=profile.edge_bytes[first],
        out_bytes=profile.edge_bytes[last],
        in_us=0.0 if ends[0] else transfer_us(classes[k - 1], classes[k], profile.edge_bytes[first]),
        out_us=0.0 if ends[1] else transfer_us(classes[k], classes[k + 1], profile.edge_bytes[last]),
    )


def _spread(
    capacity_fps: NDArray[np.float64], tightest: NDArray[np.int64], weights: Sequence[float], served: float
) -> NDArray[np.float64]:
    """Loads [T] that carry `served` times every demand: tightest SLO first, each in proportion to the room left.

    By Hall's condition (see `program`) the tightest demands never take room that a later one can't do without.
    """
    load = np.zeros_like(capacity_fps)
    for j, weight in enumerate(weights):
        room = np.where(tightest <= j, capacity_fps - load, 0.0)
        total = float(room.sum())
        if total > 0:
            load += room * min(1.0, weight * served / total)
    return load
