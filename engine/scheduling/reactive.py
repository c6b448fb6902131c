"""Policy `reactive`: each pool batches on its own, one hop at a time (as Nexus does). No reservations, no link state.

Theory of operation. A frame is bound to a pipeline on arrival, in proportion to the planned rates (smooth weighted
round robin among pipelines that are usable and quick enough for its SLO), and waits in that pipeline's stage queues.
A pool with a worker that is free takes the largest batch that, unhindered from here on, ends by its head's deadline;
heads that can't make it are dropped. What a stage finished joins the queue of the next, so a later batch mixes frames
of several earlier ones. Frames that can be bound to no pipeline yet wait in the lane's own queue.
"""

from __future__ import annotations

from framepool.engine.scheduling.batches import Batch
from framepool.engine.scheduling.commands import Hop
from framepool.engine.scheduling.events import DropReason
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.offline import pump_offline
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.routes import Lane, Route
from framepool.engine.scheduling.shedding import shed
from framepool.engine.scheduling.state import SchedulerState
from framepool.engine.scheduling.workers import Pool, Worker


class ReactivePolicy:
    """See the module docstring. Stateless beside `state`; stage queues lie on the routes."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._ahead_ns = state.options.commit_ahead_ns or 0

    def enqueue(self, lane: Lane, entry: Entry, now_ns: int) -> None:
        entry.route, entry.stage = None, 0
        lane.live.add(entry)
        shed(self._state, lane, entry, now_ns)

    def advance(self, lane: Lane, batch: Batch, now_ns: int) -> None:
        """What a stage finished waits for the next, where the active plan still has this pipeline; else starts over."""
        route = self._heir(lane, batch.route)
        stage = batch.hops[-1].stage + 1
        for entry in batch.members():
            entry.batch = None
            if route is None:
                entry.route, entry.stage = None, 0
                lane.live.add(entry)
            else:
                entry.route, entry.stage = route, stage
                route.queues[stage].add(entry)

    def reroute(self, lane: Lane, now_ns: int) -> None:
        for stream in self._state.ledger.streams.values():
            for entry in stream.values():
                if entry.queue is None or entry.route is None or entry.model != lane.model:
                    continue
                heir = self._heir(lane, entry.route)
                if heir is not None and entry.stage == 0 and not heir.usable:
                    heir = None
                if heir is entry.route:
                    continue
                entry.queue.remove(entry)
                if heir is None:
                    entry.route, entry.stage = None, 0
                    lane.live.add(entry)
                else:
                    entry.route = heir
                    heir.queues[entry.stage].add(entry)

    def pump(self, lane: Lane, now_ns: int) -> None:
        lane.wake_ns = FAR_FUTURE_NS
        if lane.live.items:
            self._bind(lane, now_ns)
        if lane.counts.total:
            for route in lane.routes:
                for stage in range(route.last_stage, -1, -1):
                    if route.queues[stage].items:
                        self._serve(lane, route, stage, now_ns)
        if lane.offline.items:
            pump_offline(self._state, lane, now_ns)

    def _heir(self, lane: Lane, route: Route) -> Route | None:
        """The route of the active plan on which a frame of `route` goes on."""
        for candidate in lane.routes:
            if candidate is route or (candidate.id == route.id and candidate.same_stages(route)):
                return candidate
        return None

    def _bind(self, lane: Lane, now_ns: int) -> None:
        """Deals the frames of the lane's own queue out to pipelines; keeps those that must hope for a worker."""
        reserve_ns = self._state.options.publish_reserve_ns
        for _, _, entry in tuple(lane.live.items):
            left_ns = entry.deadline_ns - reserve_ns - now_ns
            route = self._turn(lane, left_ns)
            if route is not None:
                lane.live.remove(entry)
                entry.route = route
                route.queues[0].add(entry)
            elif left_ns < lane.least_ns or not lane.has_down:
                hoped = lane.has_down or entry.deadline_ns < now_ns
                self._state.drop(entry, DropReason.STALE if hoped else DropReason.INFEASIBLE)
            else:
                lane.wake_ns = min(lane.wake_ns, now_ns + left_ns - lane.least_ns + 1)

    def _turn(self, lane: Lane, left_ns: int) -> Route | None:
        """Whose turn it is among the usable pipelines that could serve a frame with `left_ns` left."""
        fitting = [route for route in lane.usable if route.pure_ns[1] <= left_ns]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        chosen = fitting[0]
        total = 0.0
        for route in fitting:
            route.credit += route.rate_fps
            total += route.rate_fps
            if route.credit > chosen.credit:
                chosen = route
        chosen.credit -= total
        return chosen

    def _serve(self, lane: Lane, route: Route, stage: int, now_ns: int) -> None:
        """Sends batches of one stage queue while a worker is free; drops heads that can't make it."""
        options = self._state.options
        queue = route.queues[stage]
        rest_ns = route.rest_ns[stage]
        pool = route.pools[stage]
        moved_ns = route.transfer_ns[stage]
        while queue.items:
            head = queue.items[0][2]
            left_ns = head.deadline_ns - options.publish_reserve_ns - now_ns
            free = self._free_worker(pool, now_ns) if route.inflight < options.max_inflight_per_pipeline else None
            wait_ns = max(0, free.busy_ns - now_ns) if free is not None else 0
            spare_ns = left_ns - wait_ns - rest_ns[1] - moved_ns
            if spare_ns < 0:
                late = head.deadline_ns < now_ns or lane.has_down
                self._state.drop(head, DropReason.STALE if late else DropReason.INFEASIBLE)
                continue
            if free is None:
                nearly_free_ns = self._next_nearly_free_ns(pool, now_ns)
                lane.wake_ns = min(lane.wake_ns, now_ns + spare_ns + 1, nearly_free_ns)
                return
            size = min(route.batch, len(queue.items))
            while size > 1 and wait_ns + rest_ns[size] + moved_ns * size > left_ns:
                size -= 1
            self._send(route, stage, free, queue.take(0, size), head, now_ns)

    def _free_worker(self, pool: Pool, now_ns: int) -> Worker | None:
        """A worker that is idle, or will have ended its only batch within the commit-ahead time."""
        for busy_ns, index in pool.order:
            if busy_ns > now_ns + self._ahead_ns:
                return None
            worker = pool.workers[index]
            if not worker.bookings or (len(worker.bookings) == 1 and busy_ns > now_ns):
                return worker
        return None

    def _next_nearly_free_ns(self, pool: Pool, now_ns: int) -> int:
        """When the next worker gets within the commit-ahead time of its end; those that are there already report."""
        for busy_ns, _ in pool.order:
            if busy_ns - self._ahead_ns > now_ns:
                return busy_ns - self._ahead_ns
        return FAR_FUTURE_NS

    def _send(self, route: Route, stage: int, worker: Worker, entries: list[Entry], head: Entry, now_ns: int) -> None:
        size = len(entries)
        duration_ns = route.pools[stage].latency_ns[size]
        ready_ns = now_ns + route.transfer_ns[stage] * size if worker.link is not None else now_ns
        start_ns = max(ready_ns, worker.busy_ns)
        latest_ns = head.deadline_ns + self._state.options.start_slack_ns - route.rest_ns[stage][size]
        hop = Hop(stage, worker.id, now_ns, latest_ns, start_ns, start_ns + duration_ns)
        batch_id = self._state.new_batch_id()
        worker.book(batch_id, ready_ns, start_ns, duration_ns)
        self._state.launch(batch_id, route, entries, (hop,), [worker])
