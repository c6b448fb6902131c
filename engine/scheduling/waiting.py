"""Waiting frames in the order in which they must be served: a list sorted by (key, id).

A sorted list beats a heap here: batches are slices, a frame's rank is a bisection, any frame can be taken out, and
queues hold tens of frames. Live queues are keyed by deadline, offline ones by capture time, so a frame that returns
after a lost batch finds its old place.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from framepool.engine.scheduling.ledger import Entry


class WaitingCounts:
    """Waiting frames of a model, in total and per stream (no zero entries). Shared by the queues of one lane."""

    __slots__ = ("by_stream", "total")

    def __init__(self) -> None:
        self.by_stream: dict[int, int] = {}
        self.total = 0


class WaitingQueue:
    """Frames ordered by (key_ns, id). Owns `entry.queue` of its members and keeps `counts` true."""

    __slots__ = ("counts", "items")

    def __init__(self, counts: WaitingCounts) -> None:
        self.counts = counts
        self.items: list[tuple[int, int, Entry]] = []

    def __len__(self) -> int:
        return len(self.items)

    def add(self, entry: Entry) -> None:
        item = (entry.key_ns, entry.id, entry)
        items = self.items
        if not items or item > items[-1]:
            items.append(item)
        else:
            insort(items, item)
        entry.queue = self
        counts = self.counts
        counts.total += 1
        counts.by_stream[entry.stream_id] = counts.by_stream.get(entry.stream_id, 0) + 1

    def remove(self, entry: Entry) -> None:
        """Takes out a member, wherever it stands."""
        del self.items[self.rank(entry)]
        self._left(entry)

    def take(self, first: int, count: int) -> list[Entry]:
        """Takes out `count` members from position `first` on, in order."""
        taken = [item[2] for item in self.items[first : first + count]]
        del self.items[first : first + count]
        for entry in taken:
            self._left(entry)
        return taken

    def rank(self, entry: Entry) -> int:
        """Members before `entry`."""
        return bisect_left(self.items, (entry.key_ns, entry.id))

    def first_from(self, key_ns: int) -> int:
        """Position of the first member whose key is at least `key_ns` (the length where there is none)."""
        return bisect_left(self.items, (key_ns,))

    def _left(self, entry: Entry) -> None:
        entry.queue = None
        counts = self.counts
        counts.total -= 1
        left = counts.by_stream[entry.stream_id] - 1
        if left:
            counts.by_stream[entry.stream_id] = left
        else:
            del counts.by_stream[entry.stream_id]
