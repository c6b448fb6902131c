"""Handmade plans: a few lines to a `PlanActivated`, for tests and studies that want no planner. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.scheduling.events import PlanActivated


@dataclass(frozen=True, slots=True)
class StageSketch:
    """A stage on `workers` workers. A batch of b takes base + b * each; `out_ms` is the link time per frame to the next
    stage. `linked`: each worker sits on a link of its own (else all hand over in shared memory)."""

    workers: int
    each_ms: float
    base_ms: float = 0.0
    out_ms: float = 0.0
    linked: bool = False
    device_class: str = "a"


def pipeline(
    name: str,
    model: str,
    stages: Sequence[StageSketch],
    *,
    batch: int = 1,
    slo_ms: float = 1000.0,
    rate_fps: float = 0.0,
) -> Pipeline:
    """A pipeline of those stages; its capacity is that of its slowest pool in full batches. 0 rate: its capacity."""
    planned: list[StagePlan] = []
    in_us = 0.0
    for index, sketch in enumerate(stages):
        latency_us = tuple((sketch.base_ms + size * sketch.each_ms) * 1000.0 for size in range(1, batch + 1))
        out_us = sketch.out_ms * 1000.0
        planned.append(
            StagePlan(
                index,
                index,
                index + 1,
                sketch.device_class,
                1,
                sketch.workers,
                latency_us,
                1,
                1,
                in_us=in_us,
                out_us=out_us,
            )
        )
        in_us = out_us
    capacity_fps = min(stage.devices * batch * 1e6 / stage.latency_us[-1] for stage in planned)
    latency_us_total = sum(stage.latency_us[-1] + stage.in_us * batch for stage in planned)
    return Pipeline(
        name, model, batch, tuple(planned), rate_fps or capacity_fps, capacity_fps, latency_us_total, slo_ms
    )


def activated(pipelines: Sequence[tuple[Pipeline, Sequence[StageSketch]]]) -> PlanActivated:
    """The plan of those pipelines, with workers named "pipeline/stage/number" and links "link:worker"."""
    workers: dict[tuple[str, int], tuple[str, ...]] = {}
    links: dict[str, str] = {}
    for made, sketches in pipelines:
        for index, sketch in enumerate(sketches):
            ids = tuple(f"{made.id}/{index}/{number}" for number in range(sketch.workers))
            workers[made.id, index] = ids
            if sketch.linked:
                links.update((worker_id, f"link:{worker_id}") for worker_id in ids)
    demands = tuple(Demand(made.model, made.slo_ms, made.rate_fps) for made, _ in pipelines)
    plan = Plan(tuple(made for made, _ in pipelines), demands, 1.0, 1.0, 0.0, 0.0)
    return PlanActivated(plan, workers, links)


def single(
    stages: Sequence[StageSketch], *, model: str = "m", batch: int = 1, slo_ms: float = 1000.0, rate_fps: float = 0.0
) -> PlanActivated:
    """The plan of one pipeline "p" for one model."""
    made = pipeline("p", model, stages, batch=batch, slo_ms=slo_ms, rate_fps=rate_fps)
    return activated([(made, stages)])
