"""Simulated stage workers and links: what the runtime's processes and sockets do, on virtual time.

A worker takes, of the batches whose input is there, the one with the earliest reserved start, and never idles beside
ready work. A link end carries one transfer at a time, in the order asked for.
"""

from __future__ import annotations

import heapq

from framepool.engine.scheduling.commands import Dispatch, Hop


class Job:
    """A batch on its way: `hop` is what it is on or heading for, `at` the index of that hop."""

    __slots__ = ("at", "dispatch", "hop", "start_ns")

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.at = 0
        self.hop: Hop = dispatch.hops[0]
        self.start_ns = 0

    def go_on(self) -> bool:
        """Heads for the next hop; False where there is none."""
        self.at += 1
        if self.at == len(self.dispatch.hops):
            return False
        self.hop = self.dispatch.hops[self.at]
        return True


class SimWorker:
    """`life` counts its deaths: whatever was scheduled for an earlier life is void."""

    __slots__ = ("busy_ns", "id", "life", "link_id", "ready", "running", "up")

    def __init__(self, worker_id: str) -> None:
        self.id = worker_id
        self.link_id: str | None = None
        self.up = False
        self.life = 0
        self.running: Job | None = None
        self.ready: list[tuple[int, int, Job]] = []
        self.busy_ns = 0

    def add(self, job: Job) -> None:
        heapq.heappush(self.ready, (job.hop.start_ns, job.dispatch.batch_id, job))

    def die(self) -> None:
        self.up = False
        self.life += 1
        self.running = None
        self.ready.clear()


class SimLinks:
    """Both ends of every link, each free from a time on."""

    __slots__ = ("_down_free_ns", "_up_free_ns")

    def __init__(self) -> None:
        self._up_free_ns: dict[str, int] = {}
        self._down_free_ns: dict[str, int] = {}

    def transfer(self, source: str | None, target: str | None, moved_ns: int, now_ns: int) -> int:
        """When a transfer that occupies both ends for `moved_ns` arrives; now, on one link or in shared memory."""
        if not moved_ns or source == target:
            return now_ns
        begin_ns = now_ns
        if source is not None:
            begin_ns = max(begin_ns, self._up_free_ns.get(source, 0))
        if target is not None:
            begin_ns = max(begin_ns, self._down_free_ns.get(target, 0))
        arrived_ns = begin_ns + moved_ns
        if source is not None:
            self._up_free_ns[source] = arrived_ns
        if target is not None:
            self._down_free_ns[target] = arrived_ns
        return arrived_ns
