"""Where a stream's pictures go: into granted slots, with one picture held back when there is none. Bounded.

live:    no free slot -> the newest picture waits in private memory; a newer one replaces it (dropped: overload)
offline: no free slot -> the stream's thread waits, and with it the reading of the file
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from framepool.streams.reports import FrameNotice, StreamReport


class FrameSink(Protocol):
    """What a decoder's surroundings offer. Called from stream threads and from whoever grants; never blocks."""

    def buffer(self, stream_id: int, slot: int) -> NDArray[np.uint8]:
        """The slot's picture to fill, uint8 [H, W, 3] RGB."""
        ...

    def frame(self, notice: FrameNotice) -> None:
        """The picture of `notice.seq` lies in its slot."""
        ...

    def dropped(self, stream_id: int, seq: int, capture_ns: int, reason: str) -> None:
        """An ingested frame was given up: "overload", "stale" or "error"."""
        ...

    def room_wanted(self, stream_id: int) -> None:
        """A newer picture waits and there is no free slot."""
        ...

    def state(self, report: StreamReport) -> None: ...

    def ended(self, stream_id: int) -> None:
        """The stream's thread is gone: nothing of it is written any more."""
        ...


@dataclass(slots=True)
class _Held:
    notice: FrameNotice
    picture: NDArray[np.uint8]


class SlotPort:
    """One stream's slots. `deliver` is called by its thread, `grant` and `close` by others."""

    def __init__(self, stream_id: int, sink: FrameSink, shape: tuple[int, int, int], *, waits: bool) -> None:
        self._stream_id = stream_id
        self._sink = sink
        self._shape = shape
        self._waits = waits
        self._free: deque[int] = deque()
        self._held: _Held | None = None
        self._closed = False
        self._changed = threading.Condition()

    def grant(self, slots: Sequence[int]) -> None:
        """These slots may be filled."""
        with self._changed:
            self._free.extend(slots)
            held = self._held
            if held is not None and self._free and not self._closed:
                self._held = None
                self._publish(held.notice, held.picture, self._free.popleft())
            self._changed.notify_all()

    def take(self, timeout_s: float) -> NDArray[np.uint8] | None:
        """Where to write the next picture: a slot's memory or private memory. None: wait again (offline) or closed."""
        with self._changed:
            if self._waits and not self._free:
                self._changed.wait(timeout_s)
            if self._closed or (self._waits and not self._free):
                return None
            if self._free:
                return self._sink.buffer(self._stream_id, self._free[0])
        return np.empty(self._shape, dtype=np.uint8)

    def deliver(self, notice: FrameNotice, picture: NDArray[np.uint8]) -> None:
        """Hands over the picture that was written where `take` said."""
        room_wanted = False
        with self._changed:
            if self._closed:
                return
            if self._free:
                self._publish(notice, picture, self._free.popleft())
            else:
                if self._held is not None:
                    self._drop(self._held.notice)
                self._held = _Held(notice, picture)
                room_wanted = True
        if room_wanted:
            self._sink.room_wanted(self._stream_id)

    def _publish(self, notice: FrameNotice, picture: NDArray[np.uint8], slot: int) -> None:
        buffer = self._sink.buffer(self._stream_id, slot)
        if not np.may_share_memory(buffer, picture):
            np.copyto(buffer, picture)
        self._sink.frame(replace(notice, slot=slot, decoded_ns=time.monotonic_ns()))

    def _drop(self, notice: FrameNotice) -> None:
        self._sink.dropped(self._stream_id, notice.seq, notice.capture_ns, "overload")

    def flush(self, timeout_s: float) -> None:
        """At the stream's end: gives a held picture a last chance to find a slot, then drops it."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is None or self._closed, timeout_s)
            held, self._held = self._held, None
            if held is not None:
                self._drop(held.notice)

    def close(self) -> None:
        """Nothing is written or told after this."""
        with self._changed:
            self._closed = True
            self._held = None
            self._changed.notify_all()
