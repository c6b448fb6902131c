"""Profiles, clusters and plans as text, for planning without an engine: JSON and TOML to values and back. Pure.

profile   JSON   one model: bytes at its edges; latency of every block by class, share and batch
cluster   TOML   [[classes]] what there is; [[demands]] what is wanted of it
plan      JSON   a plan with the cluster it is for, so that it can be simulated from the file alone
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from framepool.engine.planning.errors import PlanningError
from framepool.engine.planning.inventory import Device, DeviceClass, Inventory
from framepool.engine.planning.plan import Demand, Plan
from framepool.models.profile import BlockProfile, ModelProfile

FORMAT = 1
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices that need not be at hand, and what is wanted of them."""

    classes: tuple[DeviceClass, ...]
    demands: tuple[Demand, ...] = ()

    @property
    def inventory(self) -> Inventory:
        devices = (Device(f"{c.name}-{i}", c.name, i) for c in self.classes for i in range(c.count))
        return Inventory(self.classes, tuple(devices))


class _Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    device_class: str
    share: int
    batch_sizes: tuple[int, ...]
    latency_us: tuple[tuple[float, ...], ...]
    source: str = "measured"


class _Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    model: str
    digest: str
    edge_bytes: tuple[int, ...]
    blocks: tuple[_Block, ...]
    block_bytes: tuple[int, ...] = ()


class _Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    classes: tuple[DeviceClass, ...]
    demands: tuple[Demand, ...] = ()


class _PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    cluster: _Cluster
    plan: Plan


def profile_to_json(profile: ModelProfile) -> str:
    blocks = tuple(
        _Block(b.device_class, b.share, b.batch_sizes, tuple(map(tuple, b.latency_us.tolist())), b.source)
        for b in profile.blocks
    )
    value = _Profile(FORMAT, profile.model, profile.model_digest, profile.edge_bytes, blocks, profile.block_bytes)
    return json.dumps(msgspec.to_builtins(value)) + "\n"


def profile_from_json(text: str, where: str) -> ModelProfile:
    """A profile. Raises PlanningError naming `where` and the key."""
    found = _decoded(text, _Profile, where)
    n_blocks = len(found.edge_bytes) - 1
    blocks = []
    for number, block in enumerate(found.blocks):
        table = np.array(block.latency_us, dtype=np.float64)
        if table.shape != (n_blocks, len(block.batch_sizes)):
            raise PlanningError(
                f"{where}: blocks[{number}].latency_us has shape {table.shape}; it must have a row for each of the "
                f"{n_blocks} blocks and a column for each of the {len(block.batch_sizes)} batch sizes",
                field=f"blocks[{number}].latency_us",
            )
        if block.batch_sizes != tuple(range(1, len(block.batch_sizes) + 1)):
            raise PlanningError(
                f"{where}: blocks[{number}].batch_sizes must be 1, 2, ... without a gap",
                field=f"blocks[{number}].batch_sizes",
            )
        if not (np.isfinite(table).all() and (table > 0).all()):
            raise PlanningError(
                f"{where}: blocks[{number}].latency_us must be above 0 everywhere", field=f"blocks[{number}].latency_us"
            )
        blocks.append(
            BlockProfile(found.digest, block.device_class, block.share, block.batch_sizes, table, block.source)
        )
    if found.block_bytes and len(found.block_bytes) != n_blocks:
        raise PlanningError(
            f"{where}: block_bytes has {len(found.block_bytes)} entries; it must have one for each of the {n_blocks} "
            "blocks, or none",
            field="block_bytes",
        )
    return ModelProfile(found.model, found.digest, n_blocks, found.edge_bytes, tuple(blocks), found.block_bytes)


def cluster_from_toml(text: str, where: str) -> Cluster:
    """A cluster and its demands. Raises PlanningError naming `where` and the key."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise PlanningError(f"{where} is no valid TOML: {exc}", field="cluster") from exc
    return _checked(_converted(values, _Cluster, where), where)


def plan_to_json(plan: Plan, cluster: Cluster) -> str:
    value = {
        "format": FORMAT,
        "cluster": {"classes": [asdict(c) for c in cluster.classes], "demands": [asdict(d) for d in cluster.demands]},
        "plan": msgspec.to_builtins(plan),
    }
    return json.dumps(value, indent=1) + "\n"


def plan_from_json(text: str, where: str) -> tuple[Plan, Cluster]:
    """A plan and the cluster it is for. Raises PlanningError naming `where` and the key."""
    found = _decoded(text, _PlanFile, where)
    cluster = _checked(found.cluster, where)
    known = {device_class.name for device_class in cluster.classes}
    for pipeline in found.plan.pipelines:
        for stage in pipeline.stages:
            if stage.device_class not in known:
                raise PlanningError(
                    f"{where}: pipeline {pipeline.id} uses class {stage.device_class!r}, which the cluster has not",
                    field="plan.pipelines",
                )
    return found.plan, cluster


def _checked(cluster: _Cluster, where: str) -> Cluster:
    names = [device_class.name for device_class in cluster.classes]
    if not names:
        raise PlanningError(f"{where}: classes is empty; name at least one class of devices", field="classes")
    for index, device_class in enumerate(cluster.classes):
        field = f"classes[{index}]"
        if names.count(device_class.name) > 1:
            raise PlanningError(f"{where}: {field}: class {device_class.name!r} is there twice", field=field)
        if device_class.count < 1 or device_class.devices_per_link < 1:
            raise PlanningError(f"{where}: {field}: count and devices_per_link must be at least 1", field=field)
        if device_class.link_gbps is not None and not device_class.link_gbps > 0:
            raise PlanningError(f"{where}: {field}.link_gbps must be above 0, or absent for shared memory", field=field)
        if device_class.memory_bytes is not None and device_class.memory_bytes < 1:
            raise PlanningError(
                f"{where}: {field}.memory_bytes must be at least 1, or absent for no bound", field=field
            )
        if not device_class.shares or min(device_class.shares) < 1:
            raise PlanningError(f"{where}: {field}.shares must be whole numbers from 1 on", field=field)
    for index, demand in enumerate(cluster.demands):
        if not (demand.slo_ms > 0 and demand.rate_fps > 0):
            raise PlanningError(
                f"{where}: demands[{index}]: slo_ms and rate_fps must be above 0", field=f"demands[{index}]"
            )
    return Cluster(cluster.classes, cluster.demands)


def _decoded(text: str, kind: type[Value], where: str) -> Value:
    try:
        values: Any = json.loads(text)
    except ValueError as exc:
        raise PlanningError(f"{where} is no valid JSON: {exc}", field=where) from exc
    if isinstance(values, dict) and values.get("format") != FORMAT:
        raise PlanningError(
            f"{where}: format is {values.get('format')!r}; this framepool reads format {FORMAT}", field="format"
        )
    return _converted(values, kind, where)


def _converted(values: Any, kind: type[Value], where: str) -> Value:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        raise PlanningError(f"{where}: {exc}", field=where) from exc
