"""Recomputes a plan from the profiles alone, in plain loops that share no code with the planner. Pure.

For tests, for plans made elsewhere, and as a last look before a plan goes live: a planner's bug must not become a
missed SLO.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.plan import Pipeline, PlacedPlan, Plan, StagePlan
from framepool.engine.planning.program import Sharing
from framepool.models.profile import ModelProfile

_MIN_BLOCK_US = 1.0
_BATCH_BUILD_FACTOR = 1.3


@dataclass(frozen=True, slots=True)
class CheckReport:
    """`objective` as recomputed; `problems` in words, empty for a sound plan. `capacity_fps` by pipeline id."""

    objective: float
    problems: tuple[str, ...]
    capacity_fps: Mapping[str, float]


def check_plan(
    plan: Plan,
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    *,
    slo_margin: float,
    sharing: Sharing,
    expected_fps: Mapping[str, float] | None = None,
    tolerance: float = 1e-6,
) -> CheckReport:
    """Checks SLOs, counts, rates and the objective of `plan`. `expected_fps`: rates at which batches build
    (None: at once). `tolerance` is relative, for rates and the objective; times and counts are exact up to rounding.
    """
    problems: list[str] = []
    capacity: dict[str, float] = {}
    for pipeline in plan.pipelines:
        if pipeline.id in capacity:
            problems.append(f"{pipeline.id}: occurs twice")
        capacity[pipeline.id] = _check_pipeline(
            pipeline,
            profiles[pipeline.model],
            inventory,
            slo_margin,
            (expected_fps or {}).get(pipeline.model),
            problems,
        )
        if not _close(capacity[pipeline.id], pipeline.capacity_fps, tolerance):
            problems.append(f"{pipeline.id}: capacity {pipeline.capacity_fps} should be {capacity[pipeline.id]}")
        if pipeline.rate_fps > pipeline.capacity_fps * (1 + tolerance):
            problems.append(f"{pipeline.id}: rate {pipeline.rate_fps} is above its capacity {pipeline.capacity_fps}")
    _check_devices(plan, inventory, sharing, problems)
    objective = _objective(plan, capacity)
    if not _close(objective, plan.objective, tolerance):
        problems.append(f"objective {plan.objective} should be {objective}")
    if plan.bound < plan.objective * (1 - tolerance):
        problems.append(f"bound {plan.bound} lies below the objective {plan.objective}")
    _check_served(plan, tolerance, problems)
    return CheckReport(objective, tuple(problems), capacity)


def check_placement(placed: PlacedPlan, inventory: Inventory, sharing: Sharing) -> tuple[str, ...]:
    """What is wrong with a placement, in words: workers missing, devices used twice or split unevenly."""
    problems = []
    seats: dict[tuple[str, int, int], int] = defaultdict(int)
    load: dict[str, Fraction] = defaultdict(Fraction)
    shares: dict[str, set[int]] = defaultdict(set)
    have: dict[tuple[str, int], int] = defaultdict(int)
    stages = {(p.id, s.index): s for p in placed.plan.pipelines for s in p.stages}
    for worker in placed.workers:
        virtual = worker.device
        stage = stages.get((worker.pipeline_id, worker.stage_index))
        have[worker.pipeline_id, worker.stage_index] += 1
        seats[virtual.device.id, virtual.share, virtual.slot] += 1
        load[virtual.device.id] += Fraction(1, virtual.share)
        shares[virtual.device.id].add(virtual.share)
        if virtual.device not in inventory.devices:
            problems.append(f"{virtual.id}: no such device")
        if stage is None:
            problems.append(f"{virtual.id}: works for a stage that the plan lacks")
        elif (stage.device_class, stage.share) != (virtual.device.device_class, virtual.share):
            problems.append(f"{virtual.id}: of another class or share than its stage")
        if not 0 <= virtual.slot < virtual.share:
            problems.append(f"{virtual.id}: slot {virtual.slot} of {virtual.share}")
    problems += [f"{key[0]} {key[1:]}: {n} workers on one virtual device" for key, n in seats.items() if n > 1]
    problems += [f"{device}: shares sum to {total}" for device, total in load.items() if total > 1]
    if sharing is Sharing.DEVICE:
        problems += [f"{device}: split unevenly {sorted(s)}" for device, s in shares.items() if len(s) > 1]
    for key, stage in stages.items():
        if have[key] != stage.devices:
            problems.append(f"{key}: {have[key]} workers instead of {stage.devices}")
    return tuple(problems)


def _check_pipeline(
    pipeline: Pipeline,
    profile: ModelProfile,
    inventory: Inventory,
    slo_margin: float,
    expected_fps: float | None,
    problems: list[str],
) -> float:
    """The pipeline's capacity; adds what is wrong with its stages, times and SLO."""
    say = problems.append
    position, latency_us, capacity = 0, 0.0, math.inf
    for k, stage in enumerate(pipeline.stages):
        if stage.index != k or stage.first_block != position or stage.last_block <= position:
            say(f"{pipeline.id}: stage {k} does not continue at block {position}")
        position = stage.last_block
        here = inventory.device_class(stage.device_class)
        if stage.share not in here.shares:
            say(f"{pipeline.id}: class {here.name} is not split into {stage.share}")
        if profile.block_bytes and here.memory_bytes is not None:
            held = profile.stage_bytes(stage.first_block, stage.last_block, pipeline.batch)
            if held * stage.share > here.memory_bytes:
                say(f"{pipeline.id}: stage {k} takes {held} bytes, more than 1/{stage.share} of {here.memory_bytes}")
        latency = _stage_us(profile, stage, pipeline.batch)
        into = _cut_us(profile, inventory, pipeline, k) if k > 0 else 0.0
        out = _cut_us(profile, inventory, pipeline, k + 1) if k + 1 < len(pipeline.stages) else 0.0
        rate = 1e6 * pipeline.batch / latency
        if here.link_gbps is not None:
            for link_us in (into, out):
                if link_us > 0:
                    rate = min(rate, 1e6 / link_us / stage.share / here.devices_per_link)
        latency_us += latency + out * pipeline.batch
        capacity = min(capacity, rate * stage.devices)
        if not (_close(into, stage.in_us, 1e-9) and _close(out, stage.out_us, 1e-9)):
            say(f"{pipeline.id}: stage {k} has link times {stage.in_us}, {stage.out_us} instead of {into}, {out}")
    if position != profile.n_blocks:
        say(f"{pipeline.id}: ends at block {position} of {profile.n_blocks}")
    if not _close(latency_us, pipeline.latency_us, 1e-9):
        say(f"{pipeline.id}: latency {pipeline.latency_us} us should be {latency_us} us")
    build_us = 0.0 if expected_fps is None else _BATCH_BUILD_FACTOR * 1e6 * (pipeline.batch - 1) / expected_fps
    slo_us = pipeline.slo_ms * 1e3
    room_us = slo_us - round(slo_margin * slo_us)
    if latency_us + build_us > room_us + 1e-6:
        say(f"{pipeline.id}: needs {latency_us + build_us:.1f} us of the {room_us:.1f} us that its SLO leaves")
    return capacity


