"""Opens the database: SQLite in WAL mode, or whatever SQLAlchemy URL is given; and reads with a time limit."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from framepool.engine.errors import DeadlineError
from framepool.engine.store.errors import StoreError
from framepool.engine.store.migrations import migrate

FILE_NAME = "framepool.db"
BUSY_TIMEOUT_MS = 2000
_PROGRESS_STEPS = 5000
"""SQLite asks so often (in virtual machine steps, well under a millisecond) whether a read is out of time."""


def open_database(url: str, state_dir: Path) -> Engine:
    """An engine on a database of the current schema. Raises StoreError; a password in `url` is not repeated."""
    try:
        parsed = make_url(url or f"sqlite:///{state_dir / FILE_NAME}")
    except ArgumentError as exc:
        raise StoreError(
            "store.url is no database URL, such as postgresql+psycopg://host/name", field="store.url"
        ) from exc
    shown = parsed.render_as_string(hide_password=True)
    try:
        engine = create_engine(parsed, pool_size=8, max_overflow=8, pool_timeout=5.0, pool_pre_ping=True)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _configure_sqlite)
        migrate(engine)
    except ModuleNotFoundError as exc:
        raise StoreError(f"store.url {shown}: driver {exc.name} is not installed", field="store.url") from exc
    except SQLAlchemyError as exc:
        cause = getattr(exc, "orig", None) or type(exc).__name__
        raise StoreError(f"store.url {shown}: the database can't be opened: {cause}", field="store.url") from exc
    return engine


def _configure_sqlite(connection: Any, record: object) -> None:
    """Write-ahead logging, so that readers never wait for the writer; space is given back in small steps."""
    assert isinstance(connection, sqlite3.Connection)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def reading(engine: Engine, timeout_s: float) -> Iterator[Connection]:
    """A connection for reads that are broken off after `timeout_s`. Raises DeadlineError."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            until_s = time.monotonic() + timeout_s
            driver.set_progress_handler(lambda: time.monotonic() > until_s, _PROGRESS_STEPS)
        else:
            driver = None
            connection.execute(text(f"SET LOCAL statement_timeout = {round(timeout_s * 1000)}"))
        try:
            yield connection
        except SQLAlchemyError as exc:
            if "interrupted" in str(exc) or "statement timeout" in str(exc):
                raise DeadlineError(f"the query took longer than {timeout_s:g} s; ask for less at once") from exc
            raise
        finally:
            if driver is not None:
                driver.set_progress_handler(None, 0)
