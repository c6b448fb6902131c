"""Lanes: bounded threads that the event loop hands blocking calls to, with a deadline and a bounded queue.

Overflow rule: a call that finds its lane's queue full is refused at once (`OverloadedError`), never queued further. A
call whose deadline passes is answered with `DeadlineError`; where its thread is still at work, the thread keeps its
place until it returns, so a stuck engine fills a lane but never grows it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from framepool.engine.api.errors import OverloadedError
from framepool.engine.errors import DeadlineError, EngineStoppedError

Result = TypeVar("Result")


class Lane:
    """`threads` threads and room for `waiting` more calls. Calls come from one event loop."""

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self._name = name
        self._limit = threads + waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"framepool-api-{name}")
        self._lock = threading.Lock()
        self._in_hand = 0
        self._closed = False

    @property
    def in_hand(self) -> int:
        """Calls at work or waiting now."""
        with self._lock:
            return self._in_hand

    async def run(
        self,
        work: Callable[[], Result],
        *,
        timeout_s: float,
        unclaimed: Callable[[Result], None] | None = None,
    ) -> Result:
        """What `work` returns or raises, within `timeout_s`.

        `unclaimed` is given the result when the caller left or its deadline passed before there was one, so that what
        was opened is closed.
        """
        future = self._submit(work)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError as timeout:
            if future.done() and not future.cancelled() and future.exception() is timeout:
                raise
            _when_done(future, unclaimed)
            raise DeadlineError(
                f"the engine gave no answer within {timeout_s:.3g} s; what was asked may still take effect"
            ) from None
        except asyncio.CancelledError:
            _when_done(future, unclaimed)
            raise

    def _submit(self, work: Callable[[], Result]) -> Future[Result]:
        with self._lock:
            if self._closed:
                raise EngineStoppedError("the engine is stopping; ask again when it is back")
            if self._in_hand >= self._limit:
                raise OverloadedError(
                    f"{self._in_hand} {self._name} calls are under way, the most this server takes; ask again shortly"
                )
            self._in_hand += 1
        try:
            future = self._pool.submit(work)
        except RuntimeError as closed:  # the pool was shut down since
            self._leave(None)
            raise EngineStoppedError("the engine is stopping; ask again when it is back") from closed
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _future: object) -> None:
        with self._lock:
            self._in_hand -= 1

    def close(self) -> None:
        """Refuses new calls and drops those that wait; calls at work end by themselves. Idempotent."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def _when_done(future: Future[Result], unclaimed: Callable[[Result], None] | None) -> None:
    if unclaimed is None:
        return
    give = unclaimed

    def claim(done: Future[Result]) -> None:
        if not done.cancelled() and done.exception() is None:
            give(done.result())

    future.add_done_callback(claim)
