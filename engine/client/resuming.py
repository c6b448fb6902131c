"""When a watch broke: whether to connect again, how long to wait first, and from where. Pure; both clients use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from framepool import FramepoolError
from framepool.engine.api.errors import InternalError, UnreachableError
from framepool.engine.client.verbs import Watched
from framepool.engine.errors import DeadlineError, EngineStoppedError

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0


@dataclass(slots=True)
class Resumption:
    """State of one watch over its connections. Owned by the watch; not shared.

    `cursor` is where to resume (None: only what comes). `give_up_s` bounds one outage; a watch that never was connected
    is not retried, so that a wrong address is told at once.
    """

    cursor: int | None
    give_up_s: float
    clock_s: Callable[[], float]
    connected_once: bool = False
    broken_since_s: float | None = None
    delay_s: float = FIRST_DELAY_S

    def received(self, message: Watched) -> None:
        """A message came: the connection stands, and its cursor is the new place to resume."""
        self.connected_once = True
        self.broken_since_s = None
        self.delay_s = FIRST_DELAY_S
        if message.cursor > 0:
            self.cursor = message.cursor

    def wait_s(self, error: FramepoolError) -> float:
        """Seconds to wait before connecting again after `error`; raises it where that would not help."""
        if not self.connected_once or not isinstance(
            error, UnreachableError | EngineStoppedError | DeadlineError | InternalError
        ):
            raise error
        now_s = self.clock_s()
        if self.broken_since_s is None:
            self.broken_since_s = now_s
        elif now_s - self.broken_since_s > self.give_up_s:
            raise error
        delay_s = self.delay_s
        self.delay_s = min(LONGEST_DELAY_S, 2 * self.delay_s)
        return delay_s
