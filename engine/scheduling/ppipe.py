"""Policy `ppipe`: reservation-based adaptive batching. A batch is sent with its whole route reserved.

Theory of operation. The head of the model's queue (earliest deadline) sets the pace. The pipeline with the least
queueing delay for a full batch is chosen, then the largest batch on it that still ends by the head's deadline. If that
many frames wait they are sent; if not, either the route is idle and takes what waits (work-conserving), or, with
`hold_to_fill`, the policy waits until the last moment at which one frame more would still be in time. A head that no
route can serve in time is dropped at once, and so is, at its first look, one that a full batch could not serve while
a full batch waits (see FirstLook), except that workers that are down may come back: then it waits while it has hope.

`commit_ahead_ns` keeps frames here until their batch would hardly queue: sent frames can't be reordered, shed or
given to another worker that turns out quicker. `queue_between` counts only the queue for the first worker.

Source: PPipe (USENIX ATC 2025), data plane. Ours: commit_ahead, the choice of another pipeline when the least delayed
one can't serve the head, frames kept for workers that are down, learned latencies.
"""

from __future__ import annotations

from framepool.engine.scheduling.batches import Batch
from framepool.engine.scheduling.events import DropReason
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.offline import pump_offline
from framepool.engine.scheduling.options import FAR_FUTURE_NS, FirstLook
from framepool.engine.scheduling.routes import Lane, Route
from framepool.engine.scheduling.shedding import shed
from framepool.engine.scheduling.state import SchedulerState


