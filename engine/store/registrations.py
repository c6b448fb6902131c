"""Registered streams at rest: they survive a restart, ids are never given twice, passwords lie encrypted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import structlog
from sqlalchemy import Engine, delete, insert, select, update

from framepool.engine.control import StreamConfig
from framepool.engine.store.schema import streams
from framepool.engine.store.secrets import Secrets

log = structlog.get_logger("framepool.store")


@dataclass(frozen=True, slots=True)
class Registration:
    """A stream as it was registered. `config` holds its password; `next_seq` numbers its next frame."""

    id: int
    config: StreamConfig
    create_time_unix_ns: int
    next_seq: int


class Registrations:
    """The table of streams."""

    def __init__(self, engine: Engine, secrets: Secrets, clock_unix_ns: Callable[[], int] = time.time_ns) -> None:
        self._engine = engine
        self._secrets = secrets
        self._clock_unix_ns = clock_unix_ns

    def add(self, config: StreamConfig) -> Registration:
        """Writes a new stream down; its id is new for ever."""
        now_ns = self._clock_unix_ns()
        with self._engine.begin() as connection:
            result = connection.execute(
                insert(streams).values(name=config.name, create_time_unix_ns=now_ns, next_seq=0, **self._row(config))
            )
            key = result.inserted_primary_key
        assert key is not None
        return Registration(int(key[0]), config, now_ns, 0)

    def update(self, stream_id: int, config: StreamConfig) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(streams).where(streams.c.id == stream_id).values(**self._row(config)))

    def remove(self, stream_id: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(streams).where(streams.c.id == stream_id))

    def keep_next_seq(self, numbers: dict[int, int]) -> None:
        """Writes down from where each stream's frames are to be numbered after a restart."""
        with self._engine.begin() as connection:
            for stream_id, next_seq in numbers.items():
                connection.execute(update(streams).where(streams.c.id == stream_id).values(next_seq=next_seq))

    def list(self) -> tuple[Registration, ...]:
        """All registered streams, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(streams).order_by(streams.c.id)).all()
        return tuple(self._registration(row) for row in rows)

    def _row(self, config: StreamConfig) -> dict[str, Any]:
        plain = asdict(replace(config, password=""))
        secret = self._secrets.encrypt(config.password) if config.password else None
        return {"config": msgspec.json.encode(plain).decode(), "secret": secret}

    def _registration(self, row: Any) -> Registration:
        config = msgspec.convert(msgspec.json.decode(row.config), StreamConfig)
        if row.secret is not None:
            password = self._secrets.decrypt(row.secret)
            if password is None:
                log.error("a stream's password can't be read: the key file is another one", stream=config.name)
            config = replace(config, password=password or "")
        return Registration(int(row.id), config, int(row.create_time_unix_ns), int(row.next_seq))
