"""How fast the scheduler is: microseconds of one core per simulated request, driver and arrivals included.

A plan of 100 workers in the shape of published ones: three models, each on whole fast devices and in two stages over
slow and fast ones, links between stages, batch 1, Poisson arrivals. Prints one line a policy and setting.

    python -m framepool.benchmarks.scheduler_speed [--requests 100000] [--load 0.9]
"""

from __future__ import annotations

import argparse
import itertools
import time

from framepool.engine.scheduling.events import PlanActivated
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Source, merged, poisson
from framepool.engine.simulation.driver import Simulation
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline

NS_PER_S = 1_000_000_000
MODELS = (("small", 4.0), ("middle", 9.0), ("large", 16.0))
SLO_FACTOR = 8.0


def cluster(batch: int, scale: float = 1.0) -> PlanActivated:
    """100 workers, or `scale` times as many: per model 8 or 9 fast ones alone, and 19 slow ones before 6 fast ones."""
    made = []
    for number, (model, each_ms) in enumerate(MODELS):
        alone, slow, last = (round(count * scale) for count in (9 if number == 0 else 8, 19, 6))
        whole = (StageSketch(alone, each_ms, linked=True, device_class="fast"),)
        split = (
            StageSketch(slow, each_ms * 1.6, out_ms=0.3, linked=True, device_class="slow"),
            StageSketch(last, each_ms * 0.5, linked=True, device_class="fast"),
        )
        slo_ms = each_ms * SLO_FACTOR * batch
        for name, stages in (("whole", whole), ("split", split)):
            made.append((pipeline(f"{model}-{name}", model, stages, batch=batch, slo_ms=slo_ms), stages))
    return activated(made)


def measure(policy: str, options: SchedulerOptions, *, requests: int, load: float, batch: int) -> None:
    """Runs one setting and prints its line."""
    plan = cluster(batch)
    capacity_fps = {model: sum(made.capacity_fps for made in plan.plan.of_model(model)) * load for model, _ in MODELS}
    until_ns = round(requests / sum(capacity_fps.values()) * NS_PER_S)
    ids = itertools.count()
    arrivals = merged(
        [
            poisson(
                Source(number, model, round(each_ms * SLO_FACTOR * batch * 1e6)),
                capacity_fps[model],
                ids,
                seed=1,
                until_ns=until_ns,
            )
            for number, (model, each_ms) in enumerate(MODELS)
        ]
    )
    simulation = Simulation(make_scheduler(policy, options), plan)
    begin = time.process_time()
    result = simulation.run(arrivals)
    spent_s = time.process_time() - begin
    totals = result.totals
    print(
        f"{policy:9} batch {batch} load {load:.2f}: {spent_s / totals.ingested * 1e6:5.1f} us/request,"
        f" attainment {totals.attainment:.4f}, {totals.ingested} requests, {len(simulation.worker_ids)} workers"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=0.9)
    chosen = parser.parse_args()
    for batch in (1, 4):
        for policy, label, options in (
            ("framepool", "late", SchedulerOptions.late()),
            ("ppipe", "published", SchedulerOptions.published()),
            ("ppipe", "live", SchedulerOptions()),
            ("reactive", "live", SchedulerOptions()),
        ):
            print(f"{label:9} ", end="")
            measure(policy, options, requests=chosen.requests, load=chosen.load, batch=batch)


if __name__ == "__main__":
    main()
