"""PPipe's comparison on its own data, with framepool beside it: who carries most at 99 % attainment, and by how much.

    framepool bench study maf19 [--data DIR] [--out FOLDER] [--arrivals poisson|gamma:2|cameras:10] [--jitter 0.05]

Each case is a published question: three models (one, in ablation) on 100 GPUs of two classes. Algorithms:

    np, dart-r, ppipe        the published plans under the published data plane (policy `ppipe`, as published)
    np-best, ppipe-best      the same algorithms at their own best margin, one for all models: planned anew without
                             cuts, or with one template a class sequence
    framepool                planned without that restriction, a margin a model, and batches committed late

Margins are found by planning and simulating on seeds of their own (`SEARCH_SEEDS`) and judged on others (`SEEDS`).

Every model is simulated alone, as the reference was. A load factor is a share of the rate that PPipe's plan gives the
model; the rate that counts is absolute: at the largest load factor on the grid with enough frames in time.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from framepool import __version__
from framepool.benchmarks.published import Case, PublishedData
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.loads import Load, Trial
from framepool.engine.simulation.service import Exact, LognormalJitter

SEEDS = (1,)
SEARCH_SEEDS = (1001, 1002)
MARGINS = (0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
"""Shares of the SLO that are tried for queueing, of all models at once and then of each alone."""
ALGORITHMS = ("np", "dart-r", "ppipe", "np-best", "ppipe-best", "framepool")
PUBLISHED = {"np": "bl", "dart-r": "dart-r", "ppipe": "v4"}
FINALISTS = 3
"""So many of the best are tried again in full before one is chosen."""
COARSE = 0.5
"""The search for margins simulates so much of the time, on a grid so much coarser."""
MOST_FACTOR = 2.5
"""Load factors are looked for up to this (the reference stopped at 1)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared, and how finely."""

    kind: str
    arrivals: str = "poisson"
    jitter: float = 0.0
    seconds: float = 8.0
    grid: float = 0.01
    most: float = MOST_FACTOR
    seeds: tuple[int, ...] = SEEDS
    algorithms: tuple[str, ...] = ALGORITHMS


@dataclass(frozen=True, slots=True)
class Row:
    """One model of one case under one algorithm."""

    kind: str
    case: str
    cluster: str
    algorithm: str
    model: str
    arrivals: str
    jitter: float
    seeds: str
    margin: float
    planned_fps: float
    load_factor: float
    rate_fps: float
    seconds: float


def trial(setting: Setting, seeds: Sequence[int], algorithm: str) -> Trial:
    """How plans of `algorithm` are tried under `setting`."""
    return Trial(
        options=SchedulerOptions.late() if algorithm == "framepool" else SchedulerOptions.published(),
        load=Load(setting.arrivals),
        seconds=setting.seconds,
        seeds=tuple(seeds),
        service=LognormalJitter(setting.jitter) if setting.jitter else Exact(),
    )


def factors(case: Case, plan: Plan, how: Trial, setting: Setting) -> dict[str, float]:
    """Largest load factor of every model, as shares of what PPipe planned for it."""
    return {
        demand.model: how.largest_factor(
            plan, case.inventory, demand, case.planned_fps[demand.model], grid=setting.grid, most=setting.most
        )
        for demand in case.demands
    }


def planned(case: Case, margins: dict[str, float], algorithm: str) -> Plan:
    """The plan of the case's question by `algorithm`; a model's margin is taken off the SLO it is planned for."""
    demands = [Demand(d.model, d.slo_ms * (1 - margins[d.model]), d.rate_fps) for d in case.demands]
    options = PlannerOptions(
        slo_margin=0.0,
        max_stages=1 if algorithm == "np-best" else case.max_stages,
        restrict_sequences=algorithm == "ppipe-best",
        sharing=Sharing.POOL,
        max_batch=1024,
        enough=math.inf,
        tie_break=False,
        use_spare=False,
    )
    return solve(case.profiles, case.inventory, demands, options)


def with_found_margins(case: Case, setting: Setting, algorithm: str) -> tuple[Plan, dict[str, float]]:
    """The plan, and its margins, that carries most on the search's seeds (of all models at once, then on average):
    first one margin for all, then (framepool) each alone."""
    coarse = replace(setting, seconds=setting.seconds * COARSE, grid=setting.grid / COARSE)
    how = trial(coarse, SEARCH_SEEDS, algorithm)
    tried: dict[tuple[float, ...], tuple[tuple[float, float], Plan]] = {}
    models = [demand.model for demand in case.demands]

    def score(margins: tuple[float, ...]) -> tuple[float, float]:
        if margins not in tried:
            plan = planned(case, dict(zip(models, margins, strict=True)), algorithm)
            found = factors(case, plan, how, coarse).values()
            tried[margins] = ((min(found), statistics.fmean(found)), plan)
        return tried[margins][0]

    best = max(((margin,) * len(models) for margin in MARGINS), key=score)
    for number in range(len(models)) if algorithm == "framepool" else ():
        near = MARGINS.index(best[number])
        for neighbour in MARGINS[max(0, near - 1) : near + 2]:
            moved = (*best[:number], neighbour, *best[number + 1 :])
            if score(moved) > score(best):
                best = moved
    finest = trial(setting, SEARCH_SEEDS, algorithm)
    finalists = sorted(tried, key=score, reverse=True)[:FINALISTS]

    def fine(margins: tuple[float, ...]) -> tuple[float, float]:
        found = factors(case, tried[margins][1], finest, setting).values()
        return min(found), statistics.fmean(found)

    best = max(finalists, key=fine)
    return tried[best][1], dict(zip(models, best, strict=True))


def judged(data_dir: Path, setting: Setting, number: int, algorithm: str) -> list[Row]:
    """The rows of one case and algorithm (runs in a process of its own)."""
    began = time.perf_counter()
    data = PublishedData(data_dir)
    name = PUBLISHED.get(algorithm, "v4")
    case = list(data.cases((setting.kind,), (name,)))[number]
    if algorithm in PUBLISHED:
        plan, margins = case.published, {demand.model: case.slo_margin for demand in case.demands}
    else:
        plan, margins = with_found_margins(case, setting, algorithm)
    found = factors(case, plan, trial(setting, setting.seeds, algorithm), setting)
    spent_s = time.perf_counter() - began
    return [
        Row(
            setting.kind,
            case.path.name.split("_bw-gbps")[0],
            case.cluster,
            algorithm,
            model,
            setting.arrivals,
            setting.jitter,
            " ".join(map(str, setting.seeds)),
            margins[model],
            case.planned_fps[model],
            round(factor, 4),
            round(factor * case.planned_fps[model], 3),
            round(spent_s / len(found), 2),
        )
        for model, factor in found.items()
    ]


def run(
    data_dir: Path, setting: Setting, workers: int, first: int | None = None
) -> Iterator[tuple[int, int, list[Row]]]:
    """Rows as they come, with how many of how many parts are done."""
    cases = len(list(PublishedData(data_dir).cases((setting.kind,), ("v4",))))
    parts = [(number, algorithm) for number in range(min(cases, first or cases)) for algorithm in setting.algorithms]
    with ProcessPoolExecutor(workers) as pool:
        running = [pool.submit(judged, data_dir, setting, number, algorithm) for number, algorithm in parts]
        for done, future in enumerate(as_completed(running), 1):
            yield done, len(parts), future.result()


@dataclass(frozen=True, slots=True)
class Line:
    """An algorithm on a cluster: means over its cases.

    `load_factor` and `ratio` (of rates, to the base's) are means over a case's models; `least_ratio` is that of the
    worst case. `together` is the ratio of the load that all models of a case carry at once, each its share of it.
    """

    cluster: str
    algorithm: str
    cases: int
    load_factor: float
    ratio: float
    least_ratio: float
    together: float


def summary(rows: Sequence[Row], base: str = "ppipe") -> list[Line]:
    """Lines by cluster and algorithm, then over all. A case's ratio is the mean over its models."""
    by_case: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_case.setdefault((row.cluster, row.case, row.algorithm), []).append(row)
    together = {key: min(row.load_factor for row in found) for key, found in by_case.items()}
    bases = {key[:2]: {r.model: r.rate_fps for r in found} for key, found in by_case.items() if key[2] == base}
    lines = []
    clusters = sorted({row.cluster for row in rows})
    for cluster in (*clusters, "all"):
        for algorithm in dict.fromkeys(row.algorithm for row in rows):
            keys = [key for key in by_case if key[2] == algorithm and cluster in (key[0], "all")]
            found = [by_case[key] for key in keys]
            shares = [together[key] / least for key in keys if (least := together.get((*key[:2], base)))]
            ratios = [
                statistics.fmean(r.rate_fps / known[r.model] for r in rows_)
                for rows_ in found
                if (known := bases.get((rows_[0].cluster, rows_[0].case))) and all(known.values())
            ]
            factors_ = [statistics.fmean(r.load_factor for r in rows_) for rows_ in found]
            if found:
                lines.append(
                    Line(
                        cluster, algorithm, len(found), statistics.fmean(factors_),
                        statistics.fmean(ratios) if ratios else math.nan, min(ratios, default=math.nan),
                        statistics.fmean(shares) if shares else math.nan,
                    )
                )  # fmt: skip
    return lines


def write(rows: Sequence[Row], setting: Setting, folder: Path) -> None:
    """Rows and summary as CSV and JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rows, key=lambda r: (r.case, r.algorithm, r.model))
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(ordered[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in ordered)
    value = {
        "setting": asdict(setting),
        "machine": {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()},
        "framepool": __version__,
        "summary": [asdict(line) for line in summary(ordered)],
        "rows": [asdict(row) for row in ordered],
    }
    (folder / "study.json").write_text(json.dumps(value, indent=1) + "\n")
