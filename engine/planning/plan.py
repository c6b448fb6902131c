"""What the planner is asked and what it returns: demands, pipelines, the plan and its placement. Pure data.

A *pipeline* is a template made concrete: stages in order, each on a pool of n virtual devices of one class and share,
one batch size for all. A *plan* holds every model's pipelines; a *placement* names the virtual device of every worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from framepool.engine.planning.inventory import VirtualDevice


@dataclass(frozen=True, slots=True)
class Demand:
    """Wanted: `rate_fps` frames per second of `model`, each within `slo_ms`. One demand per (model, slo_ms)."""

    model: str
    slo_ms: float
    rate_fps: float


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of a pipeline: blocks [first_block, last_block) on `devices` virtual devices of 1/`share` of a class.

    `latency_us[b - 1]` is the profiled latency of a batch of b on one virtual device, for b = 1..batch.
    `in_bytes`/`out_bytes` are bytes per sample; `in_us`/`out_us` the link time per sample on one virtual device's
    link (0.0 on shared memory).
    """

    index: int
    first_block: int
    last_block: int
    device_class: str
    share: int
    devices: int
    latency_us: tuple[float, ...]
    in_bytes: int
    out_bytes: int
    in_us: float = 0.0
    out_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages of one model in order. `id` is unique in a plan and stable across replans for the same template.

    `rate_fps` is the load the plan gives it; `capacity_fps` what its slowest pool can do; `latency_us` the planned
    time of a full batch through all stages and transfers, without waiting for the batch to build. `slo_ms` is the
    tightest SLO it was found feasible for.
    """

    id: str
    model: str
    batch: int
    stages: tuple[StagePlan, ...]
    rate_fps: float
    capacity_fps: float
    latency_us: float
    slo_ms: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The planner's answer. `objective` is z: every demand is served at z times its rate (>= 1.0: all demands fit).

    `objective` is recomputed from the rounded device counts, never the solver's own figure. `bound` is a proven upper
    bound on z and `gap` = (bound - objective) / objective.
    """

    pipelines: tuple[Pipeline, ...]
    demands: tuple[Demand, ...]
    objective: float
    bound: float
    gap: float
    solve_s: float
    prices: Mapping[str, float] = field(default_factory=dict)

    def of_model(self, model: str) -> tuple[Pipeline, ...]:
        return tuple(p for p in self.pipelines if p.model == model)


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One stage worker: stage `stage_index` of pipeline `pipeline_id` on `device`."""

    pipeline_id: str
    stage_index: int
    device: VirtualDevice


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """A plan with a virtual device for every worker. `workers` is ordered by pipeline, stage, device."""

    plan: Plan
    workers: tuple[WorkerPlace, ...]
