"""Reservations: when would a batch end if it were sent now, and over which workers. No decisions.

Theory of operation. A *probe* walks a route stage by stage and picks, greedily, the worker of each pool that can start
the batch earliest, given the worker's busy-until and the busy-until of the two link ends between it and the worker
picked before. Transfers occupy the uplink of the one and the downlink of the other at the same time, and no worker.
Workers on one link, or on no link (shared memory), hand over for nothing. Cost: the pools are sorted by busy-until, so
the walk stops at the first worker that can't be improved upon; mostly the first.

The picks stay on the route (`Route.picks`...) until the next probe of that route. `committed` turns the picks of the
last probe into hops and books them.

Source: PPipe (USENIX ATC 2025), section on the data plane; restated in our own terms.
"""

from __future__ import annotations

from framepool.engine.scheduling.commands import Hop
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.scheduling.routes import Route
from framepool.engine.scheduling.workers import Link, Pool, Worker

Pick = tuple[Worker | None, int, int]
"""The worker chosen (None: the pool has none that is up), when its input is there, when it starts."""


class Reservations:
    """Horizons: of each worker and each link end only the time is known until which it is spoken for."""

    def probe(self, route: Route, size: int, now_ns: int) -> int:
        """The predicted end (ns) of a batch of `size` sent now; fills the route's picks. The route must be usable."""
        ready_ns = now_ns
        source: Link | None = None
        for stage, pool in enumerate(route.pools):
            duration_ns = pool.latency_ns[size]
            moved_ns = route.transfer_ns[stage] * size
            best, input_ns, start_ns = self._pick(pool, source, ready_ns, moved_ns, duration_ns, now_ns)
            if best is None:
                return FAR_FUTURE_NS
            route.picks[stage] = best
            route.pick_ready_ns[stage] = input_ns
            route.pick_start_ns[stage] = start_ns
            source = best.link
            ready_ns = start_ns + duration_ns
        return ready_ns

    def largest_in_time(self, route: Route, most: int, by_ns: int, now_ns: int) -> int:
        """The largest batch of at most `most` that would end by `by_ns`, or 0. Leaves some probe's picks behind."""
        least = 0
        while least < most:
            middle = (least + most + 1) // 2
            if self.probe(route, middle, now_ns) <= by_ns:
                least = middle
            else:
                most = middle - 1
        return least

    def committed(
        self, route: Route, size: int, batch_id: int, now_ns: int, latest_end_ns: int
    ) -> tuple[tuple[Hop, ...], list[Worker]]:
        """Books the picks of the route's last probe, which must have been for `size`.

        A hop's latest start leaves the rest of the route, by prediction, just enough time to end at `latest_end_ns`.
        """
        hops: list[Hop] = []
        workers = list(route.picks)
        source: Link | None = None
        for stage, worker in enumerate(workers):
            duration_ns = route.pools[stage].latency_ns[size]
            start_ns = route.pick_start_ns[stage]
            ready_ns = route.pick_ready_ns[stage]
            moved_ns = route.transfer_ns[stage] * size
            if moved_ns and worker.link is not source:
                self._hold(source, worker.link, ready_ns - moved_ns, ready_ns, now_ns)
            earliest_ns, input_ns = self._window(worker, ready_ns, start_ns, now_ns)
            latest_ns = latest_end_ns - route.rest_ns[stage][size] if latest_end_ns < FAR_FUTURE_NS else FAR_FUTURE_NS
            hops.append(Hop(stage, worker.id, earliest_ns, latest_ns, start_ns, start_ns + duration_ns, input_ns))
            worker.book(batch_id, ready_ns, start_ns, duration_ns)
            source = worker.link
        return tuple(hops), workers

    def _pick(
        self, pool: Pool, source: Link | None, ready_ns: int, moved_ns: int, duration_ns: int, now_ns: int
    ) -> Pick:
        """The worker that can start earliest a batch that is ready behind `source` at `ready_ns`."""
        workers = pool.workers
        best: Worker | None = None
        best_start_ns = FAR_FUTURE_NS
        best_input_ns = ready_ns
        if moved_ns:
            sent_ns = ready_ns if source is None or source.up_free_ns < ready_ns else source.up_free_ns
            bound_ns = ready_ns if source in pool.links else sent_ns + moved_ns
            for busy_ns, index in pool.order:
                if busy_ns >= best_start_ns:
                    break
                worker = workers[index]
                if busy_ns < now_ns and worker.bookings:
                    busy_ns = now_ns + now_ns - busy_ns
                link = worker.link
                if link is source:
                    input_ns = ready_ns
                elif link is not None and link.down_free_ns > sent_ns:
                    input_ns = link.down_free_ns + moved_ns
                else:
                    input_ns = sent_ns + moved_ns
                start_ns = input_ns if input_ns > busy_ns else busy_ns
                if start_ns < best_start_ns:
                    best, best_start_ns, best_input_ns = worker, start_ns, input_ns
                    if start_ns <= bound_ns:
                        break
        else:
            for busy_ns, index in pool.order:
                if busy_ns >= best_start_ns:
                    break
                worker = workers[index]
                if busy_ns < now_ns and worker.bookings:  # overdue: expect it to need as long again
                    busy_ns = now_ns + now_ns - busy_ns
                start_ns = ready_ns if ready_ns > busy_ns else busy_ns
                if start_ns < best_start_ns:
                    best, best_start_ns = worker, start_ns
                    if start_ns == ready_ns:
                        break
        return best, best_input_ns, best_start_ns

    def _hold(self, source: Link | None, target: Link | None, start_ns: int, end_ns: int, now_ns: int) -> None:
        """Reserves both link ends of a transfer."""
        if source is not None:
            source.up_free_ns = end_ns
        if target is not None:
            target.down_free_ns = end_ns

    def _window(self, worker: Worker, ready_ns: int, start_ns: int, now_ns: int) -> tuple[int, int]:
        """The hop's `earliest_ns` and `input_ns`: a worker takes what is ready, and inputs come as they can."""
        return now_ns, 0
