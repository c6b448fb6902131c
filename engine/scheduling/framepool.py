"""Policy `framepool`: reserve intervals, send late, and take the cheapest of the routes that would start at once.

Theory of operation. As `ppipe` it serves the head of the model's queue with whole routes reserved, and drops at once
what no route can serve in time. Three things differ:

- *Intervals.* Links and workers are reserved for intervals, and the reserved order is kept (intervals.py).
- *Deferred batching.* A batch is sent when its first worker takes it, no earlier (`commit_ahead_ns`,
  `queue_between`); until then its frames wait where they can still join a fuller batch or a better route.
- *Price.* Of the routes on which a full batch would start at once and end in time, the one is taken that uses least of
  what is scarce: device time, by the prices that the planner's relaxation puts on its classes (`Plan.prices`). Without
  prices, or with nothing free, the one that would queue least.

What each brings is told by `framepool bench study ... --algorithms parts`.
"""

from __future__ import annotations

from framepool.engine.scheduling.intervals import Intervals
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.ppipe import PPipePolicy
from framepool.engine.scheduling.routes import Lane, Route
from framepool.engine.scheduling.state import SchedulerState


class FramepoolPolicy(PPipePolicy):
    """See the module docstring. Stateless beside `state`."""

    def __init__(self, state: SchedulerState) -> None:
        state.reservations = Intervals()
        super().__init__(state)

    def pump(self, lane: Lane, now_ns: int) -> None:
        if not self._nothing_to_send(lane, now_ns):
            super().pump(lane, now_ns)

    def _nothing_to_send(self, lane: Lane, now_ns: int) -> bool:
        """Whether no first worker would take a batch now and the head can wait until one does; then sets the wake.

        So it is at most arrivals under load, which then cost no probe.
        """
        if not lane.live.items or lane.offline.items or not lane.usable:
            return False
        hopeless_ns = lane.live.items[0][0] - self._state.options.publish_reserve_ns - lane.least_ns + 1
        if hopeless_ns <= now_ns:
            return False
        wake_ns = hopeless_ns
        for route in lane.usable:
            free_ns = self._free_ns(route, now_ns)
            if free_ns <= now_ns:
                return False
            if free_ns < wake_ns:
                wake_ns = free_ns
        lane.wake_ns = wake_ns
        return True

    def _free_ns(self, route: Route, now_ns: int) -> int:
        """When at the earliest the first stage would take a full batch; FAR_FUTURE_NS where only a report can tell."""
        options = self._state.options
        if options.commit_ahead_ns is None or not options.queue_between:
            return now_ns
        first = route.pools[0]
        busy_ns, index = first.order[0]
        if busy_ns <= now_ns and first.workers[index].bookings:  # overdue
            return FAR_FUTURE_NS
        return busy_ns - route.transfer_ns[0] * route.batch - options.commit_ahead_ns

    def _serve_fresher(self, lane: Lane, usable: list[Route], waited_for: Route, now_ns: int) -> bool:
        free = [route for route in usable if self._free_ns(route, now_ns) <= now_ns]
        return super()._serve_fresher(lane, free, waited_for, now_ns)

    def _least_delayed(self, usable: list[Route], by_ns: int, now_ns: int) -> tuple[Route, int]:
        if len(usable) > 1:
            for route in sorted(usable, key=_price):
                if route.pools[0].order[0][0] > now_ns:
                    continue
                end_ns = self._probe(route, route.batch, now_ns)
                if end_ns <= by_ns and route.pick_start_ns[0] <= now_ns + route.transfer_ns[0] * route.batch:
                    return route, end_ns
        return super()._least_delayed(usable, by_ns, now_ns)


def _price(route: Route) -> float:
    return route.price
