"""Capacity planning: what a plan makes of a cluster, what bounds it, what one more device would buy. Pure.

The price of a class is what the plan's objective z gains when the class has one device more, found by planning again:
exact for whole devices, where the duals of a relaxed program are not. A class is binding where that is worth something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framepool.engine.planning.errors import PlanInfeasibleError
from framepool.engine.planning.inventory import Device, Inventory
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.planning.queueing import Queueing
from framepool.engine.planning.solving import solve
from framepool.models.profile import ModelProfile

LEAST_GAIN = 1e-6
"""Gains of z below this are the solver's."""


@dataclass(frozen=True, slots=True)
class ClassUse:
    """A class in a plan. `devices`: whole ones in use; `utilisation`: share of all its devices' time at z times the
    load asked for; `price`: how much z gains by one device more (None: not asked)."""

    name: str
    count: int
    devices: float
    utilisation: float
    price: float | None

    @property
    def binding(self) -> bool:
        return self.price is not None and self.price > LEAST_GAIN


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model in a plan: the rate it can be served at (z times what is asked), how much of it by pipelines of several
    stages, and what the other way alone would carry on the devices it has: whole models where any is pipelined, else
    pipelines (0.0: it can't meet the SLO so; None: not asked)."""

    model: str
    rate_fps: float
    pipelined_fps: float
    other_fps: float | None = None

    @property
    def way(self) -> str:
        """ "replicated", "pipelined" or "both"."""
        if self.pipelined_fps <= 0:
            return "replicated"
        return "pipelined" if self.pipelined_fps >= self.rate_fps * (1 - 1e-9) else "both"

    @property
    def wins(self) -> float | None:
        """How much more the chosen way carries than the other, as a share; None where there is no other."""
        return self.rate_fps / self.other_fps - 1 if self.other_fps else None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """A plan and what it means. `without_cuts`: z of the best plan that cuts no model (0.0: some SLO can't be met)."""

    plan: Plan
    classes: tuple[ClassUse, ...]
    models: tuple[ModelUse, ...]
    without_cuts: float


def capacity(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
    *,
    queueing: Queueing | None = None,
    prices: bool = True,
) -> CapacityReport:
    """Plans and explains. Raises what `solve` raises."""
    plan = solve(profiles, inventory, demands, options, queueing=queueing)
    try:
        uncut = replace(options, max_stages=1, min_stages=1)
        whole = solve(profiles, inventory, demands, uncut, queueing=queueing).objective
    except PlanInfeasibleError:
        whole = 0.0
    classes = []
    for device_class in inventory.classes:
        price = None
        if prices:
            larger = with_one_more(inventory, device_class.name)
            more = solve(profiles, larger, demands, options, queueing=queueing)
            price = max(0.0, more.objective - plan.objective)
        stages = [(p, s) for p in plan.pipelines for s in p.stages if s.device_class == device_class.name]
        classes.append(
            ClassUse(
                device_class.name,
                device_class.count,
                sum(stage.devices / stage.share for _, stage in stages),
                plan.objective * sum(_busy_devices(p, s) for p, s in stages) / device_class.count,
                price,
            )
        )
    models = []
    for model in dict.fromkeys(demand.model for demand in demands):
        mine = plan.of_model(model)
        split = [pipeline for pipeline in mine if len(pipeline.stages) > 1]
        rate_fps, pipelined_fps = (plan.objective * sum(p.rate_fps for p in some) for some in (mine, split))
        other_fps = None
        if prices:
            other_fps = _other_way(profiles, inventory, plan, model, options, queueing, whole=bool(split))
        models.append(ModelUse(model, rate_fps, pipelined_fps, other_fps))
    return CapacityReport(plan, tuple(classes), tuple(models), whole)


def _other_way(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    plan: Plan,
    model: str,
    options: PlannerOptions,
    queueing: Queueing | None,
    *,
    whole: bool,
) -> float:
    """The rate of the model on the devices it has, were it only cut (or, with `whole`, never)."""
    used = {device_class.name: 0.0 for device_class in inventory.classes}
    for pipeline in plan.of_model(model):
        for stage in pipeline.stages:
            used[stage.device_class] += stage.devices / stage.share
    mine = Inventory(tuple(replace(c, count=math.ceil(used[c.name] - 1e-9)) for c in inventory.classes), ())
    demands = [demand for demand in plan.demands if demand.model == model]
    least, most = (1, 1) if whole else (2, max(2, options.max_stages))
    try:
        other = solve(profiles, mine, demands, replace(options, min_stages=least, max_stages=most), queueing=queueing)
    except PlanInfeasibleError:
        return 0.0
    return other.objective * sum(demand.rate_fps for demand in demands)


def with_one_more(inventory: Inventory, name: str) -> Inventory:
    """The inventory with one device of class `name` added."""
    classes = tuple(replace(c, count=c.count + 1) if c.name == name else c for c in inventory.classes)
    number = inventory.device_class(name).count
    return Inventory(classes, (*inventory.devices, Device(f"{name}-{number}", name, number)))


def without_spares(inventory: Inventory, spare: int) -> Inventory:
    """The inventory with `spare` devices of each class set aside. A plan for it stays in force, with a spare device in
    the place of the lost one, whichever `spare` devices of each class are lost (with 1: N-1)."""
    classes = tuple(replace(c, count=max(0, c.count - spare)) for c in inventory.classes)
    left = {c.name: c.count for c in classes}
    return Inventory(classes, tuple(d for d in inventory.devices if d.index < left[d.device_class]))


def _busy_devices(pipeline: Pipeline, stage: StagePlan) -> float:
    """Devices that the stage keeps busy at the pipeline's planned rate, in full batches."""
    return pipeline.rate_fps * stage.latency_us[-1] / 1e6 / pipeline.batch / stage.share
