"""PPipe's comparison on its own data, with framepool beside it: who carries most at 99 % attainment, and by how much.

    framepool bench study maf19 [--data DIR] [--out FOLDER] [--arrivals poisson|gamma:2|cameras:10] [--jitter 0.05]

Each case is a published question: three models (one, in ablation) on 100 GPUs of two classes. Algorithms:

    np, dart-r, ppipe        the published plans under the published data plane (policy `ppipe`, as published)
    reactive                 PPipe's published plans under the policy `reactive`
    np-best, dart-r-best,    the same planners at their own best margin, one for all models, found by simulation:
    ppipe-best               without cuts; one chain of whole devices a model; one template a class sequence
    framepool                no margin: queueing foreseen, simulated, corrected (`engine.simulation.tuning`), under the
                             policy `framepool`

and, to see what each part brings (`PARTS`), PPipe's published plans under our policy (`+policy`), our planner at one
margin for all under the published data plane (`+planner`), the same with our policy (`+planner+policy`), and our tuned
plans under the published data plane (`+tuning`).

Margins and plans are found on seeds of their own (`SEARCH_SEEDS`) and judged on others (`SEEDS`). Every model is
simulated alone, as the reference was. A load factor is a share of the rate that PPipe's plan gives the model; what
counts is absolute: the rate at the largest load factor on the grid with enough frames in time. What a case carries
*at once* is the load at which each of its models, with its weight in the question, still has enough frames in time.
"""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from framepool import __version__
from framepool.benchmarks.published import Case, PublishedData
from framepool.engine.planning.errors import PlanInfeasibleError
from framepool.engine.planning.plan import Demand, Plan
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.loads import RESERVE_OF_JITTER, Load, Trial
from framepool.engine.simulation.service import Exact, LognormalJitter
from framepool.engine.simulation.trying import utilisation
from framepool.engine.simulation.tuning import tuned

SEEDS = (1,)
SEARCH_SEEDS = (1001, 1002)
MARGINS = (0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
"""Shares of the SLO that are tried for queueing."""
FINALISTS = 3
"""So many of the best are tried again in full before one is chosen."""
COARSE = 0.5
"""The search for margins simulates so much of the time, on a grid so much coarser."""
MOST_FACTOR = 2.5
"""Load factors are looked for up to this (the reference stopped at 1)."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`plans`: "bl", "dart-r" or "v4" as published; "np", "chains", "ppipe" or "free" at the best margin; or "tuned".
    `policy` and `ours`: the scheduling policy, with our settings or as published."""

    plans: str
    policy: str = "ppipe"
    ours: bool = False

    @property
    def published(self) -> bool:
        return self.plans in ("bl", "dart-r", "v4")

    @property
    def options(self) -> SchedulerOptions:
        return SchedulerOptions.late() if self.ours else SchedulerOptions.published()


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "np": Algorithm("bl"),
        "dart-r": Algorithm("dart-r"),
        "ppipe": Algorithm("v4"),
        "reactive": Algorithm("v4", "reactive"),
        "np-best": Algorithm("np"),
        "dart-r-best": Algorithm("chains"),
        "ppipe-best": Algorithm("ppipe"),
        "framepool": Algorithm("tuned", "framepool", ours=True),
        "+policy": Algorithm("v4", "framepool", ours=True),
        "+planner": Algorithm("free"),
        "+planner+policy": Algorithm("free", "framepool", ours=True),
        "+tuning": Algorithm("tuned"),
    }
)
USUAL = ("np", "dart-r", "ppipe", "np-best", "dart-r-best", "ppipe-best", "framepool")
PARTS = ("ppipe", "+policy", "+planner", "+planner+policy", "+tuning", "framepool")


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
    algorithms: tuple[str, ...] = USUAL


@dataclass(frozen=True, slots=True)
class Row:
    """One model of one case under one algorithm. `margin`: the share of the SLO kept free (nan: none was set).
    `carried`: `rate_fps` by the model's weight in the question. `utilisation`: at that rate, of the devices the model
    has, "class share class share". `found_s`: to find the plan; `request_us`: to simulate a frame."""

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
    carried: float
    utilisation: str
    found_s: float
    request_us: float


