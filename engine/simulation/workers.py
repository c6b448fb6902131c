"""Simulated stage workers and links: what the runtime's processes and sockets do, on virtual time.

A worker takes, of the batches whose input is there, the one with the earliest reserved start, and never idles beside
ready work. A link end carries one transfer at a time, in the order asked for.
"""

from __future__ import annotations

import heapq

from framepool.engine.scheduling.calendars import Calendar, common_gap
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
    """Both ends of every link. Transfers go in the order asked for, or, where a time was reserved, at that time."""

    __slots__ = ("_down", "_up")

    def __init__(self) -> None:
        self._up: dict[str, Calendar] = {}
        self._down: dict[str, Calendar] = {}

    def transfer(
        self, source: str | None, target: str | None, moved_ns: int, now_ns: int, reserved_ns: int | None = None
    ) -> int:
        """When a transfer that occupies both ends for `moved_ns` arrives; now, on one link or in shared memory.

        One with a reserved start begins in the first gap from then on, one without behind all others.
        """
        if not moved_ns or source == target:
            return now_ns
        up = None if source is None else self._up.setdefault(source, Calendar())
        down = None if target is None else self._down.setdefault(target, Calendar())
        begin_ns = now_ns
        if reserved_ns is not None:
            begin_ns = common_gap(up, down, max(now_ns, reserved_ns), moved_ns)
        else:
            for end in (up, down):
                if end is not None and end.taken:
                    begin_ns = max(begin_ns, end.taken[-1][1])
        for end in (up, down):
            if end is not None:
                end.take(begin_ns, begin_ns + moved_ns, now_ns)
        return begin_ns + moved_ns
