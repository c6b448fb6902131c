"""The one thread that writes detections. Whatever the database does, `append` costs the data thread nothing.

    append -> bounded buffer -> (size or age) -> one transaction a batch
                 |  full: the oldest give way, counted, one loud line a period

States: "ok", and "degraded" while writing fails (locked, disk full, gone); it goes on trying, and recovers by itself.
A frame that the database will never take (a text it can't hold) is given up alone, so that it holds up no other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog
from sqlalchemy import Engine, insert
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from framepool.engine.control import FrameDetections
from framepool.engine.store.retention import RetentionOptions, note_lost, purge
from framepool.engine.store.rows import detection_rows, frame_row
from framepool.engine.store.schema import detections, frames

log = structlog.get_logger("framepool.store")

MOST_FRAMES = 20_000
MOST_ROWS = 200_000
"""Bounds of the buffer: some minutes of a busy machine, about 100 MB."""
BATCH_FRAMES = 500
BATCH_AGE_S = 0.2
RETRY_S = 0.5
RETENTION_PERIOD_S = 30.0
LOUD_PERIOD_S = 30.0


class Writer:
    """See the module docstring. `start`, then `append` from the data thread, `close` at the end."""

    def __init__(self, engine: Engine, retention: RetentionOptions, clock_unix_ns: Callable[[], int]) -> None:
        self._engine = engine
        self._retention = retention
        self._clock_unix_ns = clock_unix_ns
        self._buffer: deque[FrameDetections] = deque()
        self._rows = 0
        self._changed = threading.Condition()
        self._appended = 0
        self._settled = 0
        self._closing = False
        self._dropped = 0
        self._unnoted: list[tuple[int, int]] = []
        self._state = "ok"
        self._loud_s = 0.0
        self._thread = threading.Thread(target=self._run, name="framepool-store", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Frames that wait to be written."""
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """Frames given up because the buffer was full."""
        return self._dropped

    @property
    def state(self) -> str:
        return self._state

    def append(self, frame: FrameDetections) -> None:
        """Takes a frame in. Never waits for the database."""
        with self._changed:
            self._buffer.append(frame)
            self._rows += len(frame.rows)
            self._appended += 1
            lost = 0
            while len(self._buffer) > MOST_FRAMES or self._rows > MOST_ROWS:
                oldest = self._buffer.popleft()
                self._rows -= len(oldest.rows)
                self._settled += 1
                lost += 1
                if self._unnoted:
                    self._unnoted[-1] = (oldest.cursor, self._unnoted[-1][1] + 1)
                else:
                    self._unnoted.append((oldest.cursor, 1))
            if lost:
                self._dropped += lost
                self._be_loud("detections are lost: the database does not take them", dropped=self._dropped)
            if len(self._buffer) >= BATCH_FRAMES:
                self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that was appended before is written or given up; False when that takes longer."""
        with self._changed:
            goal = self._appended
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._settled >= goal, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Writes what is left, for so long at most, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._buffer:
            log.error("detections are lost: the database did not take them before the end", frames=len(self._buffer))

    _hurry = False

    def _run(self) -> None:
        next_retention_s = time.monotonic() + 1.0
        while True:
            with self._changed:
                if not self._closing and not self._hurry and len(self._buffer) < BATCH_FRAMES:
                    self._changed.wait(BATCH_AGE_S)
                self._hurry = False
                batch = [self._buffer.popleft() for _ in range(min(BATCH_FRAMES, len(self._buffer)))]
                closing = self._closing
            if batch and not self._write(batch) and closing:
                return
            if closing and not self._buffer:
                return
            if time.monotonic() >= next_retention_s and not closing:
                next_retention_s = time.monotonic() + (0.0 if self._purge() else RETENTION_PERIOD_S)

    def _write(self, batch: list[FrameDetections]) -> bool:
        with self._changed:
            unnoted, self._unnoted = self._unnoted, []
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(frames), [frame_row(frame) for frame in batch])
                connection.execute(insert(detections), [row for frame in batch for row in detection_rows(frame)])
                for cursor, count in unnoted:
                    note_lost(connection, cursor, count)
        except Exception as exc:  # whatever a value does to the driver, the writer goes on
            cause = str(getattr(exc, "orig", None) or exc or type(exc).__name__)
            with self._changed:
                self._unnoted = unnoted + self._unnoted
            if isinstance(exc, DataError | IntegrityError) or not isinstance(exc, SQLAlchemyError):
                return self._write_apart(batch, cause)
            self._fail(batch, cause)
            return False
        self._settle(batch)
        if self._state != "ok":
            self._state = "ok"
            log.warning("the store takes detections again", backlog=len(self._buffer))
        return True

    def _write_apart(self, batch: list[FrameDetections], cause: str) -> bool:
        """Halves a batch until the frame that the database will never take stands alone, and gives up that one."""
        if len(batch) > 1:
            half = len(batch) // 2
            with self._changed:
                self._buffer.extendleft(reversed(batch[half:]))
                self._hurry = True
            return self._write(batch[:half])
        with self._changed:
            self._dropped += 1
            self._unnoted.append((batch[0].cursor, 1))
            self._be_loud("a frame's detections can't be stored", stream=batch[0].stream, cause=cause[:300])
        self._settle(batch)
        return True

    def _settle(self, batch: list[FrameDetections]) -> None:
        """The batch is written or given up."""
        with self._changed:
            self._rows -= sum(len(frame.rows) for frame in batch)
            self._settled += len(batch)
            self._changed.notify_all()

    def _fail(self, batch: list[FrameDetections], cause: str) -> None:
        """Puts the batch back and waits before the next try; a full disk is met by removing the oldest."""
        with self._changed:
            self._buffer.extendleft(reversed(batch))
        self._state = "degraded"
        self._be_loud("detections can't be stored; they are kept in memory for now", cause=cause)
        if "full" in cause:
            self._purge()
        with self._changed:
            if not self._closing:
                self._changed.wait_for(lambda: self._closing, RETRY_S)

    def _purge(self) -> bool:
        try:
            return purge(self._engine, self._retention, self._clock_unix_ns())
        except SQLAlchemyError as exc:
            self._be_loud("old detections can't be removed", cause=str(getattr(exc, "orig", None) or exc)[:300])
            return False

    def _be_loud(self, message: str, **facts: object) -> None:
        now_s = time.monotonic()
        if now_s - self._loud_s >= LOUD_PERIOD_S or not self._loud_s:
            self._loud_s = now_s
            log.error(message, **facts)
