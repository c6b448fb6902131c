"""Compares the planner with PPipe's published plans.

    python -m framepool.benchmarks.published_plans --data FOLDER [--kinds ablation] [--first 3] [--check-only]

FOLDER (or the environment's FRAMEPOOL_PPIPE_DATA) is the data folder of PPipe's artifact: block timings, cut sizes,
plans. Two questions are answered: does the checker reproduce every published objective from the rounded counts, and
what does the planner reach on the same question, how sure, and how fast. The batch-building rate is taken from each
published plan (`est_xput`), so both plan the same program.

Reads files and prints; the planning itself is that of `framepool.engine.planning`. Exits with 1 when the checker
disagrees with a published plan, or a plan of ours is unsound or worse than the published one.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from framepool.engine.planning.checker import check_plan
from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.planning.templates import transfer_us
from framepool.models.profile import BlockProfile, ModelProfile

DATA_VARIABLE = "FRAMEPOOL_PPIPE_DATA"
KINDS = ("maf19", "maf21", "ablation")
ALGORITHMS = ("bl", "dart-r", "v4")  # no partition, DART-r, PPipe
_CHECK_TOLERANCE = 4e-7  # published counts are floats near whole numbers: rounding them moves z by this share
_WORSE = 1e-6  # a plan of ours below the published objective by more than this share is worse


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


def check(data: PublishedData, kinds: Sequence[str], first: int | None) -> int:
    """Recomputes the published plans; returns how many the checker does not reproduce."""
    worst, bad, total = 0.0, 0, 0
    for case in data.cases(kinds, ALGORITHMS, first):
        # Rates are set to what z needs, so that only the plan's substance is judged.
        report = check_plan(
            case.published,
            case.profiles,
            case.inventory,
            slo_margin=case.slo_margin,
            sharing=Sharing.POOL,
            expected_fps=case.expected_fps,
            tolerance=_CHECK_TOLERANCE,
        )
        problems = [p for p in report.problems if "fps served" not in p]
        error = abs(report.objective / case.published.objective - 1)
        worst, total = max(worst, error), total + 1
        if problems or error > _CHECK_TOLERANCE:
            bad += 1
            print(f"{case.path.name}: {'; '.join(problems) or f'objective differs by {error:.1e}'}")
    print(f"checker: {total - bad} of {total} published objectives reproduced, largest relative error {worst:.2g}")
    return bad


def compare(data: PublishedData, kinds: Sequence[str], first: int | None, options: PlannerOptions) -> int:
    """Solves every v4 question and prints ratio to the published objective, gap and seconds.

    Returns how many plans are unsound or worse than the published ones.
    """
    bad = 0
    for kind in kinds:
        ratios, gaps, seconds = [], [], []
        for case in data.cases((kind,), ("v4",), first):
            began = time.perf_counter()
            plan = solve(
                case.profiles,
                case.inventory,
                case.demands,
                _of_case(options, case),
                expected_fps=case.expected_fps,
            )
            took = time.perf_counter() - began
            report = check_plan(
                plan,
                case.profiles,
                case.inventory,
                slo_margin=case.slo_margin,
                sharing=Sharing.POOL,
                expected_fps=case.expected_fps,
            )
            ratio = report.objective / case.published.objective
            ratios.append(ratio)
            gaps.append(plan.gap)
            seconds.append(took)
            bad += bool(report.problems) or ratio < 1 - _WORSE
            note = f"  UNSOUND: {report.problems[0]}" if report.problems else ""
            print(f"{kind} {ratio:.6f} gap {plan.gap:.1e} {took:6.2f} s  {case.path.name[:90]}{note}", flush=True)
        if not ratios:
            continue
        print(
            f"{kind}: {len(ratios)} plans, ratio min {min(ratios):.6f} max {max(ratios):.4f},"
            f" below 1 - {_WORSE:g}: {sum(r < 1 - _WORSE for r in ratios)}, gap max {max(gaps):.1e},"
            f" above 1e-4: {sum(g > 1e-4 for g in gaps)}, seconds median {statistics.median(seconds):.2f}"
            f" max {max(seconds):.2f}"
        )
    return bad


def _of_case(options: PlannerOptions, case: Case) -> PlannerOptions:
    return replace(options, slo_margin=case.slo_margin, max_stages=case.max_stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get(DATA_VARIABLE),
        help=f"data folder of PPipe's artifact (default: ${DATA_VARIABLE})",
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--first", type=int, metavar="N", help="only the first N plans of each kind")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="S", help="seconds a search step may take")
    parser.add_argument("--restrict", action="store_true", help="PPipe's restriction: one template per class sequence")
    parser.add_argument("--check-only", action="store_true", help="only recompute the published plans")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error(f"no data folder: give --data, or set {DATA_VARIABLE}")
    if not (arguments.data / "plans").is_dir():
        parser.error(f"{arguments.data} has no folder 'plans'; give the data folder of PPipe's artifact")
    data = PublishedData(arguments.data)
    bad = check(data, arguments.kinds, arguments.first)
    if not arguments.check_only:
        options = PlannerOptions(
            sharing=Sharing.POOL,
            restrict_sequences=arguments.restrict,
            max_batch=1024,  # as far as the timings go
            enough=math.inf,
            tie_break=False,
            use_spare=False,
            time_limit_s=arguments.time_limit,
        )
        bad += compare(data, arguments.kinds, arguments.first, options)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
