"""PPipe's artifact, read as it is: block timings, cut sizes and plans, in our types.

DIR is the artifact's data folder:

    models/block-timing-tf32/MODEL-GPU-SHARE.csv     latency (us) by block and batch
    prepartition_mappings/MODEL/contraction_*.csv    bytes at each cut
    plans/{maf19,maf21,ablation}/*.json              plans: bl (no partition), dart-r, v4 (PPipe)

Source: PPipe (USENIX ATC 2025), published artifact.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.planning.templates import transfer_us
from framepool.models.profile import BlockProfile, ModelProfile

KINDS = ("maf19", "maf21", "ablation")
SLO_FACTOR = 5.0
ALGORITHMS = ("bl", "dart-r", "v4")  # no partition, DART-r, PPipe


@dataclass(frozen=True, slots=True)
class Case:
    """One published plan as a question to the planner. `weights` are the models' shares of the load (z is a rate)."""

    path: Path
    kind: str
    algorithm: str
    inventory: Inventory
    profiles: dict[str, ModelProfile]
    demands: tuple[Demand, ...]
    expected_fps: dict[str, float]
    slo_margin: float
    max_stages: int
    published: Plan
    planned_fps: dict[str, float]
    """Rate that PPipe's plan of the same question gives each model: load factors are shares of it."""

    @property
    def cluster(self) -> str:
        return "-".join(device_class.name for device_class in self.inventory.classes)


class PublishedData:
    """Reads the artifact's data folder; profiles are read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._profile = functools.cache(self._read_profile)

    def cases(self, kinds: Sequence[str], algorithms: Sequence[str], first: int | None = None) -> Iterator[Case]:
        """The published plans of those kinds and algorithms; with `first`, only so many of each kind."""
        for kind in kinds:
            paths = sorted((self._root / "plans" / kind).glob("*.json"))
            wanted = [path for path in paths if path.stem.rsplit("_", 1)[1] in algorithms]
            for path in wanted[:first]:
                yield self._case(path, kind, path.stem.rsplit("_", 1)[1])

    def models(self) -> list[str]:
        """Every model with cuts, sorted; not all have published plans."""
        return sorted(folder.name for folder in (self._root / "prepartition_mappings").iterdir() if folder.is_dir())

    def whole_profile(self, model: str) -> ModelProfile:
        """The model's profile on every GPU and share that was measured."""
        known: dict[str, list[int]] = {}
        for path in sorted((self._root / "models" / "block-timing-tf32").glob(f"{model}-*.csv")):
            gpu, _, share = path.stem.removeprefix(f"{model}-").partition("-")
            if share.isdigit():
                known.setdefault(gpu, []).append(int(share))
        return self._profile(model, tuple((gpu, tuple(sorted(shares))) for gpu, shares in sorted(known.items())))

    def slo_ms(self, model: str) -> float | None:
        """SLO_FACTOR times the model's mean compute time on one L4 at batch 1; None where that was not measured."""
        paths = sorted((self._root / "models" / "model-profile-tf32" / model / "L4-1" / "1").glob("*.json"))
        if not paths:
            return None
        runs = json.loads(paths[0].read_text())
        return SLO_FACTOR * statistics.fmean(run["computeMs"] for run in runs)

    def _case(self, path: Path, kind: str, algorithm: str) -> Case:
        parts = json.loads(path.read_text())
        name = path.stem.split("_bw-gbps")[0]  # ..._WEIGHTS_CLASSES_COUNTS, without weights for one model
        head, _, counts = name.rsplit("_", 2)
        weights = [float(w) for w in head.rsplit("_", 1)[1].split("-")] if len(parts) > 1 else [1.0]
        config = parts[0]["config"]
        device_classes = tuple(
            DeviceClass(gpu, int(count), float(config["bw_gbps"]), int(per_server), tuple(range(1, int(levels) + 1)))
            for gpu, count, per_server, levels in zip(
                config["gpu_name_arr"],
                counts.split("-"),
                config["num_gpu_per_server_arr"],
                config["num_mps_levels"],
                strict=True,
            )
        )
        inventory = Inventory(device_classes, ())
        classes = tuple((c.name, c.shares) for c in device_classes)
        profiles = {p["config"]["dnn_name"]: self._profile(p["config"]["dnn_name"], classes) for p in parts}
        demands = tuple(Demand(p["config"]["dnn_name"], p["sla"] / 1e3, w) for p, w in zip(parts, weights, strict=True))
        return Case(
            path=path,
            kind=kind,
            algorithm=algorithm,
            inventory=inventory,
            profiles=profiles,
            demands=demands,
            expected_fps={p["config"]["dnn_name"]: float(p["config"]["est_xput"]) for p in parts},
            slo_margin=0.1 if kind == "ablation" else 0.4,
            max_stages=int(config["max_num_parts"]),
            published=_published_plan(parts, demands, profiles, inventory),
            planned_fps=_planned_by_ppipe(path, parts),
        )

    def _read_profile(self, model: str, classes: tuple[tuple[str, tuple[int, ...]], ...]) -> ModelProfile:
        blocks = []
        for name, shares in classes:
            for share in shares:
                path = self._root / "models" / "block-timing-tf32" / f"{model}-{name}-{share}.csv"
                if path.exists():
                    table = np.loadtxt(path, delimiter=",", ndmin=2)
                    batches = tuple(range(1, table.shape[1] + 1))
                    blocks.append(BlockProfile(model, name, share, batches, table, source="published"))
        (sizes,) = (self._root / "prepartition_mappings" / model).glob("contraction_trans-size_*.csv")
        cuts = [int(float(line)) for line in sizes.read_text().split()]
        return ModelProfile(model, model, blocks[0].n_blocks, (0, *cuts, 0), tuple(blocks))


