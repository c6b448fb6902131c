"""Where detections go once they are published: watchers, the store. Called on the data thread; never blocks."""

from __future__ import annotations

import time

from framepool.engine.control import FrameDetections
from framepool.engine.store.store import DetectionStore
from framepool.engine.watching import WatchHub


class Publisher:
    """Numbers published frames (the cursor) and hands each to watchers and store.

    Cursors begin at the wall clock's microseconds, so that an engine that died gave out none that the next one gives
    again, though not all of its frames were written down.
    """

    def __init__(self, store: DetectionStore, hub: WatchHub) -> None:
        self._store = store
        self._hub = hub
        self._cursor = max(store.last_cursor, time.time_ns() // 1000)

    def next_cursor(self) -> int:
        self._cursor += 1
        return self._cursor

    def publish(self, frame: FrameDetections) -> None:
        self._store.append(frame)
        self._hub.publish(frame)
