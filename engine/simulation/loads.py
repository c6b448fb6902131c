"""How much a plan carries: the largest load at which enough frames are in time, on a grid of load factors. Pure.

Attainment falls as load grows, but for noise of the seeds, so the largest load that holds is found by bisection.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from framepool.engine.outcomes import NS_PER_S
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Arrival, Source, cameras, gamma, poisson
from framepool.engine.simulation.cluster import activated
from framepool.engine.simulation.driver import Simulation, SimulationOptions
from framepool.engine.simulation.result import SimulationResult
from framepool.engine.simulation.service import Exact, ServiceModel

USUAL_SHARE = 0.95
"""Of its capacity, what a plan carries as a rule: where the search begins."""

ASSIGNED_CAMERAS_CV, RANDOM_CAMERAS_CV = 0.1, 0.5
"""Spread of the gaps between frames of many cameras: with phases assigned there is next to none; with random ones it
is that of chance within a period, but no period brings more than another."""

RESERVE_OF_JITTER = 2.0
"""Of the coefficient of variation of service times: the share of the SLO that the scheduler keeps back for them. (At
5 % plans with half of it lost whole models, which held batches to the last moment; from 8 to 15 % all carry alike.)"""


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives: "poisson", "gamma:CV", "cameras:FPS" (phases assigned) or "cameras:FPS:random" (phases by seed)."""

    kind: str = "poisson"

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown kind, or a setting that is no number above 0."""
        name, _, setting = self.kind.partition(":")
        number, _, phases = setting.partition(":")
        known = (name == "poisson" and not setting) or (
            name in ("gamma", "cameras") and _positive(number) and phases in ("", "random")[: 1 + (name == "cameras")]
        )
        if not known or self.kind.endswith(":"):
            raise ValueError(
                f"arrivals {self.kind!r} are unknown; use poisson, gamma:CV, cameras:FPS or cameras:FPS:random, with "
                "numbers above 0"
            )

    @property
    def gap_cv(self) -> float:
        """Coefficient of variation of the gaps between frames of all streams together, roughly."""
        name, _, setting = self.kind.partition(":")
        if name == "gamma":
            return float(setting)
        if name == "cameras":
            return RANDOM_CAMERAS_CV if setting.endswith(":random") else ASSIGNED_CAMERAS_CV
        return 1.0

    def arrivals(
        self,
        demand: Demand,
        rate_fps: float,
        *,
        seed: int,
        seconds: float,
        ids: Iterator[int] | None = None,
        first_stream: int = 0,
    ) -> Iterator[Arrival]:
        """Frames of `demand`'s model at `rate_fps` in all, for `seconds`.

        Where several run together they share `ids`, and have streams of their own from `first_stream` on.
        """
        name, _, setting = self.kind.partition(":")
        ids = itertools.count() if ids is None else ids
        until_ns = round(seconds * NS_PER_S)
        slo_ns = round(demand.slo_ms * 1e6)
        source = Source(first_stream, demand.model, slo_ns)
        match name:
            case "gamma":
                return gamma(source, rate_fps, ids, cv=float(setting), seed=seed, until_ns=until_ns)
            case "cameras":
                fps, _, phases = setting.partition(":")
                return cameras(
                    source,
                    rate_fps,
                    ids,
                    fps=float(fps),
                    random_phases=phases == "random",
                    seed=seed,
                    until_ns=until_ns,
                )
        return poisson(source, rate_fps, ids, seed=seed, until_ns=until_ns)


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Trial:
    """How plans are tried: policy and options, what arrives, for how long, with which seeds, and what is enough.

    `reserve`: share of the SLO that the scheduler keeps back for service times that it can't foresee.
    """

    policy: str = "ppipe"
    options: SchedulerOptions = field(default_factory=SchedulerOptions.published)
    load: Load = field(default_factory=Load)
    seconds: float = 8.0
    seeds: tuple[int, ...] = (1,)
    service: ServiceModel = field(default_factory=Exact)
    attainment: float = 0.99
    reserve: float = 0.0

    def run(
        self,
        plan: Plan,
        inventory: Inventory,
        demand: Demand,
        rate_fps: float,
        seed: int,
        *,
        arrivals: Sequence[Arrival] | None = None,
        most_missed: int | None = None,
    ) -> SimulationResult:
        """One run of one model's pipelines alone, at `rate_fps` or with the `arrivals` made for it; given up once more
        than `most_missed` frames are not in time."""
        mine = replace(plan, pipelines=plan.of_model(demand.model), demands=(demand,))
        options = self.options
        if self.reserve:
            options = replace(options, publish_reserve_ns=round(self.reserve * demand.slo_ms * 1e6))
        simulation = Simulation(
            make_scheduler(self.policy, options),
            activated(mine, inventory),
            SimulationOptions(seed=seed, service=self.service, most_missed=most_missed),
        )
        if arrivals is None:
            return simulation.run(self.load.arrivals(demand, rate_fps, seed=seed, seconds=self.seconds))
        return simulation.run(arrivals)

    def holds(self, plan: Plan, inventory: Inventory, demand: Demand, rate_fps: float) -> bool:
        """Whether enough frames are in time, over all seeds together. Stops at the frame that settles it."""
        every = [list(self.load.arrivals(demand, rate_fps, seed=seed, seconds=self.seconds)) for seed in self.seeds]
        frames = sum(map(len, every))
        may_miss = frames - math.ceil(self.attainment * frames - 1e-9)
        for seed, arrivals in zip(self.seeds, every, strict=True):
            result = self.run(plan, inventory, demand, rate_fps, seed, arrivals=arrivals, most_missed=may_miss)
            may_miss -= result.totals.ended - result.totals.in_time
            if may_miss < 0:
                return False
        return True

    def largest_factor(
        self,
        plan: Plan,
        inventory: Inventory,
        demand: Demand,
        planned_fps: float,
        *,
        grid: float,
        most: float = 1.0,
        guess: float | None = None,
    ) -> float:
        """The largest load factor on the grid, up to `most`, at which `planned_fps` times it holds; 0.0 for none.

        Looked for from `guess` on (default: a usual share of what the pipelines carry).
        """
        mine = plan.of_model(demand.model)
        if not mine:
            return 0.0
        if guess is None:
            guess = USUAL_SHARE * sum(pipeline.capacity_fps for pipeline in mine) / planned_fps
        found = largest(
            lambda step: self.holds(plan, inventory, demand, planned_fps * step * grid),
            round(most / grid),
            guess=round(guess / grid),
        )
        return found * grid


def largest(holds: Callable[[int], bool], most: int, guess: int) -> int:
    """The largest of 1..most for which `holds`, 0 for none; `holds` is taken to be true below some point.

    Looked for from `guess` outwards in steps that double, then by bisection.
    """
    guess = min(max(guess, 1), most)
    low, high, step = 0, most, 2
    if holds(guess):
        low = guess
        while low + step < high and holds(low + step):
            low, step = low + step, step * 2
        high = min(high, low + step - 1) if low + step < high else high
    else:
        high = guess - 1
        while high - step > 0 and not holds(high - step):
            high, step = high - step - 1, step * 2
        low = max(0, high - step)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