def _stage_us(profile: ModelProfile, stage: StagePlan, batch: int) -> float:
    block = profile.of(stage.device_class, stage.share)
    if block is None:
        return math.inf
    column = block.latency_us[stage.first_block : stage.last_block, batch - 1]
    return math.fsum(max(float(us), _MIN_BLOCK_US) for us in column)


def _cut_us(profile: ModelProfile, inventory: Inventory, pipeline: Pipeline, k: int) -> float:
    """Link time of one sample into stage k."""
    sides: list[DeviceClass] = [inventory.device_class(pipeline.stages[i].device_class) for i in (k - 1, k)]
    gbps = [side.link_gbps for side in sides if side.link_gbps is not None]
    return profile.edge_bytes[pipeline.stages[k].first_block] * 8 / (min(gbps) * 1e3) if gbps else 0.0


def _check_devices(plan: Plan, inventory: Inventory, sharing: Sharing, problems: list[str]) -> None:
    """Adds the classes of which the plan uses more than there are."""
    pools: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            key: tuple[str, ...]
            if sharing is Sharing.POOL:
                key = (stage.device_class, pipeline.model, str(stage.index))
            else:
                key = (stage.device_class, str(stage.share))
            pools[key] += Fraction(stage.devices, stage.share)
            if stage.devices < 1:
                problems.append(f"{pipeline.id}: stage {stage.index} has {stage.devices} devices")
    for device_class in inventory.classes:
        used = sum(math.ceil(total) for key, total in pools.items() if key[0] == device_class.name)
        if used > device_class.count:
            problems.append(f"class {device_class.name}: {used} devices of {device_class.count}")


def _objective(plan: Plan, capacity: Mapping[str, float]) -> float:
    """z: over models and SLOs, what the pipelines good for an SLO carry over what is asked up to it."""
    z = math.inf
    for demand in plan.demands:
        same = [d for d in plan.demands if d.model == demand.model and d.slo_ms <= demand.slo_ms]
        able = [p for p in plan.pipelines if p.model == demand.model and p.slo_ms <= demand.slo_ms]
        z = min(z, sum(capacity[p.id] for p in able) / sum(d.rate_fps for d in same))
    return z


def _check_served(plan: Plan, tolerance: float, problems: list[str]) -> None:
    """Adds the models whose pipelines' rates don't sum to what is served of the demands."""
    for model in sorted({d.model for d in plan.demands}):
        asked = sum(d.rate_fps for d in plan.demands if d.model == model) * min(plan.objective, 1.0)
        given = sum(p.rate_fps for p in plan.pipelines if p.model == model)
        if not _close(asked, given, tolerance):
            problems.append(f"{model}: pipelines are given {given} fps of the {asked} fps served")


def _close(a: float, b: float, tolerance: float) -> bool:
    return a == b or abs(a - b) <= tolerance * max(abs(a), abs(b))
