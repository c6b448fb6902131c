"""Decodes several streams, a thread each, into the slots they are granted. Lives in a decoder process.

PyAV and OpenCV release the interpreter lock in their C code, so streams decode in parallel. `remove` returns at once in
every state; a thread that is inside a blocking read ends when that read does or times out; only then `ended` is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from framepool.streams.port import FrameSink, SlotPort
from framepool.streams.reports import StreamTask
from framepool.streams.session import SessionSettings, StreamSession

WATCH_PERIOD_S = 0.5


class DecoderWorker:
    """Owns the sessions and their threads. Methods may be called from one thread, the worker's owner."""

    def __init__(self, sink: FrameSink, settings: SessionSettings | None = None) -> None:
        self._sink = sink
        self._settings = settings or SessionSettings()
        self._running: dict[int, tuple[StreamSession, SlotPort, threading.Thread]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="stream-watch", daemon=True)
        self._watcher.start()

    def add(self, task: StreamTask) -> None:
        """Begins decoding. Raises ValueError for a stream that is being decoded already."""
        port = SlotPort(task.stream_id, self._sink, task.shape, waits=task.offline)
        session = StreamSession(task, port, self._sink, self._settings)
        thread = threading.Thread(
            target=self._run, args=(task.stream_id, session), name=f"stream-{task.name}", daemon=True
        )
        with self._lock:
            if task.stream_id in self._running:
                raise ValueError(f"stream {task.stream_id} is being decoded already; remove it first")
            self._running[task.stream_id] = (session, port, thread)
        thread.start()

    def grant(self, stream_id: int, slots: Sequence[int]) -> None:
        """The stream may fill these slots; ignored for one that is gone."""
        with self._lock:
            entry = self._running.get(stream_id)
        if entry is not None:
            entry[1].grant(slots)

    def remove(self, stream_id: int) -> None:
        """Ends the stream; valid in every state, twice too. `ended` follows when its thread is gone."""
        with self._lock:
            entry = self._running.get(stream_id)
        if entry is not None:
            entry[0].stop()

    def stop(self, deadline_s: float) -> bool:
        """Ends all streams; True when every thread was gone within the deadline."""
        self._stopping.set()
        with self._lock:
            entries = list(self._running.values())
        for session, _, _ in entries:
            session.stop()
        until_s = time.monotonic() + deadline_s
        for _, _, thread in entries:
            thread.join(max(0.0, until_s - time.monotonic()))
        self._watcher.join(max(0.1, until_s - time.monotonic()))
        return not any(thread.is_alive() for _, _, thread in entries)

    def _run(self, stream_id: int, session: StreamSession) -> None:
        try:
            session.run()
        finally:
            with self._lock:
                self._running.pop(stream_id, None)

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_PERIOD_S):
            with self._lock:
                sessions = [session for session, _, _ in self._running.values()]
            now_ns = time.monotonic_ns()
            for session in sessions:
                session.watch(now_ns)
