"""How planning and deciding grow with the cluster: `framepool bench study scaling`.

Planning: PPipe's profiles, every model with its SLO and equal weight, on clusters of 2 to 4 GPU classes and 100 to 1000
GPUs, a quarter of them of quick classes; what is found within the time limit, as a share of the linear bound.
Deciding: the longest, the mean and the 99th percentile of `Scheduler.handle` over a simulated load on handmade
clusters of 100 to 1000 workers.
"""

from __future__ import annotations

import csv
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from framepool.benchmarks.published import PublishedData
from framepool.benchmarks.scheduler_speed import MODELS, SLO_FACTOR, cluster
from framepool.engine.outcomes import NS_PER_S
from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.scheduling.commands import Command
from framepool.engine.scheduling.events import Event
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Source, merged, poisson
from framepool.engine.simulation.driver import Simulation

CLUSTERS: tuple[tuple[tuple[str, ...], int, int, int], ...] = (
    (("L4", "T4"), 100, 3, 2),
    (("L4", "T4"), 100, 3, 3),
    (("L4", "T4"), 100, 9, 2),
    (("L4", "P4"), 400, 3, 2),
    (("L4", "V100", "T4"), 200, 6, 2),
    (("L4", "V100", "T4", "P4"), 400, 9, 2),
    (("L4", "V100", "T4", "P4"), 1000, 18, 2),
)
"""(classes, GPUs, models, most stages)."""
LINKS = {"L4": 4, "V100": 4, "T4": 2, "P4": 2}
QUICK = frozenset({"L4", "V100"})
MARGIN = 0.2
TIME_LIMIT_S = 15.0
WORKERS = (100, 300, 1000)
POLICIES = ("framepool", "ppipe", "reactive")


@dataclass(frozen=True, slots=True)
class PlanningRow:
    """`of_bound`: the plan's z by the proven bound on it."""

    classes: str
    devices: int
    models: int
    stages: int
    seconds: float
    of_bound: float


@dataclass(frozen=True, slots=True)
class DecidingRow:
    """Microseconds of one `Scheduler.handle`, garbage collection and all."""

    policy: str
    workers: int
    events: int
    mean_us: float
    p99_us: float
    longest_us: float


def planning(data: PublishedData) -> Iterator[PlanningRow]:
    """A row a cluster, as it is done."""
    timed = [model for model in data.models() if data.slo_ms(model)]
    for names, devices, models, stages in CLUSTERS:
        inventory = Inventory(tuple(_classes(names, devices)), ())
        chosen = timed[:models]
        demands = [Demand(model, data.slo_ms(model) or math.nan, 100.0) for model in chosen]
        options = PlannerOptions(
            slo_margin=MARGIN, max_stages=stages, sharing=Sharing.POOL, max_batch=1024, enough=math.inf,
            tie_break=False, use_spare=False, gap=1e-3, time_limit_s=TIME_LIMIT_S,
        )  # fmt: skip
        profiles = {model: data.whole_profile(model) for model in chosen}
        began = time.perf_counter()
        plan = solve(profiles, inventory, demands, options)
        spent_s = time.perf_counter() - began
        yield PlanningRow(
            "-".join(names), devices, models, stages, round(spent_s, 2), round(plan.objective / plan.bound, 4)
        )


def _classes(names: tuple[str, ...], devices: int) -> Iterator[DeviceClass]:
    quick = [name for name in names if name in QUICK]
    slow = [name for name in names if name not in QUICK]
    for kind, share in ((quick, devices // 4), (slow, devices - devices // 4)):
        for number, name in enumerate(kind):
            count = share // len(kind) + (number < share % len(kind))
            yield DeviceClass(name, count, 10.0, LINKS[name], (1,) if name == "P4" else (1, 2, 3, 4))


def deciding(policy: str, workers: int, *, requests: int = 20_000) -> DecidingRow:
    """Times every decision of one simulated run at nine tenths of the capacity."""
    plan = cluster(1, workers / 100)
    took: list[float] = []
    options = SchedulerOptions.late() if policy == "framepool" else SchedulerOptions.published()
    scheduler = make_scheduler(policy, options)
    handle = scheduler.handle

    def timed(event: Event, now_ns: int) -> list[Command]:
        began = time.perf_counter()
        commands = handle(event, now_ns)
        took.append(time.perf_counter() - began)
        return commands

    scheduler.handle = timed  # type: ignore[method-assign]
    rates = {model: 0.9 * sum(p.capacity_fps for p in plan.plan.of_model(model)) for model, _ in MODELS}
    until_ns = round(requests / sum(rates.values()) * NS_PER_S)
    ids = itertools.count()
    arrivals = [
        poisson(Source(n, model, round(each_ms * SLO_FACTOR * 1e6)), rates[model], ids, seed=1, until_ns=until_ns)
        for n, (model, each_ms) in enumerate(MODELS)
    ]
    simulation = Simulation(scheduler, plan)
    took.clear()  # setting up is no decision
    simulation.run(merged(arrivals))
    us = np.array(took) * 1e6
    return DecidingRow(
        policy,
        len(simulation.worker_ids),
        len(us),
        round(float(us.mean()), 1),
        round(float(np.percentile(us, 99)), 1),
        round(float(us.max()), 1),
    )


def write(rows: list[PlanningRow] | list[DecidingRow], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
