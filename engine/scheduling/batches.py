"""A batch in flight: which frames, which workers, how far it has come. Owned by the scheduler's state."""

from __future__ import annotations

from framepool.engine.scheduling.commands import Hop
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.routes import Route
from framepool.engine.scheduling.workers import Worker


class Batch:
    """Invariant: hops before `done` are finished; each later one before `until` has a booking on its worker.

    `until` is the number of hops, less those that an abandoned batch will never reach. `entries` are the frames it was
    sent with, in batch order; one that ended or moved on meanwhile has another `entry.batch`. `report_by_ns`: without
    a report until then it counts as lost.
    """

    __slots__ = ("done", "entries", "hops", "id", "report_by_ns", "route", "until", "workers")

    def __init__(
        self,
        batch_id: int,
        route: Route,
        entries: list[Entry],
        hops: tuple[Hop, ...],
        workers: list[Worker],
        report_by_ns: int,
    ) -> None:
        self.id = batch_id
        self.route = route
        self.entries = entries
        self.hops = hops
        self.workers = workers
        self.done = 0
        self.until = len(hops)
        self.report_by_ns = report_by_ns

    def members(self) -> list[Entry]:
        """The frames that still end with this batch."""
        return [entry for entry in self.entries if entry.batch is self]
