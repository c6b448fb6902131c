"""Brings a plan to life: stage files, worker processes, activation arenas, and the switch from the old plan.

Make before break: workers the new plan needs are started while the old plan serves, then the scheduler is switched in
one step, then workers no plan uses linger a while (the next plan may want them) and end. A worker is known by what it
does and where: the same blocks of the same model on the same virtual device are the same worker, whatever pipeline
uses it, so plans that differ elsewhere leave it alone.

Stages cut out of a model are measured on their device when their worker first starts; the scheduler reckons with that
instead of the sum of the profile's blocks.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from framepool.engine.config import WorkersSection
from framepool.engine.errors import DeviceError
from framepool.engine.hardware import Hardware
from framepool.engine.planning.plan import PlacedPlan, Plan, StagePlan, WorkerPlace
from framepool.engine.runtime.activations import ActivationPool
from framepool.engine.runtime.data_plane import DataPlane
from framepool.engine.runtime.devices import StageSettings
from framepool.engine.runtime.fleet import ChildSpec, Fleet
from framepool.engine.runtime.layout import SlotLayout
from framepool.engine.runtime.messages import ChildReady
from framepool.engine.runtime.stage_worker import WorkerConfig
from framepool.engine.scheduling.events import PlanActivated
from framepool.engine.stage_files import StageFiles, edge
from framepool.models.partition import Partition
from framepool.models.registry import ModelEntry

log = structlog.get_logger("framepool.deployment")

WORKER_MODULE = "framepool.engine.runtime.stage_worker"

StageKey = tuple[str, str, int, int, int]
"""Digest, device class, share, first block, last block: what a measured latency belongs to."""


class Models(Protocol):
    """Where models come from: the registry."""

    def get(self, name: str) -> ModelEntry: ...

    def partition(self, name: str) -> Partition: ...


@dataclass(frozen=True, slots=True)
class _Stage:
    """A worker's stage with all that is needed to start it."""

    worker_id: str
    key: StageKey
    entry: ModelEntry
    partition: Partition
    plan: StagePlan
    place: WorkerPlace
    batch: int
    path: Path

    @property
    def is_cut(self) -> bool:
        return (self.plan.first_block, self.plan.last_block) != (0, self.partition.n_blocks)


