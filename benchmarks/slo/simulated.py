"""The same run on virtual time: the plan that served, with the service times that were measured while it did.

The engine records its scheduler's events (`scheduler.event_log`). Of these the simulation takes the plan under which
most batches ran, the scheduler with its options, and every batch's measured time on its worker: their means by stage
and batch size become the plan's latencies, their spread about the mean the simulated jitter. Cameras have assigned
phases, as the engine gives them; what decoding and publishing take is taken off the SLO.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from framepool.benchmarks import MeasurementError
from framepool.engine.planning.inventory import Device, DeviceClass, Inventory
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.scheduling.commands import Dispatch
from framepool.engine.scheduling.events import PlanActivated, StageFinished
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.loads import Load, Trial
from framepool.engine.simulation.replay import decode_entry

Place = tuple[str, int, int]
"""Pipeline, stage, batch size."""
SIMULATED_SECONDS = 30.0
_GRID_SHARE = 0.005


@dataclass(slots=True)
class Measured:
    """A plan and how long its batches took, in nanoseconds."""

    plan: Plan
    times_ns: dict[Place, list[int]] = field(default_factory=lambda: defaultdict(list))


class Recorded:
    """Service times with the spread that was recorded: planned times one of the recorded ratios to their mean."""

    def __init__(self, ratios: list[float]) -> None:
        self._ratios = ratios

    def duration_ns(self, planned_ns: int, rng: random.Random) -> int:
        return max(1, round(planned_ns * rng.choice(self._ratios)))


def simulated_load(log: Path, model: str, slo_ms: float, fps: float, elsewhere_ms: float, attainment: float) -> float:
    """The largest load (fps) that the simulation carries; `elsewhere_ms`: decoding and publishing. Raises
    MeasurementError where the log holds no run of the model."""
    with log.open("rb") as file:
        header = msgspec.json.decode(next(file))
        measured = _most_used(file)
    if measured is None or not measured.plan.of_model(model):
        raise MeasurementError(f"{log}: no batch of {model} is recorded there")
    plan, ratios = _as_measured(measured)
    options = msgspec.convert(header["options"], SchedulerOptions)
    demand = Demand(model, slo_ms - elsewhere_ms, 1.0)
    capacity_fps = sum(pipeline.capacity_fps for pipeline in plan.of_model(model))
    trial = Trial(
        policy=header["policy"],
        options=replace(options, service_learning=0.0),
        load=Load(f"cameras:{fps:g}"),
        seconds=SIMULATED_SECONDS,
        service=Recorded(ratios),
        attainment=attainment,
    )
    factor = trial.largest_factor(plan, _inventory(plan), demand, capacity_fps, grid=_GRID_SHARE, most=1.5)
    return factor * capacity_fps


def _most_used(lines: Iterable[bytes]) -> Measured | None:
    """Of the plans in a log that under which most batches ended, activated again or not."""
    found: dict[str, Measured] = {}
    current: Measured | None = None
    sent: dict[int, tuple[str, int]] = {}
    for line in lines:
        entry = decode_entry(line)
        event = entry.event
        if isinstance(event, PlanActivated):
            key = repr([(p.id, p.batch, p.stages) for p in event.plan.pipelines])
            current = found.setdefault(key, Measured(event.plan))
            sent.clear()
        elif isinstance(event, StageFinished) and current is not None and event.batch_id in sent:
            pipeline_id, size = sent[event.batch_id]
            current.times_ns[pipeline_id, event.stage, size].append(event.end_ns - event.start_ns)
        for command in entry.commands:
            if isinstance(command, Dispatch):
                sent[command.batch_id] = (command.pipeline_id, len(command.frames))
    return max(found.values(), key=lambda m: sum(map(len, m.times_ns.values())), default=None)


def _as_measured(measured: Measured) -> tuple[Plan, list[float]]:
    """The plan with measured means, and all ratios of a time to its mean. Sizes never run keep their planned share."""
    ratios: list[float] = []

    def stage_of(pipeline: Pipeline, stage: StagePlan) -> StagePlan:
        scale = 1.0
        latency_us = []
        for size in range(1, pipeline.batch + 1):
            times = measured.times_ns.get((pipeline.id, stage.index, size), [])
            if times:
                mean_ns = sum(times) / len(times)
                ratios.extend(time / mean_ns for time in times)
                scale = mean_ns / 1e3 / stage.latency_us[size - 1]
            latency_us.append(stage.latency_us[size - 1] * scale)
        return replace(stage, latency_us=tuple(latency_us))

    pipelines = []
    for pipeline in measured.plan.pipelines:
        stages = tuple(stage_of(pipeline, stage) for stage in pipeline.stages)
        capacity_fps = min(stage.devices * pipeline.batch * 1e6 / stage.latency_us[-1] for stage in stages)
        pipelines.append(replace(pipeline, stages=stages, capacity_fps=capacity_fps, rate_fps=capacity_fps))
    return replace(measured.plan, pipelines=tuple(pipelines)), ratios or [1.0]


def _inventory(plan: Plan) -> Inventory:
    """Devices enough for the plan, on shared memory."""
    counts: dict[str, int] = defaultdict(int)
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            counts[stage.device_class] += stage.devices
    return Inventory(
        tuple(DeviceClass(name, count) for name, count in counts.items()),
        tuple(Device(f"{name}-{index}", name, index) for name, count in counts.items() for index in range(count)),
    )
