"""A desk at which events go in and commands come out, with every invariant checked after each event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, WakeAt
from framepool.engine.scheduling.events import (
    DropReason,
    Event,
    Frame,
    FrameArrived,
    PlanActivated,
    ServiceClass,
    StageFinished,
    WorkerUp,
)
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.validation import validate_state

MS = 1_000_000


class Desk:
    """Times are milliseconds. `sent` holds every Dispatch by batch id, `ended` how each frame ended."""

    def __init__(self, policy: str, options: SchedulerOptions) -> None:
        self.scheduler = make_scheduler(policy, options)
        self.sent: dict[int, Dispatch] = {}
        self.ended: dict[int, DropReason | bool] = {}
        self.wake_ms: float | None = None

    def tell(self, event: Event, at_ms: float) -> list[Command]:
        """What the scheduler answers, wake-ups left out (see `wake_ms`)."""
        commands = self.scheduler.handle(event, round(at_ms * MS))
        validate_state(self.scheduler)
        told: list[Command] = []
        for command in commands:
            if isinstance(command, WakeAt):
                self.wake_ms = command.at_ns / MS
                continue
            if isinstance(command, Dispatch):
                assert command.batch_id not in self.sent
                self.sent[command.batch_id] = command
            else:
                assert command.frame_id not in self.ended, f"frame {command.frame_id} ended twice"
                self.ended[command.frame_id] = command.reason if isinstance(command, Drop) else command.in_time
            told.append(command)
        return told

    def activate(self, plan: PlanActivated, at_ms: float = 0.0, *, up: bool = True) -> list[Command]:
        told = self.tell(plan, at_ms)
        for worker_ids in plan.workers.values() if up else ():
            for worker_id in worker_ids:
                told += self.tell(WorkerUp(worker_id), at_ms)
        return told

    def arrive(
        self,
        frame_id: int,
        at_ms: float,
        *,
        slo_ms: float = 100.0,
        stream: int = 0,
        model: str = "m",
        offline: bool = False,
    ) -> list[Command]:
        """A frame captured this moment."""
        now_ns = round(at_ms * MS)
        service = ServiceClass.OFFLINE if offline else ServiceClass.LIVE
        frame = Frame(frame_id, stream, model, now_ns, now_ns + round(slo_ms * MS), service)
        return self.tell(FrameArrived(frame), at_ms)

    def finish(self, dispatch: Dispatch, at_ms: float | None = None, *, hop: int = 0) -> list[Command]:
        """The hop ran as reserved, or up to `at_ms`."""
        part = dispatch.hops[hop]
        end_ns = part.end_ns if at_ms is None else round(at_ms * MS)
        event = StageFinished(dispatch.batch_id, part.stage, part.worker_id, min(part.start_ns, end_ns), end_ns)
        return self.tell(event, end_ns / MS)


MakeDesk = Callable[..., Desk]


@pytest.fixture(params=["framepool", "ppipe", "reactive"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_desk() -> MakeDesk:
    """A desk with no reserves, so that times in tests are exact; keywords change options."""

    def make(policy: str = "ppipe", **changes: object) -> Desk:
        exact: dict[str, object] = {
            "publish_reserve_ns": 0,
            "start_slack_ns": 0,
            "commit_ahead_ns": 0,
            "service_learning": 0.0,
        }
        return Desk(policy, SchedulerOptions(**{**exact, **changes}))  # type: ignore[arg-type]

    return make


__all__ = ["Complete", "Desk", "MakeDesk"]