class Deployment:
    """Owns which workers run and which plan is active. One caller at a time (the engine's control lock)."""

    def __init__(
        self,
        models: Models,
        hardware: Hardware,
        stages: StageFiles,
        fleet: Fleet,
        plane: DataPlane,
        settings: WorkersSection,
        run_dir: Path,
        name_arena: Callable[[], str],
    ) -> None:
        self._models = models
        self._hardware = hardware
        self._stages = stages
        self._fleet = fleet
        self._plane = plane
        self._settings = settings
        self._run_dir = run_dir
        self._name_arena = name_arena
        self._endpoints = itertools.count(1)
        self._measured: dict[StageKey, tuple[float, ...]] = {}
        self._stage_of: dict[str, _Stage] = {}
        self._batches: dict[str, int] = {}
        self._pools: dict[tuple[str, int, int, int], ActivationPool] = {}
        self.active: PlacedPlan = PlacedPlan(Plan((), (), 0.0, 0.0, 0.0, 0.0), ())

    def deploy(self, placed: PlacedPlan) -> PlacedPlan:
        """Serves by `placed` from now on; returns it with the latencies measured of its stages.

        Raises DeviceError, with the old plan still serving, when a worker does not start.
        """
        stages = [self._stage(place, placed.plan) for place in placed.workers]
        self._start(stages)
        placed = replace(placed, plan=self._with_measured(placed.plan, stages))
        workers: dict[tuple[str, int], list[str]] = defaultdict(list)
        for stage in stages:
            workers[stage.place.pipeline_id, stage.place.stage_index].append(stage.worker_id)
        event = PlanActivated(placed.plan, {key: tuple(ids) for key, ids in workers.items()}, {})
        pools, gone = self._activation_pools(placed.plan)
        self._plane.call(lambda: self._plane.activate(event, pools))
        for key in gone:
            self._pools.pop(key)
        wanted = {stage.worker_id for stage in stages}
        idle = [worker_id for worker_id in self._stage_of if worker_id not in wanted]
        self._fleet.retire(idle, self._settings.linger_s)
        self._forget_gone(wanted)
        self.active = placed
        return placed

    def _forget_gone(self, wanted: set[str]) -> None:
        running = self._fleet.status()
        for worker_id in [known for known in self._stage_of if known not in wanted and known not in running]:
            del self._stage_of[worker_id]
            self._batches.pop(worker_id, None)

    def active_workers(self) -> list[tuple[str, str]]:
        """(device id, worker id) of every worker of the active plan."""
        return [(place.device.device.id, self._worker_id(place)) for place in self.active.workers]

    def worker_ready(self, spec: ChildSpec, report: ChildReady) -> None:
        """A worker is up (fleet's thread): the scheduler may use it, and what it measured is kept."""
        stage = self._stage_of.get(spec.id)
        if stage is not None and report.latency_us:
            self._measured[stage.key] = tuple(report.latency_us)
        self._plane.post(lambda: self._plane.worker_up(spec.id, report.child_id, report.endpoint))

    def _stage(self, place: WorkerPlace, plan: Plan) -> _Stage:
        pipeline = next(p for p in plan.pipelines if p.id == place.pipeline_id)
        stage = pipeline.stages[place.stage_index]
        entry = self._models.get(pipeline.model)
        partition = self._models.partition(pipeline.model)
        first, last = stage.first_block, stage.last_block
        worker_id = f"{place.device.id}:{pipeline.model}:{first}-{last}:{partition.model_digest[:8]}"
        return _Stage(
            worker_id,
            (partition.model_digest, stage.device_class, stage.share, first, last),
            entry,
            partition,
            stage,
            place,
            pipeline.batch,
            self._stages.path(entry, partition, first, last),
        )

    def _start(self, stages: list[_Stage]) -> None:
        specs = []
        for stage in stages:
            self._stage_of[stage.worker_id] = stage
            self._batches[stage.worker_id] = max(stage.batch, self._batches.get(stage.worker_id, 1))
            specs.append(ChildSpec(stage.worker_id, WORKER_MODULE, lambda child_id, s=stage: self._config(s, child_id)))  # type: ignore[misc]
        futures = self._fleet.ensure(specs)
        until_s = time.monotonic() + self._settings.start_timeout_s
        try:
            for stage, future in zip(stages, futures, strict=True):
                self._await(stage, future, until_s)
        except DeviceError:
            kept = {self._worker_id(place) for place in self.active.workers}
            self._fleet.retire([s.worker_id for s in stages if s.worker_id not in kept], 0.0)
            raise

    def _worker_id(self, place: WorkerPlace) -> str:
        return self._stage(place, self.active.plan).worker_id

    def _await(self, stage: _Stage, future: Future[None], until_s: float) -> None:
        try:
            future.result(max(0.0, until_s - time.monotonic()))
        except FutureTimeoutError as exc:
            raise DeviceError(
                f"worker {stage.worker_id} was not ready within {self._settings.start_timeout_s:g} s"
            ) from exc

    def _config(self, stage: _Stage, child_id: str) -> bytes:
        """A stage worker's configuration for one start of it (fleet's thread)."""
        device = self._hardware.settings(stage.place.device.device.id)
        first, last = stage.plan.first_block, stage.plan.last_block
        is_last = last == stage.partition.n_blocks
        max_batch = self._batches[stage.worker_id]
        config = WorkerConfig(
            child_id=child_id,
            worker_id=stage.worker_id,
            title=f"framepool: stage {stage.worker_id}",
            engine_endpoint=self._plane.endpoint,
            own_endpoint=f"{self._run_dir}/w{next(self._endpoints)}",
            device=device,
            stage=StageSettings(
                str(stage.path),
                edge(stage.partition.stage_inputs(first)),
                edge(stage.partition.stage_outputs(last)),
                max_batch,
                stage.plan.share,
                stage.plan.latency_us if device.emulated else (),
            ),
            stage_index=stage.plan.index,
            spec=stage.entry.spec if is_last else None,
            niceness=self._settings.niceness,
            measure=stage.is_cut and len(self._measured.get(stage.key, ())) < max_batch,
        )
        return msgspec.msgpack.encode(config)

    def _with_measured(self, plan: Plan, stages: list[_Stage]) -> Plan:
        """The plan with measured stage latencies in place of the profile's sums."""
        keys = {(s.place.pipeline_id, s.place.stage_index): s.key for s in stages}
        pipelines = []
        for pipeline in plan.pipelines:
            measured = []
            for stage in pipeline.stages:
                latency_us = self._measured.get(keys[pipeline.id, stage.index], ())
                if len(latency_us) >= pipeline.batch:
                    stage = replace(stage, latency_us=latency_us[: pipeline.batch])
                measured.append(stage)
            planned_us = sum(s.latency_us[-1] for s in pipeline.stages)
            now_us = sum(s.latency_us[-1] for s in measured)
            if now_us != planned_us:
                log.info("stages measured", pipeline=pipeline.id, planned_us=round(planned_us), us=round(now_us))
            pipelines.append(
                replace(pipeline, stages=tuple(measured), latency_us=pipeline.latency_us + now_us - planned_us)
            )
        return replace(plan, pipelines=tuple(pipelines))

    def _activation_pools(
        self, plan: Plan
    ) -> tuple[Mapping[tuple[str, int], ActivationPool], list[tuple[str, int, int, int]]]:
        """Pools of the plan's cuts, and the keys of pools that it does not use."""
        pools: dict[tuple[str, int], ActivationPool] = {}
        used = set()
        for pipeline in plan.pipelines:
            partition = self._models.partition(pipeline.model)
            for stage in pipeline.stages[:-1]:
                key = (pipeline.id, stage.index, stage.last_block, pipeline.batch)
                used.add(key)
                pool = self._pools.get(key)
                if pool is None:
                    layout = SlotLayout.of(partition.stage_outputs(stage.last_block), pipeline.batch)
                    pool = self._pools[key] = ActivationPool(
                        layout.total_bytes, self._settings.activation_slots, self._name_arena, self._gone
                    )
                    pool.grow()
                pools[pipeline.id, stage.index] = pool
        return pools, [key for key in self._pools if key not in used]

    def _gone(self, arena_name: str) -> None:
        self._plane.activation_gone(arena_name)