def trial(setting: Setting, seeds: Sequence[int], algorithm: Algorithm) -> Trial:
    """How plans of `algorithm` are tried under `setting`."""
    return Trial(
        policy=algorithm.policy,
        options=algorithm.options,
        load=Load(setting.arrivals),
        seconds=setting.seconds,
        seeds=tuple(seeds),
        service=LognormalJitter(setting.jitter) if setting.jitter else Exact(),
        reserve=RESERVE_OF_JITTER * setting.jitter if algorithm.ours else 0.0,
    )


def factors(case: Case, plan: Plan, how: Trial, setting: Setting) -> dict[str, float]:
    """Largest load factor of every model, as shares of what PPipe planned for it."""
    return {
        demand.model: how.largest_factor(
            plan, case.inventory, demand, case.planned_fps[demand.model], grid=setting.grid, most=setting.most
        )
        for demand in case.demands
    }


def carried(case: Case, found: Mapping[str, float]) -> tuple[float, float]:
    """From load factors: the load that all models of the case carry at once, and the mean of what each does."""
    shares = [found[d.model] * case.planned_fps[d.model] / d.rate_fps for d in case.demands]
    return min(shares), statistics.fmean(shares)


def planner_options(case: Case, plans: str) -> PlannerOptions:
    return PlannerOptions(
        slo_margin=0.0,
        max_stages=1 if plans == "np" else case.max_stages,
        restrict_sequences=plans == "ppipe",
        chains=plans == "chains",
        sharing=Sharing.POOL,
        max_batch=1024,
        enough=math.inf,
        tie_break=False,
        use_spare=False,
        gap=1e-3,
        time_limit_s=2.0,
    )


def planned(case: Case, margin: float, plans: str) -> Plan:
    """The plan of the case's question with `margin` of each SLO taken off."""
    demands = [Demand(d.model, d.slo_ms * (1 - margin), d.rate_fps) for d in case.demands]
    return solve(case.profiles, case.inventory, demands, planner_options(case, plans))


def with_best_margin(case: Case, setting: Setting, algorithm: Algorithm) -> tuple[Plan, float]:
    """The plan, and its margin, that carries most on the search's seeds: of all models at once, then on average."""
    coarse = replace(setting, seconds=setting.seconds * COARSE, grid=setting.grid / COARSE)
    roughly, finely = trial(coarse, SEARCH_SEEDS, algorithm), trial(setting, SEARCH_SEEDS, algorithm)
    plans: dict[float, Plan] = {}
    for margin in MARGINS:
        try:
            plans[margin] = planned(case, margin, algorithm.plans)
        except PlanInfeasibleError:
            continue
    scores = {margin: carried(case, factors(case, plan, roughly, coarse)) for margin, plan in plans.items()}
    finalists = sorted(scores, key=lambda margin: scores[margin], reverse=True)[:FINALISTS]
    best = max(finalists, key=lambda margin: carried(case, factors(case, plans[margin], finely, setting)))
    return plans[best], best


def found_plan(case: Case, setting: Setting, algorithm: Algorithm) -> tuple[Plan, float]:
    """The algorithm's plan for the case, and its margin."""
    if algorithm.published:
        return case.published, case.slo_margin
    if algorithm.plans != "tuned":
        return with_best_margin(case, setting, algorithm)
    how = trial(setting, SEARCH_SEEDS, algorithm)
    found = tuned(
        case.profiles, case.inventory, case.demands, planner_options(case, "free"), how, gap_cv=how.load.gap_cv
    )
    return found.plan, math.nan


def judged(data_dir: Path, setting: Setting, number: int, name: str) -> list[Row]:
    """The rows of one case and algorithm (runs in a process of its own)."""
    algorithm = ALGORITHMS[name]
    data = PublishedData(data_dir)
    case = list(data.cases((setting.kind,), (algorithm.plans if algorithm.published else "v4",)))[number]
    began = time.perf_counter()
    plan, margin = found_plan(case, setting, algorithm)
    found_s = time.perf_counter() - began
    how = trial(setting, setting.seeds, algorithm)
    rows = []
    for demand in case.demands:
        planned_fps = case.planned_fps[demand.model]
        factor = factors(replace(case, demands=(demand,)), plan, how, setting)[demand.model]
        busy, request_us = _at(case, plan, demand, how, factor * planned_fps)
        rows.append(
            Row(
                setting.kind,
                case.path.name.split("_bw-gbps")[0],
                case.cluster,
                name,
                demand.model,
                setting.arrivals,
                setting.jitter,
                " ".join(map(str, setting.seeds)),
                margin,
                planned_fps,
                round(factor, 4),
                round(factor * planned_fps, 3),
                round(factor * planned_fps / demand.rate_fps, 3),
                busy,
                round(found_s / len(case.demands), 2),
                round(request_us, 1),
            )
        )
    return rows


