"""What the store's tests share: frames that are new enough to stay, and a query followed to its end."""

from __future__ import annotations

import time
from dataclasses import replace

from fake_control import frame

from framepool.engine.control import DetectionFilter, FrameDetections
from framepool.engine.store.store import DetectionStore

EVERYTHING = DetectionFilter()


def now_frame(cursor: int, *labels: str) -> FrameDetections:
    return replace(frame(cursor, "gate", *(labels or ("person", "car"))), capture_unix_ns=time.time_ns())


def fill(store: DetectionStore, first: int, last: int) -> None:
    for cursor in range(first, last + 1):
        store.append(now_frame(cursor))
    assert store.flush(30)


def cursors(store: DetectionStore, query: DetectionFilter = EVERYTHING, page_size: int = 1000) -> list[int]:
    found, token = [], ""
    while True:
        page = store.query(query, page_size, token)
        assert len(page.frames) <= page_size
        found += [item.cursor for item in page.frames]
        token = page.next_page_token
        if not token:
            return found
