"""Random faults against a driver that reports truly: when all is quiet nothing is left behind, and no frame waits past
its deadline on the way there, although the only help is the scheduler's own wake-ups."""

from __future__ import annotations

import itertools
import random

import pytest

from framepool.engine.planning.plan import Plan
from framepool.engine.scheduling.commands import Command
from framepool.engine.scheduling.events import DropReason, Event, PlanActivated, StreamRemoved, WorkerLost, WorkerUp
from framepool.engine.scheduling.options import FirstLook, SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.validation import validate_state
from framepool.engine.simulation.arrivals import Source, camera, merged, poisson
from framepool.engine.simulation.driver import OfflineFile, Simulation, SimulationOptions
from framepool.engine.simulation.handmade import StageSketch, activated, pipeline
from framepool.engine.simulation.service import Exact, LognormalJitter

MS = 1_000_000
THREE = [
    StageSketch(2, 3.0, base_ms=2.0, out_ms=0.5, linked=True),
    StageSketch(2, 2.0, out_ms=0.3, linked=True),
    StageSketch(1, 2.0, linked=True),
]
WHOLE = [StageSketch(1, 9.0)]
OTHER = [StageSketch(1, 4.0), StageSketch(1, 4.0)]
FULL = activated(
    [
        (pipeline("three", "m", THREE, batch=3), THREE),
        (pipeline("whole", "m", WHOLE, batch=2), WHOLE),
        (pipeline("other", "n", OTHER), OTHER),
    ]
)
PLANS = (
    FULL,
    activated([(pipeline("three", "m", THREE, batch=2), THREE)]),
    activated([(pipeline("whole", "n", WHOLE), WHOLE), (pipeline("three", "m", THREE, batch=3), THREE)]),
    PlanActivated(Plan((), (), 1.0, 1.0, 0.0, 0.0), {}, {}),
)
WORKERS = sorted({worker for plan in PLANS for ids in plan.workers.values() for worker in ids})
UNTIL_MS = 800


def random_script(rng: random.Random) -> list[tuple[int, Event]]:
    """Workers that die (some for good), plans that come and go, streams that are removed."""
    script: list[tuple[int, Event]] = []
    for _ in range(rng.randrange(12)):
        worker_id, at_ms = rng.choice(WORKERS), rng.randrange(UNTIL_MS)
        script.append((at_ms * MS + rng.randrange(MS), WorkerLost(worker_id)))
        if rng.random() < 0.7:
            script.append(((at_ms + rng.randrange(1, 150)) * MS, WorkerUp(worker_id)))
    for _ in range(rng.randrange(4)):
        script.append((rng.randrange(UNTIL_MS) * MS, rng.choice(PLANS)))
    if rng.random() < 0.5:
        script.append((UNTIL_MS * MS, StreamRemoved(rng.randrange(4))))
    return script


@pytest.mark.parametrize("seed", range(60))
def test_every_frame_ends_in_time_or_is_given_up_by_its_deadline(policy, seed):
    rng = random.Random(seed)
    options = SchedulerOptions(
        publish_reserve_ns=rng.choice([0, 2 * MS]),
        start_slack_ns=rng.choice([0, 5 * MS]),
        commit_ahead_ns=rng.choice([None, 0, 3 * MS]),
        hold_to_fill=rng.random() < 0.3,
        first_look=rng.choice(list(FirstLook)),
        max_inflight_per_pipeline=rng.choice([1, 256]),
        service_learning=rng.choice([0.0, 0.1]),
        report_timeout_ns=500 * MS,
    )
    scheduler = make_scheduler(policy, options)
    state = scheduler.state

    def observe(now_ns: int, event: Event, commands: list[Command]) -> None:
        validate_state(scheduler)
        for entry in state.ledger.entries.values():
            if entry.live and entry.queue is not None:
                assert entry.deadline_ns >= now_ns, f"frame {entry.id} waits past its deadline"

    simulation = Simulation(
        scheduler,
        FULL,
        SimulationOptions(
            seed=seed,
            service=rng.choice([Exact(), LognormalJitter(0.3), LognormalJitter(0.1, mean=2.0)]),
            report_delay_ns=rng.choice([0, MS]),
            slots_per_stream=rng.choice([0, 3]),
            keep_rows=True,
        ),
        observe=observe,
    )
    ids = itertools.count()
    until_ns = UNTIL_MS * MS
    arrivals = merged(
        [
            poisson(Source(0, "m", 60 * MS), rng.choice([50, 200, 600]), ids, seed=seed, until_ns=until_ns),
            camera(Source(1, "m", 120 * MS), 30, ids, until_ns=until_ns),
            poisson(Source(2, "n", 40 * MS), rng.choice([20, 150, 400]), ids, seed=seed, until_ns=until_ns),
        ]
    )
    end: list[tuple[int, Event]] = [(5_000 * MS, FULL)]  # long after the last frame: only offline ones are left
    for worker_id in WORKERS:
        end.append((5_001 * MS, WorkerUp(worker_id)))
    result = simulation.run(arrivals, random_script(rng) + end, [OfflineFile(3, "m", 60)])

    assert result.totals.open == 0
    assert state.ledger.ingested == state.ledger.completed + state.ledger.dropped_total == result.totals.ingested
    assert (state.batches, state.abandoned) == ({}, {})
    assert not any(worker.bookings for worker in state.workers.values())
    for row in result.frames:
        if row.stream_id == 3:
            assert row.dropped in (None, DropReason.STREAM_REMOVED, DropReason.ERROR)
