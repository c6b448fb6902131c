"""Reservations as intervals: a batch may use what is free between other reservations, of links and of workers.

Theory of operation. As in reservation.py a probe walks a route stage by stage and takes the worker that can start
earliest, but a transfer is put into the first gap that both link ends share, and a batch into the first gap of a
worker that is long enough. With one number for each, a reservation far ahead blocks everything before it.

What was reserved holds only if it is carried out in that order. A transfer begins at its reserved time, not before
(`Hop.input_ns`); a batch that found no room before another on its worker does not start there in the idle time that
was too short for it (`Hop.earliest_ns`). So, while service times are as predicted, every batch ends when it was
predicted to, whatever is reserved later.

Cost: workers are looked at in the order in which they run out of work, until one starts at once, or the next would
start later; of those behind, the first few are still searched for gaps (not at the first stage, where inputs are there
already and batches follow each other).

Source: PPipe (USENIX ATC 2025) reserves horizons; intervals are ours.
"""

from __future__ import annotations

from framepool.engine.scheduling.calendars import Calendar, common_gap
from framepool.engine.scheduling.commands import Hop
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.reservation import Reservations
from framepool.engine.scheduling.routes import Route
from framepool.engine.scheduling.workers import Link, Worker

SEARCHED_FOR_GAPS = 4
"""Workers behind the first that would start later, which may still have a gap before."""


class Intervals(Reservations):
    """See the module docstring."""

    def probe(self, route: Route, size: int, now_ns: int) -> int:
        ready_ns = now_ns
        source: Link | None = None
        for stage, pool in enumerate(route.pools):
            moved_ns = route.transfer_ns[stage] * size
            duration_ns = pool.latency_ns[size]
            workers = pool.workers
            best: Worker | None = None
            best_start_ns = FAR_FUTURE_NS
            best_input_ns = bound_ns = ready_ns
            up = None
            inputs: dict[Link | None, int] = {}
            if moved_ns:
                inputs[source] = ready_ns
                if source is not None:
                    up = source.up
                if source not in pool.links:
                    bound_ns = moved_ns + (ready_ns if up is None else up.first_gap(ready_ns, moved_ns))
            behind = 0
            for busy_ns, index in pool.order:
                worker = workers[index]
                if busy_ns >= best_start_ns:
                    behind += 1
                    if stage == 0 or behind > SEARCHED_FOR_GAPS:
                        break
                    if _gap(worker, bound_ns, duration_ns, busy_ns) >= best_start_ns:
                        continue
                if busy_ns < now_ns and worker.bookings:  # overdue: expect it to need as long again
                    busy_ns = now_ns + now_ns - busy_ns
                input_ns = ready_ns
                if moved_ns:
                    link = worker.link
                    known_ns = inputs.get(link)
                    if known_ns is None:
                        known_ns = common_gap(up, None if link is None else link.down, ready_ns, moved_ns) + moved_ns
                        inputs[link] = known_ns
                    input_ns = known_ns
                start_ns = input_ns
                if input_ns < busy_ns:
                    start_ns = _gap(worker, input_ns, duration_ns, busy_ns)
                if start_ns < best_start_ns:
                    best, best_start_ns, best_input_ns = worker, start_ns, input_ns
                    if start_ns <= bound_ns:
                        break
            if best is None:
                return FAR_FUTURE_NS
            route.picks[stage] = best
            route.pick_ready_ns[stage] = best_input_ns
            route.pick_start_ns[stage] = best_start_ns
            source = best.link
            ready_ns = best_start_ns + duration_ns
        return ready_ns

    def committed(
        self, route: Route, size: int, batch_id: int, now_ns: int, latest_end_ns: int
    ) -> tuple[tuple[Hop, ...], list[Worker]]:
        hops: list[Hop] = []
        workers = list(route.picks)
        source: Link | None = None
        for stage, worker in enumerate(workers):
            duration_ns = route.pools[stage].latency_ns[size]
            start_ns = route.pick_start_ns[stage]
            ready_ns = route.pick_ready_ns[stage]
            moved_ns = route.transfer_ns[stage] * size
            link = worker.link
            if link is not source and moved_ns:
                for end in (_up(source), _down(link)):
                    if end is not None:
                        end.take(ready_ns - moved_ns, ready_ns, now_ns)
            earliest_ns = start_ns if _passes_over(worker, ready_ns, start_ns) else now_ns
            latest_ns = latest_end_ns - route.rest_ns[stage][size] if latest_end_ns < FAR_FUTURE_NS else FAR_FUTURE_NS
            hops.append(Hop(stage, worker.id, earliest_ns, latest_ns, start_ns, start_ns + duration_ns, ready_ns))
            worker.book(batch_id, ready_ns, start_ns, duration_ns)
            source = link
        return tuple(hops), workers


def _up(link: Link | None) -> Calendar | None:
    return None if link is None else link.up


def _down(link: Link | None) -> Calendar | None:
    return None if link is None else link.down


def _gap(worker: Worker, input_ns: int, duration_ns: int, busy_ns: int) -> int:
    """The first gap between the worker's bookings that holds a batch whose input comes at `input_ns`."""
    at_ns = input_ns
    for booking in worker.bookings.values():
        if at_ns + duration_ns <= booking.start_ns:
            return at_ns
        end_ns = booking.start_ns + booking.duration_ns
        if end_ns > at_ns:
            at_ns = end_ns
    return at_ns if at_ns > busy_ns else busy_ns


def _passes_over(worker: Worker, ready_ns: int, start_ns: int) -> bool:
    """Whether a batch that is ready at `ready_ns` leaves idle time of the worker unused that lies before another's."""
    return any(ready_ns < booking.start_ns < start_ns for booking in worker.bookings.values())
