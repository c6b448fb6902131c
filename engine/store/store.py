"""The store's door: registrations, detections in (`append`) and out (`query`, `history`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from framepool.engine.control import DetectionFilter, DetectionPage, FrameDetections
from framepool.engine.store.database import open_database
from framepool.engine.store.detections import Detections
from framepool.engine.store.registrations import Registrations
from framepool.engine.store.retention import RetentionOptions
from framepool.engine.store.secrets import Secrets
from framepool.engine.store.writer import Writer

FLUSH_S = 1.0
"""A query waits so long at most for detections that are on their way to the database."""
CLOSE_S = 5.0
HISTORY_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How long and how much is kept."""

    max_age_s: float = 7 * 86_400.0
    max_bytes: int = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class StoreStats:
    """`backlog`: frames that wait to be written; `dropped`: given up; `state`: "ok" or "degraded"."""

    backlog: int
    dropped: int
    state: str


class DetectionStore:
    """See the module docstring. Open it with `open`."""

    def __init__(self, engine: Engine, secrets: Secrets, writer: Writer, clock_unix_ns: Callable[[], int]) -> None:
        self._engine = engine
        self._writer = writer
        self._detections = Detections(engine, secrets)
        self.registrations = Registrations(engine, secrets, clock_unix_ns)

    @classmethod
    def open(
        cls, url: str, state_dir: Path, options: StoreOptions, clock_unix_ns: Callable[[], int] = time.time_ns
    ) -> DetectionStore:
        """Opens or makes the database ("" : SQLite in `state_dir`). Raises StoreError."""
        secrets = Secrets.load(state_dir)
        engine = open_database(url, state_dir)
        writer = Writer(engine, RetentionOptions(options.max_age_s, options.max_bytes), clock_unix_ns)
        writer.start()
        return cls(engine, secrets, writer, clock_unix_ns)

    @property
    def last_cursor(self) -> int:
        """The newest cursor that was ever written down."""
        return self._detections.last_cursor()

    def append(self, frame: FrameDetections) -> None:
        """Takes in a published frame; frames without detections are not kept. Never waits."""
        if frame.rows:
            self._writer.append(frame)

    def query(self, query: DetectionFilter, page_size: int, page_token: str) -> DetectionPage:
        """A page of detections, those just published included. Raises InvalidArgumentError, DeadlineError."""
        self._writer.flush(FLUSH_S)
        return self._detections.page(query, page_size, page_token)

    def history(self, query: DetectionFilter, cursor: int, through: int, limit: int) -> tuple[FrameDetections, ...]:
        """At most `limit` matching frames in (cursor, through], in order: what a watcher missed."""
        return self._detections.after(query, cursor, limit, HISTORY_TIMEOUT_S, through)

    def lost_since(self, cursor: int) -> int:
        """At most how many frames after `cursor` are no longer kept."""
        return self._detections.lost_since(cursor)

    def flush(self, timeout_s: float) -> bool:
        return self._writer.flush(timeout_s)

    def stats(self) -> StoreStats:
        return StoreStats(self._writer.backlog, self._writer.dropped, self._writer.state)

    def close(self) -> None:
        """Writes what is left, for a few seconds at most, and closes the database."""
        self._writer.close(CLOSE_S)
        self._engine.dispose()
