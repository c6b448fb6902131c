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
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.reservation import Pick, Reservations
from framepool.engine.scheduling.workers import Link, Pool, Worker

SEARCHED_FOR_GAPS = 4
"""Workers behind the first that would start later, which may still have a gap before."""


class Intervals(Reservations):
    """See the module docstring."""

    def _pick(
        self, pool: Pool, source: Link | None, ready_ns: int, moved_ns: int, duration_ns: int, now_ns: int
    ) -> Pick:
        workers = pool.workers
        best: Worker | None = None
        best_start_ns = FAR_FUTURE_NS
        best_input_ns = bound_ns = ready_ns
        up = _up(source)
        inputs: dict[Link | None, int] = {}
        if moved_ns:
            inputs[source] = ready_ns
            if source not in pool.links:
                bound_ns = moved_ns + (ready_ns if up is None else up.first_gap(ready_ns, moved_ns))
        behind = 0
        for busy_ns, index in pool.order:
            worker = workers[index]
            if busy_ns >= best_start_ns:
                behind += 1
                if pool.stage == 0 or behind > SEARCHED_FOR_GAPS:
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
                    known_ns = inputs[link] = common_gap(up, _down(link), ready_ns, moved_ns) + moved_ns
                input_ns = known_ns
            start_ns = input_ns
            if input_ns < busy_ns:
                start_ns = _gap(worker, input_ns, duration_ns, busy_ns)
            if start_ns < best_start_ns:
                best, best_start_ns, best_input_ns = worker, start_ns, input_ns
                if start_ns <= bound_ns:
                    break
        return best, best_input_ns, best_start_ns

    def _hold(self, source: Link | None, target: Link | None, start_ns: int, end_ns: int, now_ns: int) -> None:
        for end in (_up(source), _down(target)):
            if end is not None:
                end.take(start_ns, end_ns, now_ns)

    def _window(self, worker: Worker, ready_ns: int, start_ns: int, now_ns: int) -> tuple[int, int]:
        """A batch that leaves idle time before another's unused must not start in it; its input comes when reserved."""
        passes_over = any(ready_ns < booking.start_ns < start_ns for booking in worker.bookings.values())
        return start_ns if passes_over else now_ns, ready_ns


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
