"""Workers, the pools they form, the links they share, and until when each is spoken for.

Theory of operation. A worker has one number, `busy_ns`: when it will have run all it was given. The batches given
and not yet reported are its *bookings*, in the order they were given. While predictions hold, `busy_ns` is the end of
the last booking. A report that differs, or a booking that falls away, moves the bookings behind it: the chain is laid
again from `free_ns`, the end of the last batch reported, each booking starting when the worker is free and its input
there. A worker with nothing booked is free now, whatever was predicted (work-conserving).

A worker that is past `busy_ns` and has not reported is *overdue*: it is expected to need as long again as it is late
already, so a stalled worker loses its attraction and a report that is just under way costs next to nothing.

A pool keeps its workers that are up sorted by `busy_ns`, so the earliest start is found at the front.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from framepool.engine.scheduling.calendars import Calendar

if TYPE_CHECKING:
    from framepool.engine.scheduling.routes import Route


class Link:
    """A network link: until when its uplink and its downlink are spoken for, and (`up`, `down`) for which intervals.

    Which of the two is kept depends on the policy's way to reserve.
    """

    __slots__ = ("down", "down_free_ns", "id", "up", "up_free_ns")

    def __init__(self, link_id: str) -> None:
        self.id = link_id
        self.up_free_ns = 0
        self.down_free_ns = 0
        self.up = Calendar()
        self.down = Calendar()


class Booking:
    """A batch a worker was given: when its input is there, when it starts and how long it takes, all predicted."""

    __slots__ = ("duration_ns", "ready_ns", "start_ns")

    def __init__(self, ready_ns: int, start_ns: int, duration_ns: int) -> None:
        self.ready_ns = ready_ns
        self.start_ns = start_ns
        self.duration_ns = duration_ns


class Worker:
    """One stage worker. `pool` is None while no active plan lists it; `bookings` by batch id, in the order they run."""

    __slots__ = ("bookings", "busy_ns", "free_ns", "id", "index", "link", "pool", "up")

    def __init__(self, worker_id: str) -> None:
        self.id = worker_id
        self.pool: Pool | None = None
        self.index = 0
        self.link: Link | None = None
        self.up = False
        self.free_ns = 0
        self.busy_ns = 0
        self.bookings: dict[int, Booking] = {}

    def book(self, batch_id: int, ready_ns: int, start_ns: int, duration_ns: int) -> None:
        """A batch after those it was given, or in a gap between them."""
        end_ns = start_ns + duration_ns
        in_gap = end_ns < self.busy_ns and bool(self.bookings)
        self.bookings[batch_id] = Booking(ready_ns, start_ns, duration_ns)
        if in_gap:
            self.bookings = dict(sorted(self.bookings.items(), key=lambda item: item[1].start_ns))
        else:
            self._set_busy(end_ns)

    def release(self, batch_id: int, end_ns: int) -> Booking | None:
        """The batch ended here at `end_ns` (run, refused or never to come); later bookings move up or back."""
        booking = self.bookings.pop(batch_id, None)
        if booking is None:
            return None
        as_predicted = end_ns == booking.start_ns + booking.duration_ns
        if end_ns > self.free_ns:
            self.free_ns = end_ns
        if not as_predicted:
            self.relay()
        return booking

    def cancel(self, batch_id: int) -> None:
        """The batch will never run here; what was booked behind it moves up."""
        if self.bookings.pop(batch_id, None) is not None:
            self.relay()

    def delay(self, batch_id: int, ready_ns: int) -> None:
        """The batch's input will be there at `ready_ns`, not when it was predicted."""
        booking = self.bookings.get(batch_id)
        if booking is not None and booking.ready_ns != ready_ns:
            booking.ready_ns = ready_ns
            self.relay()

    def relay(self) -> None:
        """Lays the chain of bookings again from `free_ns`."""
        at_ns = self.free_ns
        for booking in self.bookings.values():
            if booking.ready_ns > at_ns:
                at_ns = booking.ready_ns
            booking.start_ns = at_ns
            at_ns += booking.duration_ns
        self._set_busy(at_ns)

    def come_up(self, now_ns: int) -> None:
        self.up = True
        self.free_ns = self.busy_ns = now_ns
        if self.pool is not None:
            insort(self.pool.order, (now_ns, self.index))

    def go_down(self) -> list[int]:
        """Marks it down and returns the ids of the batches it held."""
        if self.pool is not None:
            self.pool.discard(self)
        self.up = False
        held = list(self.bookings)
        self.bookings.clear()
        return held

    def _set_busy(self, busy_ns: int) -> None:
        if busy_ns == self.busy_ns:
            return
        pool = self.pool
        if pool is None or not self.up:
            self.busy_ns = busy_ns
            return
        pool.discard(self)
        self.busy_ns = busy_ns
        insort(pool.order, (busy_ns, self.index))


class Pool:
    """The workers that run one stage of one pipeline.

    `order` holds (busy_ns, index) of the workers that are up, ascending. `planned_ns[b]` is the profiled latency of a
    batch of b, `latency_ns[b]` the same times `scale`; `measured` is the running ratio of measured to planned latency
    that `scale` follows in steps. `links` are those its workers share.
    """

    __slots__ = ("latency_ns", "links", "measured", "order", "planned_ns", "route", "scale", "stage", "workers")

    def __init__(self, route: Route, stage: int, planned_ns: list[int]) -> None:
        self.route = route
        self.stage = stage
        self.planned_ns = planned_ns
        self.latency_ns = planned_ns
        self.scale = 1.0
        self.measured = 1.0
        self.workers: list[Worker] = []
        self.links: set[Link | None] = set()
        self.order: list[tuple[int, int]] = []

    def enlist(self, worker: Worker) -> None:
        """Makes `worker` a member, with what it is doing."""
        worker.pool = self
        worker.index = len(self.workers)
        self.workers.append(worker)
        self.links.add(worker.link)
        if worker.up:
            insort(self.order, (worker.busy_ns, worker.index))

    def discard(self, worker: Worker) -> None:
        """Takes an up worker out of `order`."""
        key = (worker.busy_ns, worker.index)
        at = bisect_left(self.order, key)
        if at < len(self.order) and self.order[at] == key:
            del self.order[at]

    def idle_worker(self, now_ns: int) -> Worker | None:
        """An up worker with nothing booked, or None."""
        for busy_ns, index in self.order:
            if busy_ns > now_ns:
                return None
            worker = self.workers[index]
            if not worker.bookings:
                return worker
        return None

    def rescale(self, scale: float) -> None:
        self.scale = self.measured = scale
        self.latency_ns = self.planned_ns if scale == 1.0 else [round(ns * scale) for ns in self.planned_ns]
