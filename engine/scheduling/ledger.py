"""The ledger: one entry for each frame that has arrived and not ended, and the counts of those that have.

Duty: a frame ends exactly once. An entry is made by `admit`, closed by `close`; whatever holds an entry (a waiting
queue, a batch in flight) finds it closed and passes over it. It decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framepool.engine.scheduling.events import DropReason, Frame, ServiceClass
from framepool.engine.scheduling.options import FAR_FUTURE_NS

if TYPE_CHECKING:
    from framepool.engine.scheduling.batches import Batch
    from framepool.engine.scheduling.routes import Route
    from framepool.engine.scheduling.waiting import WaitingQueue


class Entry:
    """A live frame. In exactly one place: `queue` while it waits, `batch` while it is in flight (the other is None).

    `key_ns` orders it among waiting frames: deadline (live) or capture (offline). `stage` and `route` are the next
    stage and the pipeline it is bound to, where a policy binds frames one stage at a time; (0, None) otherwise.
    `lost`: a worker died with it, so it ends as worker-lost if it can't be saved.
    """

    __slots__ = (
        "attempts",
        "batch",
        "deadline_ns",
        "id",
        "key_ns",
        "live",
        "lost",
        "model",
        "queue",
        "route",
        "seen",
        "stage",
        "stream_id",
    )

    def __init__(self, frame: Frame) -> None:
        self.id = frame.id
        self.stream_id = frame.stream_id
        self.model = frame.model
        self.live = frame.service_class is ServiceClass.LIVE
        self.deadline_ns = frame.deadline_ns if self.live else FAR_FUTURE_NS
        self.key_ns = frame.deadline_ns if self.live else frame.capture_ns
        self.queue: WaitingQueue | None = None
        self.batch: Batch | None = None
        self.route: Route | None = None
        self.stage = 0
        self.attempts = 0
        self.seen = False
        self.lost = False


class Ledger:
    """Entries by frame id and by stream (oldest first), and totals: ingested = completed + dropped + open."""

    __slots__ = ("completed", "dropped", "entries", "ingested", "streams")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.streams: dict[int, dict[int, Entry]] = {}
        self.ingested = 0
        self.completed = 0
        self.dropped: dict[DropReason, int] = dict.fromkeys(DropReason, 0)

    def admit(self, frame: Frame) -> Entry | None:
        """A new entry, or None where the frame is known already (a repeated event)."""
        if frame.id in self.entries:
            return None
        entry = self.entries[frame.id] = Entry(frame)
        of_stream = self.streams.get(frame.stream_id)
        if of_stream is None:
            of_stream = self.streams[frame.stream_id] = {}
        of_stream[frame.id] = entry
        self.ingested += 1
        return entry

    def close(self, entry: Entry) -> None:
        """Forgets an open entry. The caller counts it as completed or dropped."""
        del self.entries[entry.id]
        of_stream = self.streams[entry.stream_id]
        del of_stream[entry.id]
        if not of_stream:
            del self.streams[entry.stream_id]
        entry.batch = None

    @property
    def dropped_total(self) -> int:
        return sum(self.dropped.values())