def _planned_by_ppipe(path: Path, parts: list[dict[str, Any]]) -> dict[str, float]:
    ppipe = path.with_name(f"{path.stem.rsplit('_', 1)[0]}_v4.json")
    if ppipe != path:
        parts = json.loads(ppipe.read_text())
    return {part["config"]["dnn_name"]: float(part["xput"]) for part in parts}


def _published_plan(
    parts: list[dict[str, Any]],
    demands: tuple[Demand, ...],
    profiles: dict[str, ModelProfile],
    inventory: Inventory,
) -> Plan:
    """The published plan in our types, counts rounded; times and rates are ours, for the checker to compare."""
    pipelines = []
    for demand, part in zip(demands, parts, strict=True):
        profile = profiles[demand.model]
        for number, published in enumerate(part["pipelines"]):
            stages, latency_us, capacity = [], 0.0, math.inf
            partitions = published["partitions"]
            batch = int(partitions[0]["bs"])
            for k, p in enumerate(partitions):
                first, last = p["layers"]
                here = inventory.device_class(p["gpu"])
                near = [
                    inventory.device_class(partitions[i]["gpu"])
                    for i in range(max(k - 1, 0), k + 2)
                    if i < len(partitions)
                ]
                into = transfer_us(near[0], here, profile.edge_bytes[first]) if k else 0.0
                out = transfer_us(here, near[-1], profile.edge_bytes[last]) if k + 1 < len(partitions) else 0.0
                share = int(p["mps"]) + 1
                count = round(p["num_gpu"] * share)  # published in whole GPUs
                block = profile.of(here.name, share)
                if block is None:
                    raise SystemExit(f"no block timing of {demand.model} on 1/{share} of {here.name}")
                times = tuple(float(np.maximum(block.latency_us[first:last, b], 1.0).sum()) for b in range(batch))
                latency_us += times[-1] + out * batch
                rate = min(
                    [1e6 * batch / times[-1], *(1e6 / us / share / here.devices_per_link for us in (into, out) if us)]
                )
                capacity = min(capacity, rate * count)
                stages.append(StagePlan(k, first, last, here.name, share, count, times, 0, 0, in_us=into, out_us=out))
            pipelines.append(
                Pipeline(
                    f"{demand.model}.{number}",
                    demand.model,
                    batch,
                    tuple(stages),
                    0.0,
                    capacity,
                    latency_us,
                    demand.slo_ms,
                )
            )
    objective = min(part["xput"] / demand.rate_fps for part, demand in zip(parts, demands, strict=True))
    return Plan(tuple(pipelines), demands, objective, objective, 0.0, 0.0)
