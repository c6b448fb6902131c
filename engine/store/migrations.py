"""Brings a database to the current schema, one numbered step at a time. A step, once released, is never changed."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, delete, insert, inspect, select

from framepool.engine.store.errors import StoreError
from framepool.engine.store.schema import metadata, versions


def _first(connection: Connection) -> None:
    metadata.create_all(connection)


STEPS: tuple[Callable[[Connection], None], ...] = (_first,)
"""Step i brings version i to i + 1."""

CURRENT = len(STEPS)


def migrate(engine: Engine) -> None:
    """Raises StoreError for a database that a newer framepool wrote."""
    with engine.begin() as connection:
        version = _version(connection)
        if version > CURRENT:
            raise StoreError(
                f"the database has schema version {version}, this framepool knows up to {CURRENT}; update framepool, "
                "or set another store.url",
                field="store.url",
            )
        if version == CURRENT:
            return
        for step in STEPS[version:]:
            step(connection)
        connection.execute(delete(versions))
        connection.execute(insert(versions).values(version=CURRENT))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(versions.name):
        return 0
    found = connection.execute(select(versions.c.version)).scalar()
    return int(found) if found is not None else 0
