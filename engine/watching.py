"""Watchers of detections: each with a bounded queue of its own, resumed from the store without gap or repetition.

    publish (data thread) --> every subscription's queue          (full: the oldest give way, counted as a gap)
    resume: register for live frames first, then read what lies between the watcher's cursor and that moment from
            memory or, by the history thread, page by page from the store; live frames wait behind it

A watcher gets frames with at least one row that its filter wants, and of those only these rows.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from framepool import FramepoolError
from framepool.engine.control import DetectionFilter, FrameDetections, WatchItem
from framepool.engine.errors import CapacityError, EngineStoppedError

log = structlog.get_logger("framepool.watch")

RECENT_FRAMES = 2000
"""Published frames kept in memory: a watcher that reconnects within seconds needs no database."""
QUEUE_ITEMS = 1000
HISTORY_PAGE = 200
FLUSH_S = 2.0


class History(Protocol):
    """Where frames that are no longer in memory come from: the store."""

    def flush(self, timeout_s: float) -> bool: ...

    def history(self, query: DetectionFilter, cursor: int, through: int, limit: int) -> Sequence[FrameDetections]: ...

    def lost_since(self, cursor: int) -> int: ...


def matching(query: DetectionFilter, frame: FrameDetections) -> FrameDetections | None:
    """The frame with only the rows that `query` selects; None where there is none."""
    if query.streams and frame.stream not in query.streams:
        return None
    if query.start_unix_ns is not None and frame.capture_unix_ns < query.start_unix_ns:
        return None
    if query.end_unix_ns is not None and frame.capture_unix_ns >= query.end_unix_ns:
        return None
    if not query.labels and query.min_score <= 0:
        return frame if frame.rows else None
    rows = tuple(
        row for row in frame.rows if row.score >= query.min_score and (not query.labels or row.label in query.labels)
    )
    if not rows:
        return None
    return frame if len(rows) == len(frame.rows) else replace(frame, rows=rows)


class WatchSubscription:
    """One watcher's end; implements `control.Subscription` and `control.Positioned`."""

    def __init__(self, hub: WatchHub, query: DetectionFilter, capacity: int, position: int) -> None:
        self._hub = hub
        self.query = query
        self._capacity = capacity
        self._lock = threading.Lock()
        self._items: deque[FrameDetections] = deque()
        self._old: deque[FrameDetections] = deque()
        self._lost = 0
        self._position = position
        self._catching_up = False
        self._wants_more = False
        self._wake: Callable[[], None] | None = None
        self._closed = False

    # The watcher's side

    def take(self, limit: int) -> Sequence[WatchItem]:
        """Up to `limit` items that are ready; never blocks."""
        with self._lock:
            taken: list[WatchItem] = []
            if self._lost and limit > 0 and not self._old:
                taken.append(WatchItem(None, self._lost))
                self._lost = 0
            source = self._old if self._old or self._catching_up else self._items
            while source and len(taken) < limit:
                frame = source.popleft()
                self._position = max(self._position, frame.cursor)
                taken.append(WatchItem(frame))
            ask = self._catching_up and not self._old and not self._wants_more
            if ask:
                self._wants_more = True
        if ask:
            self._hub.read_on(self)
        return taken

    def set_wake(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when items are ready; at once where there are some."""
        with self._lock:
            self._wake = wake
            ready = bool(self._items or self._old or self._lost or self._closed)
        if ready:
            wake()

    def close(self) -> None:
        """Ends the subscription; twice is harmless."""
        self._hub.forget(self)
        self._end()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def position(self) -> int:
        """Cursor up to which every frame was taken or did not match; 0 where it is not known."""
        with self._lock:
            if self._old or self._items or self._catching_up or self._lost:
                return self._position
            return max(self._position, self._hub.newest)

    # The hub's side

    def offer(self, frame: FrameDetections) -> None:
        """A live frame."""
        wanted = matching(self.query, frame)
        if wanted is None:
            return
        with self._lock:
            if self._closed:
                return
            if len(self._items) >= self._capacity:
                self._items.popleft()
                self._lost += 1
            self._items.append(wanted)
            wake = self._wake if not self._catching_up else None
        if wake is not None:
            wake()

    def begin_catching_up(self) -> None:
        with self._lock:
            self._catching_up = True
            self._wants_more = True

    def put_old(self, frames: Sequence[FrameDetections], *, lost: int, done: bool) -> None:
        """A page of history; `done`: live frames follow."""
        with self._lock:
            self._old.extend(frames)
            self._lost += lost
            self._wants_more = False
            self._catching_up = not done
            wake = self._wake
        if wake is not None:
            wake()

    def _end(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._items.clear()
            self._old.clear()
            wake = self._wake
        if wake is not None:
            wake()

    end = _end


class WatchHub:
    """See the module docstring. `publish` comes from one thread, the rest from any.

    `newest` is the cursor of the last frame that was published before (by an earlier engine).
    """

    def __init__(
        self,
        max_watchers: int = 256,
        *,
        newest: int = 0,
        recent: int = RECENT_FRAMES,
        capacity: int = QUEUE_ITEMS,
    ) -> None:
        self._max_watchers = max_watchers
        self._capacity = capacity
        self._lock = threading.Lock()
        self._recent: deque[FrameDetections] = deque(maxlen=recent)
        self._subscriptions: set[WatchSubscription] = set()
        self._readers: dict[WatchSubscription, _CatchUp] = {}
        self._work: queue.SimpleQueue[WatchSubscription | None] = queue.SimpleQueue()
        self._closed = False
        self.newest = newest
        self._thread = threading.Thread(target=self._read_history, name="framepool-history", daemon=True)
        self._thread.start()

    @property
    def watchers(self) -> int:
        return len(self._subscriptions)

    def publish(self, frame: FrameDetections) -> None:
        """Hands a frame to all watchers; never waits for any."""
        with self._lock:
            self._recent.append(frame)
            self.newest = frame.cursor
            subscriptions = tuple(self._subscriptions)
            # Offered under the lock: a watcher that registers gets a frame either from memory or live, never both.
            for subscription in subscriptions:
                subscription.offer(frame)

    def subscribe(self, query: DetectionFilter, cursor: int | None, history: History) -> WatchSubscription:
        """Frames from now on or, with a cursor, all after it. Raises CapacityError, EngineStoppedError."""
        with self._lock:
            if self._closed:
                raise EngineStoppedError("the engine is stopping; watch again when it is back")
            if len(self._subscriptions) >= self._max_watchers:
                raise CapacityError(
                    f"{self._max_watchers} watchers are connected, the most this engine takes (api.max_watchers); "
                    "try again later"
                )
            position = self.newest if cursor is None else cursor
            subscription = WatchSubscription(self, query, self._capacity, position)
            self._subscriptions.add(subscription)
            if cursor is None or cursor >= self.newest:
                return subscription
            oldest = self._recent[0].cursor if self._recent else None
            if oldest is not None and oldest <= cursor:
                found = [m for frame in self._recent if frame.cursor > cursor and (m := matching(query, frame))]
                subscription.put_old(found, lost=0, done=True)
                return subscription
            self._readers[subscription] = _CatchUp(history, cursor, self.newest)
            subscription.begin_catching_up()
        self._work.put(subscription)
        return subscription

    def forget(self, subscription: WatchSubscription) -> None:
        with self._lock:
            self._subscriptions.discard(subscription)
            self._readers.pop(subscription, None)

    def read_on(self, subscription: WatchSubscription) -> None:
        """The watcher has taken what was read: the next page, please."""
        self._work.put(subscription)

    def close(self) -> None:
        """Ends all watchers."""
        with self._lock:
            self._closed = True
            subscriptions = tuple(self._subscriptions)
            self._subscriptions.clear()
        for subscription in subscriptions:
            subscription.end()
        self._work.put(None)
        self._thread.join(5)

    def _read_history(self) -> None:
        while (subscription := self._work.get()) is not None:
            with self._lock:
                reader = self._readers.get(subscription)
            if reader is None:
                continue
            try:
                frames, lost, done = reader.next_page(subscription.query)
            except FramepoolError as exc:
                log.error("history can't be read; a watcher is ended", cause=str(exc))
                subscription.close()
                continue
            except Exception:
                log.exception("history can't be read; a watcher is ended")
                subscription.close()
                continue
            if done:
                with self._lock:
                    self._readers.pop(subscription, None)
            subscription.put_old(frames, lost=lost, done=done)


class _CatchUp:
    """How far a resumed watcher has come in the store. Live frames begin after `through`."""

    def __init__(self, history: History, cursor: int, through: int) -> None:
        self._history = history
        self._cursor = cursor
        self._through = through
        self._first = True

    def next_page(self, query: DetectionFilter) -> tuple[Sequence[FrameDetections], int, bool]:
        """(frames, lost before them, whether these were the last)."""
        lost = 0
        if self._first:
            self._first = False
            self._history.flush(FLUSH_S)
            lost = self._history.lost_since(self._cursor)
        frames = self._history.history(query, self._cursor, self._through, HISTORY_PAGE)
        if frames:
            self._cursor = frames[-1].cursor
        return frames, lost, len(frames) < HISTORY_PAGE
