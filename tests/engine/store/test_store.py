"""The store on SQLite: pages, retention, secrets, restarts, and what a database can do to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_control import frame
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text
from store_rig import EVERYTHING, cursors, fill, now_frame

from framepool.engine.control import DetectionFilter, DetectionRow, FrameDetections, StreamConfig
from framepool.engine.errors import InvalidArgumentError
from framepool.engine.store import migrations
from framepool.engine.store.database import FILE_NAME, open_database
from framepool.engine.store.errors import StoreError
from framepool.engine.store.retention import RetentionOptions, purge, used_bytes
from framepool.engine.store.schema import versions
from framepool.engine.store.store import DetectionStore, StoreOptions

CONFIG = StreamConfig("gate", "rtsp://cam/x", "nanodet", 150.0, 10.0, username="u", password="s3cret", labels=("a",))


rows = st.lists(st.tuples(st.sampled_from(("person", "car")), st.sampled_from((0.1, 0.5, 0.9))), min_size=1, max_size=3)
published = st.lists(st.tuples(st.sampled_from(("gate", "yard")), st.integers(0, 20), rows), min_size=1, max_size=25)
filters = st.builds(
    DetectionFilter,
    streams=st.sampled_from(((), ("gate",), ("yard", "gate"), ("other",))),
    labels=st.sampled_from(((), ("person",), ("car", "person"), ("dragon",))),
    min_score=st.sampled_from((0.0, 0.5, 0.6)),
    start_unix_ns=st.sampled_from((None, 0, 7)),
    end_unix_ns=st.sampled_from((None, 5, 15)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(published, filters, st.integers(1, 7), st.integers(0, 5))
def test_pages_are_the_filtered_frames_in_order_also_while_more_come(
    tmp_path_factory: pytest.TempPathFactory, given_frames: list[Any], query: DetectionFilter, size: int, later: int
) -> None:
    frames = [
        replace(
            frame(cursor, stream),
            capture_unix_ns=capture_ns,
            rows=tuple(DetectionRow(label, 0, score, (0.0, 0.0, 1.0, 1.0)) for label, score in found),
        )
        for cursor, (stream, capture_ns, found) in enumerate(given_frames, 1)
    ]

    def wanted(item: FrameDetections) -> FrameDetections | None:
        if query.streams and item.stream not in query.streams:
            return None
        if query.start_unix_ns is not None and item.capture_unix_ns < query.start_unix_ns:
            return None
        if query.end_unix_ns is not None and item.capture_unix_ns >= query.end_unix_ns:
            return None
        kept = tuple(
            r for r in item.rows if (not query.labels or r.label in query.labels) and r.score >= query.min_score
        )
        return replace(item, rows=kept) if kept else None

    store = DetectionStore.open("", tmp_path_factory.mktemp("store"), StoreOptions(max_age_s=1e12))
    try:
        at_first, rest = frames[: len(frames) - later], frames[max(0, len(frames) - later) :]
        for item in at_first:
            store.append(item)
        found: list[FrameDetections] = []
        token = ""
        while True:
            page = store.query(query, size, token)
            found += page.frames
            for item in rest[:1]:
                store.append(item)
            rest = rest[1:]
            token = page.next_page_token
            if not token and not rest:
                break
            if not token:  # the last page there was; what came since is after it
                found += store.history(query, found[-1].cursor if found else 0, 10**9, 10**6)
                for item in rest:
                    store.append(item)
                assert store.flush(10)
                found += store.history(query, found[-1].cursor if found else 0, 10**9, 10**6)
                break
        assert store.flush(10)
        seen = [item.cursor for item in found]
        assert seen == sorted(set(seen))
        expected = [w for item in frames if (w := wanted(item)) is not None]
        assert found == [w for w in expected if w.cursor <= (seen[-1] if seen else 0)]
        assert list(store.history(query, 0, 10**9, 10**6)) == expected
    finally:
        store.close()


def test_a_token_belongs_to_its_query_and_to_this_engine(opened: Callable[..., DetectionStore], tmp_path: Path) -> None:
    store = opened()
    fill(store, 1, 30)
    token = store.query(EVERYTHING, 7, "").next_page_token
    foreign = opened(tmp_path / "other") if (tmp_path / "other").mkdir() is None else None
    assert foreign is not None
    fill(foreign, 1, 30)
    wrong = ["garbage", "", token[:-2] + "AA", token[:5], foreign.query(EVERYTHING, 7, "").next_page_token, "é" * 30]
    for text_ in filter(None, wrong):
        with pytest.raises(InvalidArgumentError, match="page_token is not from this query") as raised:
            store.query(EVERYTHING, 7, text_)
        assert raised.value.field == "page_token"
    with pytest.raises(InvalidArgumentError):
        store.query(DetectionFilter(min_score=0.5), 7, token)
    store.close()
    assert [f.cursor for f in opened().query(EVERYTHING, 7, token).frames] == list(range(8, 15))


def test_values_come_back_as_they_went_in(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    keypoints = ((1.5, 2.5, 0.25), (3.0, 4.0, 0.5))
    sent = replace(
        now_frame(2**40),
        media_time_ns=2**62,
        rows=(
            DetectionRow("a 'quoted' läbel", 3, 0.123, (0.1, 0.2, 0.3, 0.4), keypoints, ()),
            DetectionRow("b", 0, 1.0, (0.0, 0.0, 1.0, 1.0), (), (0.5, -0.25)),
        ),
    )
    store.append(sent)
    assert store.query(EVERYTHING, 10, "").frames == (sent,)


def test_frames_without_detections_are_not_kept(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    store.append(replace(now_frame(1), rows=()))
    store.append(now_frame(2))
    assert cursors(store) == [2]


def test_f14_old_frames_go_oldest_first_and_registrations_stay(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    store.registrations.add(CONFIG)
    fill(store, 1, 5000)
    engine, now_ns = store._engine, time.time_ns()
    before = used_bytes(engine)
    steps = 0
    while purge(engine, RetentionOptions(1e9, before // 2), now_ns):
        steps += 1
        assert steps < 100
    kept = cursors(store)
    assert used_bytes(engine) <= before // 2
    assert kept == list(range(kept[0], 5001))
    assert 1500 < len(kept) < 2700
    assert store.lost_since(0) == 5000 - len(kept)
    assert store.lost_since(5000) == 0
    while purge(engine, RetentionOptions(60.0, 1 << 40), now_ns + 3600 * 10**9):
        pass
    assert cursors(store) == []
    assert [r.config for r in store.registrations.list()] == [CONFIG]
    assert store.last_cursor == 5000  # a cursor is never given twice


def test_the_file_itself_gets_smaller(opened: Callable[..., DetectionStore], tmp_path: Path) -> None:
    store = opened()
    fill(store, 1, 5000)
    while purge(store._engine, RetentionOptions(0.0, 1 << 40), time.time_ns() + 10**9):
        pass
    with store._engine.connect() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).fetchall()
    assert (tmp_path / FILE_NAME).stat().st_size < 400_000


def test_registrations_survive_and_ids_are_never_given_twice(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    first = store.registrations.add(CONFIG)
    second = store.registrations.add(replace(CONFIG, name="yard", password=""))
    store.registrations.update(first.id, replace(CONFIG, slo_ms=99.0, password="new"))
    store.registrations.keep_next_seq({first.id: 42})
    store.registrations.remove(second.id)
    store.close()
    again = opened()
    kept = again.registrations.list()
    assert [(r.id, r.config, r.next_seq) for r in kept] == [
        (first.id, replace(CONFIG, slo_ms=99.0, password="new"), 42)
    ]
    assert again.registrations.add(replace(CONFIG, name="c")).id > second.id


def test_f7_the_database_holds_no_password(opened: Callable[..., DetectionStore], tmp_path: Path) -> None:
    store = opened()
    store.registrations.add(CONFIG)
    store.close()
    files = b"".join(path.read_bytes() for path in tmp_path.glob(f"{FILE_NAME}*"))
    assert b"rtsp://cam/x" in files
    assert b"s3cret" not in files
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


def test_with_another_key_streams_come_back_without_their_passwords(
    opened: Callable[..., DetectionStore], tmp_path: Path
) -> None:
    store = opened()
    store.registrations.add(CONFIG)
    store.close()
    (tmp_path / "secrets.key").unlink()
    assert [r.config for r in opened().registrations.list()] == [replace(CONFIG, password="")]


def test_a_damaged_key_is_named(opened: Callable[..., DetectionStore], tmp_path: Path) -> None:
    (tmp_path / "secrets.key").write_bytes(b"short")
    with pytest.raises(StoreError, match=r"key file .*secrets\.key can't be used") as raised:
        opened()
    assert raised.value.field == "engine.state_dir"


def test_a_newer_database_is_refused_and_an_unmarked_one_is_brought_up(tmp_path: Path) -> None:
    engine = open_database("", tmp_path)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM schema_version"))
        connection.execute(insert(versions).values(version=migrations.CURRENT + 1))
    engine.dispose()
    with pytest.raises(StoreError, match=r"has schema version \d+, this framepool knows up to \d+; update framepool"):
        open_database("", tmp_path)


def test_steps_run_in_order_and_only_those_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of version 1 gets step 2 alone, and keeps its rows."""
    store = DetectionStore.open("", tmp_path, StoreOptions())
    store.registrations.add(CONFIG)
    store.close()
    ran: list[str] = []

    def second(connection: Any) -> None:
        ran.append("second")
        connection.execute(text("ALTER TABLE streams ADD COLUMN note TEXT"))

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, second))
    monkeypatch.setattr(migrations, "CURRENT", len(migrations.STEPS))
    for _ in range(2):
        again = DetectionStore.open("", tmp_path, StoreOptions())
        assert [r.config for r in again.registrations.list()] == [CONFIG]
        again.close()
    assert ran == ["second"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "store.url is no database URL"),
        ("nosuch://u:s3cret@h/d", r"store.url|nosuch"),
        ("sqlite:////nonexistent/folder/x.db", r"the database can't be opened"),
    ],
)
def test_a_url_that_can_not_be_opened_is_named_without_its_password(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as raised:
        open_database(url, tmp_path)
    assert raised.value.field == "store.url"
    assert "s3cret" not in str(raised.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, at all" * 100)
    with pytest.raises(StoreError, match="can't be opened: file is not a database"):
        open_database("", tmp_path)
