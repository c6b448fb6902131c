"""What a policy is: the part of the scheduler that decides which frames go where and when.

The core keeps the books (frames end once, batches, workers); a policy is asked at each point where there is something
to decide, and acts through `SchedulerState.send` and `SchedulerState.drop`. A new policy is one file with this
interface and one line in registry.py.
"""

from __future__ import annotations

from typing import Protocol

from framepool.engine.scheduling.batches import Batch
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.routes import Lane


class Policy(Protocol):
    """Times are `now_ns` of the event at hand. A policy keeps its frames in `WaitingQueue`s of the lane."""

    def enqueue(self, lane: Lane, entry: Entry, now_ns: int) -> None:
        """A live frame waits from now on: fresh, or back from a batch that was lost."""
        ...

    def advance(self, lane: Lane, batch: Batch, now_ns: int) -> None:
        """A batch ended short of its pipeline's last stage: its members go on from there."""
        ...

    def reroute(self, lane: Lane, now_ns: int) -> None:
        """The lane's routes are others, or a pool lost its last worker: waiting frames bound to one are bound anew."""
        ...

    def pump(self, lane: Lane, now_ns: int) -> None:
        """Send, drop or leave waiting; set `lane.wake_ns` to when to ask again (an event may come first)."""
        ...
