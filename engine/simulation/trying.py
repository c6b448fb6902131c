"""A whole plan on virtual time, all its models together: what comes of it at some load. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from framepool.engine.outcomes import NS_PER_S, goodput_fps
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Arrival, Source, merged, trace
from framepool.engine.simulation.cluster import activated, worker_ids
from framepool.engine.simulation.driver import Simulation, SimulationOptions
from framepool.engine.simulation.loads import RESERVE_OF_JITTER, Load
from framepool.engine.simulation.service import Exact, LognormalJitter

STREAMS_APART = 1 << 20
"""Streams of one model are numbered from a multiple of this, so that none is shared."""


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """What came of a model's frames."""

    model: str
    offered_fps: float
    attainment: float
    goodput_fps: float
    late: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """`utilisation`: share of the time of each class's devices in the plan."""

    models: tuple[ModelOutcome, ...]
    utilisation: Mapping[str, float]


def try_plan(
    plan: Plan,
    inventory: Inventory,
    *,
    arrivals: str,
    times_s: Sequence[float] | None = None,
    load: float,
    policy: str = "framepool",
    live: bool = False,
    seconds: float = 10.0,
    jitter: float = 0.0,
    seed: int = 1,
) -> PlanOutcome:
    """Runs every demand at `load` times its planned rate (z times what was asked). Raises ValueError for `arrivals`.

    With `times_s`, a trace, each demand gets it, stretched to its rate.
    """
    rates = {demand: plan.objective * demand.rate_fps * load for demand in plan.demands}
    streams: list[Iterator[Arrival]] = []
    ids = itertools.count()
    for number, demand in enumerate(plan.demands):
        if times_s is None:
            made = Load(arrivals).arrivals(
                demand, rates[demand], seed=seed, seconds=seconds, ids=ids, first_stream=number * STREAMS_APART
            )
        else:
            made = _stretched(demand, times_s, rates[demand], seconds, number, ids)
        streams.append(made)
    settings = SchedulerOptions.late if policy == "framepool" else SchedulerOptions.published
    options = SchedulerOptions() if live else settings()
    if policy == "framepool" and jitter and not live:
        tightest_ms = min((demand.slo_ms for demand in plan.demands), default=0.0)
        options = replace(options, publish_reserve_ns=round(RESERVE_OF_JITTER * jitter * tightest_ms * 1e6))
    service = LognormalJitter(jitter) if jitter else Exact()
    event = activated(plan, inventory)
    simulation = Simulation(make_scheduler(policy, options), event, SimulationOptions(seed=seed, service=service))
    result = simulation.run(merged(streams))
    elapsed_ns = round(seconds * NS_PER_S)
    models = []
    for number, demand in enumerate(plan.demands):
        mine = [c for stream, c in result.streams.items() if stream // STREAMS_APART == number]
        in_time, ended = sum(c.in_time for c in mine), sum(c.ended for c in mine)
        dropped: dict[str, int] = {}
        for counts in mine:
            for reason, count in counts.dropped.items():
                dropped[reason.value] = dropped.get(reason.value, 0) + count
        late = sum(c.completed for c in mine) - in_time
        share = in_time / ended if ended else 1.0
        models.append(
            ModelOutcome(demand.model, ended / seconds, share, goodput_fps(in_time, elapsed_ns), late, dropped)
        )
    return PlanOutcome(tuple(models), utilisation(plan, result.busy_ns, seconds))


def _stretched(
    demand: Demand, times_s: Sequence[float], rate_fps: float, seconds: float, number: int, ids: Iterator[int]
) -> Iterator[Arrival]:
    """The trace from its first time on, at `rate_fps` on average, for `seconds`."""
    first, last = times_s[0], times_s[-1]
    natural_fps = (len(times_s) - 1) / (last - first) if last > first else rate_fps
    speed = rate_fps / natural_fps
    source = Source(number * STREAMS_APART, demand.model, round(demand.slo_ms * 1e6))
    wanted = (at_s - first for at_s in times_s if (at_s - first) / speed < seconds)
    return trace(source, wanted, ids, speed=speed)


def utilisation(plan: Plan, busy_ns: Mapping[str, int], seconds: float) -> dict[str, float]:
    """By class: the share of the time that the plan's devices were busy, from the busy times of its workers."""
    busy: dict[str, float] = {}
    devices: dict[str, float] = {}
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            name = stage.device_class
            mine = sum(busy_ns[worker] for worker in worker_ids(pipeline, stage))
            busy[name] = busy.get(name, 0.0) + mine / stage.share
            devices[name] = devices.get(name, 0.0) + stage.devices / stage.share
    return {name: busy[name] / devices[name] / (seconds * NS_PER_S) for name in busy}
