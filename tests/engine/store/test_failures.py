"""What a database, a disk or a kill can do to the store: nothing is lost unsaid, and nobody waits for it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, text
from store_rig import cursors, fill, now_frame

from framepool.engine.errors import DeadlineError
from framepool.engine.store import writer
from framepool.engine.store.database import FILE_NAME, reading
from framepool.engine.store.store import DetectionStore

WRITER = """
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fake_control import frame
from framepool.engine.store.store import DetectionStore, StoreOptions
store = DetectionStore.open("", Path(sys.argv[1]), StoreOptions())
cursor = store.last_cursor
print("ready", flush=True)
while True:
    for _ in range(40):
        cursor += 1
        store.append(replace(frame(cursor, "gate", "a", "b", "c"), capture_unix_ns=time.time_ns()))
    time.sleep(0.002)
"""


def test_f13_kill_9_while_writing_loses_no_whole_batch_and_leaves_no_half(
    opened: Callable[..., DetectionStore], tmp_path: Path
) -> None:
    total = 0
    for number in range(5):
        support = str(Path(__file__).parents[2] / "support")
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), support], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.25 + 0.07 * number)
        child.kill()
        child.wait(10)
        child.stdout.close()
        with sqlite3.connect(tmp_path / FILE_NAME) as check:
            assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            count, newest = check.execute("SELECT count(*), max(cursor) FROM frames").fetchone()
            halves = check.execute(
                "SELECT count(*) FROM frames"
                " WHERE (SELECT count(*) FROM detections d WHERE d.cursor = frames.cursor) <> 3"
            ).fetchone()[0]
        check.close()
        assert halves == 0
        assert count > total
        total = count
    store = opened()
    assert store.last_cursor == newest
    assert len(cursors(store)) == total


def test_f10_a_locked_database_costs_no_frame_and_no_time(
    opened: Callable[..., DetectionStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the write lock: appending goes on at once, and all is written when it is let go."""
    monkeypatch.setattr("framepool.engine.store.database.BUSY_TIMEOUT_MS", 100)
    store = opened()
    fill(store, 1, 3)
    blocker = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    begin_s = time.monotonic()
    for cursor in range(4, 104):
        store.append(now_frame(cursor))
    assert time.monotonic() - begin_s < 1.0
    deadline_s = time.monotonic() + 10
    while store.stats().state == "ok":
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert store.stats().state == "degraded"
    assert store.stats().backlog > 0
    assert cursors(store) == [1, 2, 3]  # reads go on
    blocker.execute("COMMIT")
    blocker.close()
    assert store.flush(10)
    assert cursors(store) == list(range(1, 104))
    assert (store.stats().state, store.stats().dropped) == ("ok", 0)


def test_f11_a_full_disk_bounds_memory_counts_the_loss_and_tells_watchers(
    opened: Callable[..., DetectionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_FRAMES", 50)
    monkeypatch.setattr(writer, "RETRY_S", 0.05)
    monkeypatch.setattr(writer, "purge", lambda *args: False)  # what retention could give back is given back
    store = opened()
    fill(store, 1, 10)
    with store._engine.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()

    def limit(connection: sqlite3.Connection, record: object, proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    event.listen(store._engine, "checkout", limit)
    big = "x" * 20_000
    for cursor in range(11, 211):
        store.append(now_frame(cursor, big))
        time.sleep(0.002)
    deadline_s = time.monotonic() + 10
    while store.stats().dropped < 100:
        assert time.monotonic() < deadline_s, store.stats()
        time.sleep(0.02)
    assert store.stats().state == "degraded"
    assert store.stats().backlog <= 50 + writer.BATCH_FRAMES
    event.remove(store._engine, "checkout", limit)
    store._engine.dispose()
    assert store.flush(20)
    kept = cursors(store)
    assert kept[:10] == list(range(1, 11))
    assert kept[-1] == 210
    assert len(kept) + store.stats().dropped == 210
    assert store.lost_since(0) == store.stats().dropped
    assert store.stats().state == "ok"


def test_a_frame_that_can_not_be_stored_costs_only_itself(opened: Callable[..., DetectionStore]) -> None:
    """A cursor that is there already, and a number that no column holds, in the middle of others."""
    store = opened()
    fill(store, 5, 5)
    for cursor in range(1, 13):
        store.append(replace(now_frame(cursor), media_time_ns=2**70 if cursor == 8 else 1))
    assert store.flush(10)
    assert cursors(store) == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12]
    assert store.stats().dropped == 2
    assert store.lost_since(0) == 2
    assert store.stats().state == "ok"


def test_a_slow_read_is_broken_off(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    begin_s = time.monotonic()
    with pytest.raises(DeadlineError, match=r"took longer than 0\.2 s"), reading(store._engine, 0.2) as connection:
        connection.execute(text(endless))
    assert time.monotonic() - begin_s < 5
    assert cursors(store) == []


def test_readers_and_the_writer_do_not_wait_for_each_other(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    stop = threading.Event()
    seen: list[list[int]] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(cursors(store, page_size=100))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    fill(store, 1, 600)
    stop.set()
    for reader in readers:
        reader.join(10)
    assert all(found == list(range(1, len(found) + 1)) for found in seen)
    assert cursors(store) == list(range(1, 601))
