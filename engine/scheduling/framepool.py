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
from framepool.engine.scheduling.ppipe import PPipePolicy
from framepool.engine.scheduling.routes import Route
from framepool.engine.scheduling.state import SchedulerState


class FramepoolPolicy(PPipePolicy):
    """See the module docstring. Stateless beside `state`."""

    def __init__(self, state: SchedulerState) -> None:
        state.reservations = Intervals()
        super().__init__(state)

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
