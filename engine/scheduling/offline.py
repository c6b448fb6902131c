"""The offline class: frames of files analysed in full, on what live streams leave. Shared by all policies.

An offline batch is sent only over a route whose stages each have an idle worker, and while no live frame of the model
waits. It is never dropped for time; a batch that is lost goes back to the front of the queue.
"""

from __future__ import annotations

from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.routes import Lane
from framepool.engine.scheduling.state import SchedulerState


def pump_offline(state: SchedulerState, lane: Lane, now_ns: int) -> None:
    """Sends what idle routes can take."""
    waiting = lane.offline
    if not waiting.items or lane.counts.total:
        return
    courteous = now_ns - lane.last_live_ns < state.options.offline_courtesy_ns
    for route in lane.usable:
        while (
            waiting.items
            and route.inflight < state.options.max_inflight_per_pipeline
            and all(pool.idle_worker(now_ns) is not None for pool in route.pools)
        ):
            size = 1 if courteous else min(len(waiting.items), route.batch)
            state.reservations.probe(route, size, now_ns)
            state.send(route, waiting.take(0, size), now_ns, latest_end_ns=FAR_FUTURE_NS)
