"""A simulation with every scheduler invariant checked after each event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from framepool.engine.scheduling.commands import Command
from framepool.engine.scheduling.events import Event, PlanActivated
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.validation import validate_state
from framepool.engine.simulation.driver import Simulation, SimulationOptions


@pytest.fixture(params=["framepool", "ppipe", "reactive"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_simulation() -> Callable[..., Simulation]:
    def make(
        policy: str,
        plan: PlanActivated,
        scheduling: SchedulerOptions | None = None,
        trace: list[tuple[int, Event, tuple[Command, ...]]] | None = None,
        **options: object,
    ) -> Simulation:
        scheduler = make_scheduler(policy, scheduling or SchedulerOptions())

        def observe(now_ns: int, event: Event, commands: list[Command]) -> None:
            validate_state(scheduler)
            if trace is not None:
                trace.append((now_ns, event, tuple(commands)))

        return Simulation(scheduler, plan, SimulationOptions(**options), observe=observe)  # type: ignore[arg-type]

    return make
