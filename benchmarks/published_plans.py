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
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from framepool.benchmarks import DATA_VARIABLE
from framepool.benchmarks.published import ALGORITHMS, KINDS, Case, PublishedData
from framepool.engine.planning.checker import check_plan
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve

_CHECK_TOLERANCE = 4e-7  # published counts are floats near whole numbers: rounding them moves z by this share
_WORSE = 1e-6  # a plan of ours below the published objective by more than this share is worse


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
    parser.add_argument("--time-limit", type=float, default=18.0, metavar="S", help="seconds a search may take")
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