class PPipePolicy:
    """See the module docstring. Stateless beside `state`."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._probe = state.reservations.probe
        self._largest = state.reservations.largest_in_time

    def enqueue(self, lane: Lane, entry: Entry, now_ns: int) -> None:
        lane.live.add(entry)
        shed(self._state, lane, entry, now_ns)

    def advance(self, lane: Lane, batch: Batch, now_ns: int) -> None:
        """Only frames that an earlier policy sent stage by stage get here; they start over."""
        for entry in batch.members():
            entry.batch = None
            entry.stage = 0
            self.enqueue(lane, entry, now_ns)

    def reroute(self, lane: Lane, now_ns: int) -> None:
        """Frames are bound to no route while they wait."""

    def pump(self, lane: Lane, now_ns: int) -> None:
        lane.wake_ns = FAR_FUTURE_NS
        live = lane.live
        while live.items and self._serve(lane, now_ns):
            pass
        if lane.offline.items:
            pump_offline(self._state, lane, now_ns)

    def _serve(self, lane: Lane, now_ns: int) -> bool:
        """One step for the head of the queue. False: nothing more to do now."""
        options = self._state.options
        usable = [route for route in lane.usable if route.inflight < options.max_inflight_per_pipeline]
        if not usable:
            return self._wait_in_hope(lane, now_ns)
        waiting = lane.live.items
        head = waiting[0][2]
        by_ns = head.deadline_ns - options.publish_reserve_ns

        best, full_end_ns = self._least_delayed(usable, by_ns, now_ns)
        if not head.seen:
            if not self._passes_first_look(lane, best, full_end_ns, by_ns, now_ns):
                if not self._forget_slowness(lane):
                    self._give_up(head, now_ns)
                return True
            head.seen = True

        first = 0
        probed = size = best.batch
        if full_end_ns > by_ns:
            probed = 0
            size = self._largest(best, best.batch - 1, by_ns, now_ns)
            if not size:
                other = self._any_in_time(usable, best, by_ns, now_ns)
                if other is not None:
                    best, size = other
                elif self._may_be_served_later(lane, head, now_ns):
                    found = self._first_in_time(lane, usable, now_ns)
                    if found is None:
                        return False
                    best, size, first = found
                    by_ns = waiting[first][0] - options.publish_reserve_ns
                elif self._forget_slowness(lane):
                    return True
                else:
                    self._give_up(head, now_ns)
                    return True
        most, size = size, min(size, len(waiting) - first)
        if size < most and options.hold_to_fill:
            probed = size + 1
            spare_ns = by_ns - self._probe(best, probed, now_ns)
            if spare_ns > 0:
                lane.wake_ns = min(lane.wake_ns, now_ns + spare_ns)
                return False
        end_ns = full_end_ns if probed == size else self._probe(best, size, now_ns)
        if self._send_or_wait(lane, best, first, size, by_ns, end_ns, now_ns):
            return True
        return len(usable) > 1 and self._serve_fresher(lane, usable, best, now_ns)

    def _least_delayed(self, usable: list[Route], by_ns: int, now_ns: int) -> tuple[Route, int]:
        """The pipeline on which a full batch would queue least, and when that batch would end.

        Those on which it would end by `by_ns` come first: a pipeline too slow for this head is idle for a reason. (As
        published, queueing alone decides; all pipelines of a plan were made for one SLO there.)
        """
        best = usable[0]
        best_end_ns = self._probe(best, best.batch, now_ns)
        if len(usable) == 1:
            return best, best_end_ns
        published = self._state.options.first_look is FirstLook.PUBLISHED
        least_ns = best_end_ns - best.pure_ns[best.batch]
        best_late = best_end_ns > by_ns and not published
        for route in usable[1:]:
            end_ns = self._probe(route, route.batch, now_ns)
            delayed_ns = end_ns - route.pure_ns[route.batch]
            late = end_ns > by_ns and not published
            if late < best_late or (late == best_late and delayed_ns < least_ns):
                best, best_end_ns, least_ns, best_late = route, end_ns, delayed_ns, late
        return best, best_end_ns

    def _send_or_wait(
        self, lane: Lane, route: Route, first: int, size: int, by_ns: int, end_ns: int, now_ns: int
    ) -> bool:
        """Sends the `size` frames from position `first` over the route's last probe, which ends at `end_ns`; or, where
        they would queue longer than they should, sets the wake."""
        options = self._state.options
        if options.commit_ahead_ns is not None:
            queued_ns = end_ns - route.pure_ns[size] - now_ns
            if options.queue_between:
                queued_ns = route.pick_start_ns[0] - route.transfer_ns[0] * size - now_ns
            wait_ns = queued_ns - options.commit_ahead_ns
            if wait_ns > 0:
                lane.wake_ns = min(lane.wake_ns, now_ns + wait_ns)
                return False
        latest_end_ns = by_ns + options.publish_reserve_ns + options.start_slack_ns
        self._state.send(route, lane.live.take(first, size), now_ns, latest_end_ns=latest_end_ns)
        return True

    def _serve_fresher(self, lane: Lane, usable: list[Route], waited_for: Route, now_ns: int) -> bool:
        """The head waits for `waited_for`. A route that is free meanwhile, but too long for it, takes fresher frames:
        under overload the head always sits near its deadline, and long pipelines would stand idle."""
        reserve_ns = self._state.options.publish_reserve_ns
        waiting = lane.live.items
        for route in usable:
            if route is waited_for:
                continue
            end_ns = self._probe(route, route.batch, now_ns)
            first = lane.live.first_from(end_ns + reserve_ns)
            size = min(route.batch, len(waiting) - first)
            if size > 0:
                if size < route.batch:
                    end_ns = self._probe(route, size, now_ns)
                by_ns = waiting[first][0] - reserve_ns
                if self._send_or_wait(lane, route, first, size, by_ns, end_ns, now_ns):
                    return True
        return False

    def _give_up(self, head: Entry, now_ns: int) -> None:
        self._state.drop(head, DropReason.STALE if head.deadline_ns < now_ns else DropReason.INFEASIBLE)

    def _passes_first_look(self, lane: Lane, route: Route, full_end_ns: int, by_ns: int, now_ns: int) -> bool:
        first_look = self._state.options.first_look
        if full_end_ns <= by_ns or first_look is FirstLook.OFF:
            return True
        if first_look is FirstLook.PRESSED and (len(lane.live.items) < route.batch or lane.has_down):
            return True
        full = max(1, round(self._state.options.full_batch_fraction * route.batch))
        return full < route.batch and self._probe(route, full, now_ns) <= by_ns

    def _any_in_time(self, usable: list[Route], tried: Route, by_ns: int, now_ns: int) -> tuple[Route, int] | None:
        """Another route that serves the head in time, with its largest batch."""
        for route in usable:
            if route is not tried:
                size = self._largest(route, route.batch, by_ns, now_ns)
                if size:
                    return route, size
        return None

    def _first_in_time(self, lane: Lane, usable: list[Route], now_ns: int) -> tuple[Route, int, int] | None:
        """Passes over heads that hope for a worker: the first frame that a route serves now; sets the wake."""
        reserve_ns = self._state.options.publish_reserve_ns
        lane.wake_ns = min(lane.wake_ns, lane.live.items[0][0] - reserve_ns - lane.least_ns + 1)
        route = min(usable, key=lambda route: self._probe(route, 1, now_ns))
        first = lane.live.first_from(self._probe(route, 1, now_ns) + reserve_ns)
        if first == len(lane.live.items):
            return None
        by_ns = lane.live.items[first][0] - reserve_ns
        return route, self._largest(route, route.batch, by_ns, now_ns), first

    def _may_be_served_later(self, lane: Lane, head: Entry, now_ns: int) -> bool:
        """A worker that is down could still serve it if it came back this moment."""
        return lane.has_down and now_ns + lane.least_ns + self._state.options.publish_reserve_ns <= head.deadline_ns

    def _forget_slowness(self, lane: Lane) -> bool:
        """Learned latencies say that nothing is in time, and nothing runs that could teach better: trust the plan."""
        if any(route.inflight for route in lane.routes):
            return False
        slow = [pool for route in lane.routes for pool in route.pools if pool.scale > 1.0]
        for pool in slow:
            pool.rescale(1.0)
        for route in {pool.route for pool in slow}:
            route.refresh()
        if slow:
            lane.refresh()
        return bool(slow)

    def _wait_in_hope(self, lane: Lane, now_ns: int) -> bool:
        """No route takes batches: drop what no returning worker could save, wake when the next frame gets there."""
        margin_ns = lane.least_ns + self._state.options.publish_reserve_ns
        waiting = lane.live.items
        while waiting and waiting[0][0] < now_ns + margin_ns:
            self._state.drop(waiting[0][2], DropReason.STALE)
        if waiting:
            lane.wake_ns = min(lane.wake_ns, waiting[0][0] - margin_ns + 1)
        return False
