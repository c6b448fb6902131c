"""Reads detections: pages of a query, and history for a watcher who resumes. All reads are bounded in time and size.

Paging goes by cursor: a page begins after the last one's last frame, so rows that come or go meanwhile neither repeat
nor hide others. A page token is signed and names its query; it is refused for any other.
"""

from __future__ import annotations

import hashlib

import msgspec
from sqlalchemy import ColumnElement, Engine, and_, exists, func, select

from framepool.engine.control import DetectionFilter, DetectionPage, FrameDetections
from framepool.engine.errors import InvalidArgumentError
from framepool.engine.store.database import reading
from framepool.engine.store.rows import frames_of
from framepool.engine.store.schema import detections, frames, purges
from framepool.engine.store.secrets import Secrets

QUERY_TIMEOUT_S = 8.0
LARGEST_PAGE = 1000


class Detections:
    """Reads of the tables of frames and detections."""

    def __init__(self, engine: Engine, secrets: Secrets) -> None:
        self._engine = engine
        self._secrets = secrets

    def page(self, query: DetectionFilter, page_size: int, page_token: str) -> DetectionPage:
        """The next page. Raises InvalidArgumentError for a token of another query, DeadlineError."""
        size = max(1, min(page_size, LARGEST_PAGE))
        after = self._cursor_of(page_token, query) if page_token else 0
        found = self.after(query, after, size + 1, QUERY_TIMEOUT_S)
        if len(found) <= size:
            return DetectionPage(found, "")
        return DetectionPage(found[:size], self._token(found[size - 1].cursor, query))

    def after(
        self, query: DetectionFilter, cursor: int, limit: int, timeout_s: float, through: int | None = None
    ) -> tuple[FrameDetections, ...]:
        """At most `limit` matching frames after `cursor` (and up to `through`), in order, only matching rows."""
        rows_match = _rows_match(query)
        wanted = [frames.c.cursor > cursor, *_frames_match(query)]
        if through is not None:
            wanted.append(frames.c.cursor <= through)
        has_row = exists().where(and_(detections.c.cursor == frames.c.cursor, *rows_match))
        with reading(self._engine, timeout_s) as connection:
            chosen = connection.execute(
                select(frames).where(*wanted, has_row).order_by(frames.c.cursor).limit(limit)
            ).all()
            if not chosen:
                return ()
            found = connection.execute(
                select(detections)
                .where(detections.c.cursor.in_([row.cursor for row in chosen]), *rows_match)
                .order_by(detections.c.cursor, detections.c.row)
            ).all()
        return frames_of(chosen, found)

    def lost_since(self, cursor: int) -> int:
        """At most how many frames after `cursor` are no longer kept."""
        with reading(self._engine, QUERY_TIMEOUT_S) as connection:
            total = connection.execute(
                select(func.sum(purges.c.frames)).where(purges.c.through_cursor > cursor)
            ).scalar()
        return int(total or 0)

    def last_cursor(self) -> int:
        """The newest cursor that was ever written down."""
        with self._engine.connect() as connection:
            newest = connection.execute(select(func.max(frames.c.cursor))).scalar()
            purged = connection.execute(select(func.max(purges.c.through_cursor))).scalar()
        return max(int(newest or 0), int(purged or 0))

    def _token(self, cursor: int, query: DetectionFilter) -> str:
        return self._secrets.sign(cursor.to_bytes(8, "big") + _fingerprint(query))

    def _cursor_of(self, token: str, query: DetectionFilter) -> int:
        message = self._secrets.verify(token)
        if message is None or message[8:] != _fingerprint(query):
            raise InvalidArgumentError(
                "page_token is not from this query; pass the token of the page before with the same filter, or none",
                field="page_token",
            )
        return int.from_bytes(message[:8], "big")


def _fingerprint(query: DetectionFilter) -> bytes:
    return hashlib.sha256(msgspec.json.encode(query)).digest()[:12]


def _frames_match(query: DetectionFilter) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if query.streams:
        wanted.append(frames.c.stream.in_(query.streams))
    if query.start_unix_ns is not None:
        wanted.append(frames.c.capture_unix_ns >= query.start_unix_ns)
    if query.end_unix_ns is not None:
        wanted.append(frames.c.capture_unix_ns < query.end_unix_ns)
    return wanted


def _rows_match(query: DetectionFilter) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if query.labels:
        wanted.append(detections.c.label.in_(query.labels))
    if query.min_score > 0:
        wanted.append(detections.c.score >= query.min_score)
    return wanted