def _at(case: Case, plan: Plan, demand: Demand, how: Trial, rate_fps: float) -> tuple[str, float]:
    """Utilisation of the model's devices at a rate, and what simulating a frame took (us)."""
    if not rate_fps:
        return "", math.nan
    began = time.perf_counter()
    result = how.run(plan, case.inventory, demand, rate_fps, how.seeds[0])
    request_us = (time.perf_counter() - began) / result.totals.ended * 1e6
    shares = utilisation(Plan(plan.of_model(demand.model), (demand,), 1.0, 1.0, 0.0, 0.0), result.busy_ns, how.seconds)
    return " ".join(f"{name} {share:.3f}" for name, share in shares.items()), request_us


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

    `load_factor` and `ratio` (of rates, to the base's) are means over a case's models, `together` is the ratio of what
    a case carries at once; each with that of the worst case.
    """

    cluster: str
    algorithm: str
    cases: int
    load_factor: float
    ratio: float
    least_ratio: float
    together: float
    least_together: float


def summary(rows: Sequence[Row], base: str = "ppipe") -> list[Line]:
    """Lines by cluster and algorithm, then over all. Ratios are nan where the base was not run."""
    by_case: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault((row.cluster, row.case, row.algorithm), {})[row.model] = row
    lines = []
    for cluster in (*sorted({row.cluster for row in rows}), "all"):
        for algorithm in dict.fromkeys(row.algorithm for row in rows):
            found = [
                (of_models, by_case.get((key[0], key[1], base), {}))
                for key, of_models in by_case.items()
                if key[2] == algorithm and cluster in (key[0], "all")
            ]
            ratios = [
                statistics.fmean(mine[model].rate_fps / theirs[model].rate_fps for model in mine)
                for mine, theirs in found
                if theirs and all(row.rate_fps for row in theirs.values())
            ]
            at_once = [
                min(row.carried for row in mine.values()) / least
                for mine, theirs in found
                if theirs and (least := min(row.carried for row in theirs.values()))
            ]
            if found:
                lines.append(
                    Line(
                        cluster,
                        algorithm,
                        len(found),
                        statistics.fmean(row.load_factor for mine, _ in found for row in mine.values()),
                        statistics.fmean(ratios or [math.nan]),
                        min(ratios, default=math.nan),
                        statistics.fmean(at_once or [math.nan]),
                        min(at_once, default=math.nan),
                    )
                )
    return lines


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm's plans on a cluster do and take, means over cases: frames a second of all models, each alone;
    by class the busy share of the devices in use; seconds to find the plan and microseconds to simulate a frame."""

    cluster: str
    algorithm: str
    throughput_fps: float
    utilisation: dict[str, float]
    found_s: float
    request_us: float


def costs(rows: Sequence[Row]) -> list[Cost]:
    """Costs by cluster and algorithm."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.cluster, row.algorithm), []).append(row)
    out = []
    for (cluster, algorithm), mine in sorted(found.items()):
        busy: dict[str, list[float]] = {}
        for row in mine:
            words = row.utilisation.split()
            for name, share in zip(words[::2], words[1::2], strict=True):
                busy.setdefault(name, []).append(float(share))
        cases = len({row.case for row in mine})
        out.append(
            Cost(
                cluster,
                algorithm,
                sum(row.rate_fps for row in mine) / cases,
                {name: statistics.fmean(shares) for name, shares in sorted(busy.items())},
                sum(row.found_s for row in mine) / cases,
                statistics.fmean([row.request_us for row in mine if not math.isnan(row.request_us)] or [math.nan]),
            )
        )
    return out


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
        "costs": [asdict(cost) for cost in costs(ordered)],
        "rows": [asdict(row) for row in ordered],
    }
    (folder / "study.json").write_text(json.dumps(value, indent=1) + "\n")
