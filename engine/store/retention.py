"""What is kept and for how long: by age and by bytes on disk, oldest out first, in small steps."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, Table, delete, func, insert, literal_column, select, text, update

from framepool.engine.store.schema import detections, frames, purges

FRAMES_PER_STEP = 2000
"""Frames removed in one transaction: some ten milliseconds of writing that the writer must wait for."""
VACUUM_PAGES = 2000
MOST_PURGES = 500
SIZE_STEP_SHARE = 0.05
SAMPLED_ROWS = 500
ROW_OVERHEAD_BYTES = 28
INDEX_ENTRY_BYTES = 32


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """Older frames than `max_age_s` go; above `max_bytes` on disk the oldest go."""

    max_age_s: float
    max_bytes: int


def purge(engine: Engine, options: RetentionOptions, now_unix_ns: int) -> bool:
    """One step; True when there is more to remove."""
    horizon_ns = now_unix_ns - round(options.max_age_s * 1e9)
    with engine.begin() as connection:
        oldest = select(frames.c.cursor).order_by(frames.c.cursor).limit(FRAMES_PER_STEP).subquery()
        aged = connection.execute(
            select(func.max(frames.c.cursor), func.count()).where(
                frames.c.cursor.in_(select(oldest.c.cursor)), frames.c.capture_unix_ns < horizon_ns
            )
        ).one()
        if aged[0] is not None:
            remove_through(connection, int(aged[0]))
    removed = int(aged[1] or 0)
    if used_bytes(engine) > options.max_bytes:
        removed += _purge_by_size(engine)
        give_back(engine)
        return removed > 0 and used_bytes(engine) > options.max_bytes
    if removed:
        give_back(engine)
    return removed >= FRAMES_PER_STEP


def _purge_by_size(engine: Engine) -> int:
    with engine.begin() as connection:
        total = int(connection.execute(select(func.count()).select_from(frames)).scalar() or 0)
        step = min(FRAMES_PER_STEP, max(1, int(total * SIZE_STEP_SHARE)))
        through = connection.execute(
            select(frames.c.cursor).order_by(frames.c.cursor).offset(step - 1).limit(1)
        ).scalar()
        return remove_through(connection, int(through)) if through is not None else 0


def remove_through(connection: Connection, cursor: int) -> int:
    """Removes all frames up to `cursor`, and writes down that they were there."""
    connection.execute(delete(detections).where(detections.c.cursor <= cursor))
    count = connection.execute(delete(frames).where(frames.c.cursor <= cursor)).rowcount
    note_lost(connection, cursor, count)
    return count


def note_lost(connection: Connection, through_cursor: int, count: int) -> None:
    """Writes down that `count` frames up to a cursor are not (or no longer) kept."""
    if count <= 0:
        return
    known = connection.execute(
        update(purges).where(purges.c.through_cursor == through_cursor).values(frames=purges.c.frames + count)
    )
    if not known.rowcount:
        connection.execute(insert(purges).values(through_cursor=through_cursor, frames=count))
    kept = select(purges.c.through_cursor).order_by(purges.c.through_cursor.desc()).limit(MOST_PURGES).subquery()
    connection.execute(delete(purges).where(purges.c.through_cursor.not_in(select(kept.c.through_cursor))))


def used_bytes(engine: Engine) -> int:
    """Bytes on disk in use. On PostgreSQL those of the rows that live: its files keep the room of removed ones."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            return sum(_row_bytes(connection, table) for table in (frames, detections))
        pages = int(connection.execute(text("PRAGMA page_count")).scalar() or 0)
        free = int(connection.execute(text("PRAGMA freelist_count")).scalar() or 0)
        size = int(connection.execute(text("PRAGMA page_size")).scalar() or 0)
    return (pages - free) * size


def _row_bytes(connection: Connection, table: Table) -> int:
    """Rows of a table times what the newest take on average, with what every row and index entry adds (PostgreSQL)."""
    newest = select(table).order_by(table.c.cursor.desc()).limit(SAMPLED_ROWS).subquery("newest")
    mean = connection.execute(
        select(func.avg(func.pg_column_size(literal_column("newest.*")))).select_from(newest)
    ).scalar()
    count = int(connection.execute(select(func.count()).select_from(table)).scalar() or 0)
    return round(count * (float(mean or 0) + ROW_OVERHEAD_BYTES + INDEX_ENTRY_BYTES * (1 + len(table.indexes))))


def give_back(engine: Engine) -> None:
    """Returns freed pages to the file system (SQLite)."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            # It frees a page a step, and `execute` takes one step of what yields no columns: a script takes all.
            driver.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
