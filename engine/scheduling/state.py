"""What every policy works on: frames, batches, workers, lanes, and the verbs that change them together.

Duty: the moves that must never be half done (a frame ends, a batch is sent, a batch is lost), each in one place, each
leaving the commands that tell the driver in `out`. It decides neither what to send nor when.
"""

from __future__ import annotations

from framepool.engine.planning.plan import Plan
from framepool.engine.scheduling.batches import Batch
from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, Hop
from framepool.engine.scheduling.events import DropReason, PlanActivated
from framepool.engine.scheduling.ledger import Entry, Ledger
from framepool.engine.scheduling.options import FAR_FUTURE_NS, SchedulerOptions
from framepool.engine.scheduling.reservation import Reservations
from framepool.engine.scheduling.routes import Lane, Route
from framepool.engine.scheduling.workers import Link, Worker


class SchedulerState:
    """All state of a scheduler. `out` collects the commands of the event being handled.

    `batches` are those whose frames are in flight, `abandoned` those whose frames are not any more, but of which
    workers still run parts; both by id, in the order sent and given up. `reservations`: how routes are probed and
    booked; a policy may put its own there.
    """

    __slots__ = (
        "abandoned",
        "batches",
        "lanes",
        "last_batch_id",
        "ledger",
        "links",
        "options",
        "out",
        "plan",
        "reservations",
        "workers",
    )

    def __init__(self, options: SchedulerOptions) -> None:
        self.options = options
        self.reservations = Reservations()
        self.ledger = Ledger()
        self.lanes: dict[str, Lane] = {}
        self.workers: dict[str, Worker] = {}
        self.links: dict[str, Link] = {}
        self.batches: dict[int, Batch] = {}
        self.abandoned: dict[int, Batch] = {}
        self.last_batch_id = 0
        self.plan: Plan | None = None
        self.out: list[Command] = []

    def lane(self, model: str) -> Lane:
        """The model's lane, made where there is none."""
        lane = self.lanes.get(model)
        if lane is None:
            lane = self.lanes[model] = Lane(model, FAR_FUTURE_NS)
        return lane

    def drop(self, entry: Entry, reason: DropReason) -> None:
        """Ends an open frame without detections. One that lost its worker and was not saved ends for that reason."""
        if entry.lost and reason in (DropReason.STALE, DropReason.INFEASIBLE):
            reason = DropReason.WORKER_LOST
        if entry.queue is not None:
            entry.queue.remove(entry)
        self.ledger.close(entry)
        self.ledger.dropped[reason] += 1
        self.out.append(Drop(entry.id, reason))

    def complete(self, entry: Entry, now_ns: int) -> None:
        """Ends an open frame whose detections are published."""
        self.ledger.close(entry)
        self.ledger.completed += 1
        self.out.append(Complete(entry.id, now_ns <= entry.deadline_ns))

    def send(self, route: Route, entries: list[Entry], now_ns: int, *, latest_end_ns: int) -> Batch:
        """Sends `entries` (no longer queued) over the picks of the route's last probe, made for that many frames."""
        batch_id = self.new_batch_id()
        hops, workers = self.reservations.committed(route, len(entries), batch_id, now_ns, latest_end_ns)
        return self.launch(batch_id, route, entries, hops, workers)

    def new_batch_id(self) -> int:
        self.last_batch_id += 1
        return self.last_batch_id

    def launch(
        self, batch_id: int, route: Route, entries: list[Entry], hops: tuple[Hop, ...], workers: list[Worker]
    ) -> Batch:
        """Records and commands a batch whose hops are booked."""
        batch = Batch(batch_id, route, entries, hops, workers, hops[-1].end_ns + self.options.report_timeout_ns)
        self.batches[batch_id] = batch
        route.inflight += 1
        for entry in entries:
            entry.batch = batch
            entry.attempts += 1
        self.out.append(Dispatch(batch_id, route.id, tuple([entry.id for entry in entries]), hops))
        return batch

    def finish(self, batch: Batch) -> None:
        """Takes a batch off the books that ran to its last hop."""
        del self.batches[batch.id]
        batch.route.inflight -= 1

    def abandon(self, batch: Batch, from_hop: int) -> list[Entry]:
        """Takes a batch off the books that will not run from hop `from_hop` on; returns the frames it strands.

        Hops before it may still run (their workers can't be told) and stay booked until they report.
        """
        self.finish(batch)
        self.abandoned[batch.id] = batch
        self.curtail(batch, from_hop)
        stranded = batch.members()
        for entry in stranded:
            entry.batch = None
        return stranded

    def curtail(self, batch: Batch, from_hop: int) -> None:
        """An abandoned batch will not run from hop `from_hop` on; forgets it when nothing is left to run."""
        for worker in batch.workers[from_hop : batch.until]:
            worker.cancel(batch.id)
        batch.until = from_hop
        if batch.done >= from_hop:
            del self.abandoned[batch.id]

    def adopt(self, event: PlanActivated) -> None:
        """Makes the routes of a new plan. Workers keep what they are doing; queues of lanes stay; batches fly on.

        What was learned of latencies is carried over where the pipeline is the same. Raises ValueError, with nothing
        changed, when a worker is listed twice.
        """
        listed = [worker_id for ids in event.workers.values() for worker_id in ids]
        if len(set(listed)) < len(listed):
            twice = sorted({worker_id for worker_id in listed if listed.count(worker_id) > 1})
            raise ValueError(f"workers {twice} are listed twice in the plan; each can run one stage only")
        for worker in self.workers.values():
            worker.pool = None
        before: dict[str, Route] = {}
        for lane in self.lanes.values():
            before.update((route.id, route) for route in lane.routes)
            lane.routes = []
        for pipeline in event.plan.pipelines:
            lane = self.lane(pipeline.model)
            route = Route(pipeline, lane.counts)
            lane.routes.append(route)
            old = before.get(route.id)
            for pool in route.pools:
                if old is not None and old.same_stages(route):
                    pool.rescale(old.pools[pool.stage].scale)
                for worker_id in event.workers.get((pipeline.id, pool.stage), ()):
                    worker = self.worker(worker_id)
                    link_id = event.links.get(worker_id)
                    worker.link = None if link_id is None else self.link(link_id)
                    pool.enlist(worker)
            route.refresh()
            route.set_price(event.plan.prices)
        self.plan = event.plan
        for model, lane in list(self.lanes.items()):
            lane.refresh()
            if not lane.routes and not lane.counts.total and not lane.offline.items:
                del self.lanes[model]

    def worker(self, worker_id: str) -> Worker:
        """The worker of that id, made (down) where it is new."""
        worker = self.workers.get(worker_id)
        if worker is None:
            worker = self.workers[worker_id] = Worker(worker_id)
        return worker

    def link(self, link_id: str) -> Link:
        link = self.links.get(link_id)
        if link is None:
            link = self.links[link_id] = Link(link_id)
        return link
