"""Watchers: every frame once, in order, from where they were; the slow are told what they lost, and hold up nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from fake_control import frame
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.control import DetectionFilter, DetectionRow, FrameDetections, WatchItem
from framepool.engine.errors import CapacityError, DeadlineError, EngineStoppedError
from framepool.engine.watching import HISTORY_PAGE, WatchHub, WatchSubscription, matching

EVERYTHING = DetectionFilter()


class Past:
    """A store in memory. `gone`: frames up to that cursor are no longer kept."""

    def __init__(self, frames: Sequence[FrameDetections] = (), gone: int = 0) -> None:
        self.frames = list(frames)
        self.gone = gone
        self.hold = threading.Event()
        self.hold.set()
        self.raises: Exception | None = None

    def flush(self, timeout_s: float) -> bool:
        return True

    def history(self, query: DetectionFilter, cursor: int, through: int, limit: int) -> Sequence[FrameDetections]:
        self.hold.wait(10)
        if self.raises is not None:
            raise self.raises
        kept = [f for f in self.frames if max(cursor, self.gone) < f.cursor <= through]
        return [m for f in kept if (m := matching(query, f)) is not None][:limit]

    def lost_since(self, cursor: int) -> int:
        return max(0, self.gone - cursor)


@pytest.fixture
def make() -> Iterator[Callable[..., WatchHub]]:
    hubs: list[WatchHub] = []

    def build(**options: int) -> WatchHub:
        hubs.append(WatchHub(**options))
        return hubs[-1]

    yield build
    for hub in hubs:
        hub.close()


def taken(subscription: WatchSubscription, count: int, timeout_s: float = 5.0) -> list[WatchItem]:
    """The next `count` items."""
    items: list[WatchItem] = []
    end_s = time.monotonic() + timeout_s
    while len(items) < count and time.monotonic() < end_s:
        items += subscription.take(count - len(items))
        time.sleep(0.001)
    return items


def cursors(items: Sequence[WatchItem]) -> list[int]:
    return [item.frame.cursor if item.frame is not None else -item.lost for item in items]


def test_a_watcher_gets_what_comes(make: Callable[..., WatchHub]) -> None:
    hub = make()
    hub.publish(frame(1))
    watcher = hub.subscribe(EVERYTHING, None, Past())
    hub.publish(frame(2))
    hub.publish(frame(3))
    assert cursors(taken(watcher, 2)) == [2, 3]
    assert watcher.take(10) == []
    assert watcher.position == 3


@pytest.mark.parametrize("recent", [3, 1000])
def test_f4_a_watcher_resumes_without_gap_or_repetition(make: Callable[..., WatchHub], recent: int) -> None:
    """From memory or, where that does not reach back so far, page by page from the store."""
    frames = [frame(n) for n in range(1, 3 * HISTORY_PAGE + 51)]
    past = Past()
    hub = make(recent=recent)
    for item in frames:
        past.frames.append(item)
        hub.publish(item)
    watcher = hub.subscribe(EVERYTHING, 20, past)
    for n in (1001, 1002):
        hub.publish(frame(n))
    expected = [f.cursor for f in frames[20:]] + [1001, 1002]
    assert cursors(taken(watcher, len(expected))) == expected


def test_live_frames_wait_behind_history(make: Callable[..., WatchHub]) -> None:
    past = Past([frame(n) for n in range(1, 11)])
    past.hold.clear()
    hub = make(newest=10)
    watcher = hub.subscribe(EVERYTHING, 0, past)
    hub.publish(frame(11))
    time.sleep(0.05)
    assert watcher.take(100) == []
    past.hold.set()
    assert cursors(taken(watcher, 11)) == list(range(1, 12))


def test_what_retention_took_is_told_first(make: Callable[..., WatchHub]) -> None:
    past = Past([frame(n) for n in range(1, 11)], gone=6)
    watcher = make(newest=10).subscribe(EVERYTHING, 2, past)
    found = cursors(taken(watcher, 5))
    assert sorted(found) == [-4, 7, 8, 9, 10]


def test_a_slow_watcher_loses_the_oldest_and_is_told_how_many(make: Callable[..., WatchHub]) -> None:
    hub = make(capacity=3)
    slow = hub.subscribe(EVERYTHING, None, Past())
    quick = hub.subscribe(EVERYTHING, None, Past())
    seen = []
    for n in range(1, 11):
        hub.publish(frame(n))
        seen += cursors(quick.take(10))
    assert seen == list(range(1, 11))
    assert cursors(taken(slow, 4)) == [-7, 8, 9, 10]
    hub.publish(frame(11))
    assert cursors(taken(slow, 1)) == [11]


def test_a_watcher_is_woken(make: Callable[..., WatchHub]) -> None:
    hub = make()
    watcher = hub.subscribe(EVERYTHING, None, Past())
    woken = threading.Event()
    watcher.set_wake(woken.set)
    assert not woken.is_set()
    hub.publish(frame(1))
    assert woken.is_set()
    woken.clear()
    watcher.set_wake(woken.set)
    assert woken.is_set()  # something is there already


def test_no_more_watch_than_may(make: Callable[..., WatchHub]) -> None:
    hub = make(max_watchers=2)
    first = hub.subscribe(EVERYTHING, None, Past())
    hub.subscribe(EVERYTHING, None, Past())
    with pytest.raises(CapacityError, match=r"2 watchers are connected.*api\.max_watchers"):
        hub.subscribe(EVERYTHING, None, Past())
    first.close()
    first.close()
    assert hub.watchers == 1
    hub.subscribe(EVERYTHING, None, Past())


@pytest.mark.parametrize("error", [DeadlineError("slow"), ZeroDivisionError("a bug")])
def test_a_watcher_whose_past_can_not_be_read_is_ended_and_others_go_on(
    make: Callable[..., WatchHub], error: Exception
) -> None:
    hub = make(newest=10)
    broken = Past()
    broken.raises = error
    woken = threading.Event()
    watcher = hub.subscribe(EVERYTHING, 0, broken)
    watcher.set_wake(lambda: woken.set() if watcher.closed else None)
    assert woken.wait(5)
    assert watcher.closed
    other = hub.subscribe(EVERYTHING, 0, Past([frame(n) for n in range(1, 11)]))
    assert cursors(taken(other, 10)) == list(range(1, 11))


def test_when_the_engine_ends_so_do_watchers() -> None:
    hub = WatchHub()
    watcher = hub.subscribe(EVERYTHING, None, Past())
    woken = threading.Event()
    watcher.set_wake(woken.set)
    hub.close()
    assert woken.is_set()
    assert watcher.closed
    with pytest.raises(EngineStoppedError):
        hub.subscribe(EVERYTHING, None, Past())


def test_a_filter_takes_frames_and_in_them_rows() -> None:
    rows = (DetectionRow("person", 0, 0.9, (0, 0, 1, 1)), DetectionRow("car", 1, 0.4, (0, 0, 1, 1)))
    item = replace(frame(1), rows=rows, capture_unix_ns=100)
    assert matching(EVERYTHING, item) is item
    assert matching(DetectionFilter(labels=("person",)), item) == replace(item, rows=rows[:1])
    assert matching(DetectionFilter(min_score=0.4), item) is item
    assert matching(DetectionFilter(min_score=0.41), item) == replace(item, rows=rows[:1])
    for nothing in (
        DetectionFilter(labels=("dog",)),
        DetectionFilter(streams=("yard",)),
        DetectionFilter(start_unix_ns=101),
        DetectionFilter(end_unix_ns=100),
        DetectionFilter(labels=("car",), min_score=0.5),
    ):
        assert matching(nothing, item) is None
    assert matching(DetectionFilter(start_unix_ns=100, end_unix_ns=101), item) is item
    assert matching(EVERYTHING, replace(item, rows=())) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_nothing_is_lost_or_twice_wherever_a_watcher_comes_in(
    before: int, at: int, after: int, recent: int, bite: int, only_odd: bool
) -> None:
    """Published before, during and after a subscription from any cursor: exactly those after it, in order."""
    query = DetectionFilter(streams=("odd",)) if only_odd else EVERYTHING
    past = Past()
    hub = WatchHub(recent=recent)
    try:

        def publish(n: int) -> None:
            item = frame(n, "odd" if n % 2 else "even")
            past.frames.append(item)
            hub.publish(item)

        for n in range(1, before + 1):
            publish(n)
        cursor = min(at, before)
        watcher = hub.subscribe(query, cursor, past)
        publisher = threading.Thread(target=lambda: [publish(n) for n in range(before + 1, before + after + 1)])
        publisher.start()
        expected = [n for n in range(cursor + 1, before + after + 1) if n % 2 or not only_odd]
        found: list[int] = []
        end_s = time.monotonic() + 5
        while len(found) < len(expected) and time.monotonic() < end_s:
            found += cursors(watcher.take(bite))
        publisher.join(5)
        assert found == expected
        assert watcher.take(99) == []
        assert watcher.position >= (expected[-1] if expected else cursor)
    finally:
        hub.close()
