"""The engine's children, each with one owner: starts them, hears of their end, restarts them with backoff, stops them.

    wanted ---> starting --ready--> up --exit--> waiting (backoff) ---> starting ...
                    |                 \\--retired--> stopping ---> gone
                    +--refused (its cause is kept and told)--> waiting

One supervising thread; what it must do comes through a queue (children's reports by way of the data plane, exits from
the watch threads, wishes from the engine). It knows nothing of streams or plans: a child is an id, a module, and a
function that makes its configuration for each new start.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from framepool.engine.errors import DeviceError, EngineStoppedError
from framepool.engine.runtime.messages import ChildReady, ChildRefused
from framepool.engine.runtime.process import ChildProcess

log = structlog.get_logger("framepool.fleet")

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 30.0
HEALTHY_S = 30.0
"""A child that was up for so long starts over with the first backoff."""
START_TIMEOUT_S = 120.0
"""Loading a large model on a busy GPU, with an engine built for it, takes most of this."""


class ChildState(StrEnum):
    STARTING = "starting"
    UP = "up"
    WAITING = "restarting"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child to run. `make_config(child_id)` gives its configuration; the child id changes with each start."""

    id: str
    module: str
    make_config: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class FleetHooks:
    """Whom the fleet tells. Called on its thread. `stop_child` asks a child over its socket to end."""

    up: Callable[[ChildSpec, ChildReady], None]
    lost: Callable[[ChildSpec, str], None]
    stop_child: Callable[[str], None]


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    state: ChildState = ChildState.WAITING
    process: ChildProcess | None = None
    child_id: str = ""
    starts: int = 0
    failures: int = 0
    since_s: float = 0.0
    due_s: float = 0.0
    stop_due_s: float | None = None
    cause: str = ""
    waiters: list[Future[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """A child as it stands; `cause` says why it was last refused or lost."""

    id: str
    state: ChildState
    pid: int
    starts: int
    cause: str


class Fleet:
    """See the module docstring. All public methods may be called from any thread."""

    def __init__(self, hooks: FleetHooks) -> None:
        self._hooks = hooks
        self._children: dict[str, _Child] = {}
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._restarts = 0
        self._stopping = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="framepool-fleet", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def restarts(self) -> int:
        """Children started again after an end that nobody asked for."""
        return self._restarts

    def ensure(self, specs: Iterable[ChildSpec]) -> list[Future[None]]:
        """Runs these children (those that run already go on). Each future ends when its child is up, or fails with a
        DeviceError that holds the cause of its first refused start; the child is tried again all the same."""
        futures: list[Future[None]] = []
        for spec in specs:
            future: Future[None] = Future()
            futures.append(future)
            self._actions.put(lambda spec=spec, future=future: self._ensure(spec, future))  # type: ignore[misc]
        return futures

    def retire(self, ids: Sequence[str], linger_s: float) -> None:
        """Ends these children after `linger_s`, unless they are wanted again before."""
        self._actions.put(lambda: self._retire(ids, linger_s))

    def ready(self, report: ChildReady) -> None:
        self._actions.put(lambda: self._ready(report))

    def refused(self, report: ChildRefused) -> None:
        self._actions.put(lambda: self._refused(report))

    def kill(self, child_id: str) -> None:
        """Ends a child that does not answer; it is restarted like one that died."""
        self._actions.put(lambda: self._kill(child_id))

    def forgive(self) -> None:
        """Starts backoff over for every child: what made them fail is believed to be mended."""
        self._actions.put(self._forgive)

    def status(self) -> dict[str, ChildStatus]:
        return {
            child.spec.id: ChildStatus(
                child.spec.id, child.state, child.process.pid if child.process else 0, child.starts, child.cause
            )
            for child in list(self._children.values())
        }

    def stop(self, timeout_s: float) -> None:
        """Asks every child to end, then kills; none is left when this returns. Idempotent."""
        self._actions.put(self._begin_stop)
        if self._thread.is_alive():
            self._ended.wait(timeout_s)
        for child in list(self._children.values()):
            if child.process is not None:
                child.process.end(0.0)
        self._thread.join(5)

    # On the fleet's thread

    def _run(self) -> None:
        while not (self._stopping and not any(c.process for c in self._children.values())):
            try:
                self._actions.get(timeout=self._sleep_s())()
            except queue.Empty:
                pass
            except Exception:  # supervision must outlive any one fault
                log.exception("fault in the fleet")
            self._look_at_clock()
        self._ended.set()

    def _sleep_s(self) -> float:
        now_s = time.monotonic()
        due = [child.due_s for child in self._children.values() if child.state is ChildState.WAITING]
        due += [child.stop_due_s for child in self._children.values() if child.stop_due_s is not None]
        due += [c.since_s + START_TIMEOUT_S for c in self._children.values() if c.state is ChildState.STARTING]
        return max(0.0, min([now_s + 1.0, *due]) - now_s)

    def _look_at_clock(self) -> None:
        now_s = time.monotonic()
        for child in list(self._children.values()):
            if child.stop_due_s is not None and child.stop_due_s <= now_s:
                self._stop_child(child)
            elif child.state is ChildState.WAITING and child.due_s <= now_s and not self._stopping:
                self._start(child)
            elif child.state is ChildState.STARTING and child.since_s + START_TIMEOUT_S <= now_s:
                child.cause = f"{child.spec.id} was not ready within {START_TIMEOUT_S:g} s"
                if child.process is not None:
                    child.process.kill()

    def _ensure(self, spec: ChildSpec, future: Future[None]) -> None:
        if self._stopping:
            future.set_exception(EngineStoppedError("the engine is stopping"))
            return
        child = self._children.get(spec.id)
        if child is None:
            child = self._children[spec.id] = _Child(spec)
        child.spec = spec
        if child.state is not ChildState.STOPPING:
            child.stop_due_s = None
        if child.state is ChildState.UP:
            future.set_result(None)
            return
        child.waiters.append(future)

    def _start(self, child: _Child) -> None:
        child.starts += 1
        child.child_id = f"{child.spec.id}.{child.starts}"
        child.state = ChildState.STARTING
        child.since_s = time.monotonic()
        child_id = child.child_id
        try:
            config = child.spec.make_config(child_id)
            child.process = ChildProcess.spawn(
                child_id,
                child.spec.module,
                config,
                lambda code: self._actions.put(lambda: self._exited(child_id, code)),
            )
        except OSError as exc:
            self._fail(child, f"{child.spec.id} could not be started: {exc}")

    def _find(self, child_id: str) -> _Child | None:
        for child in self._children.values():
            if child.child_id == child_id:
                return child
        return None

    def _ready(self, report: ChildReady) -> None:
        child = self._find(report.child_id)
        if child is None or child.state is not ChildState.STARTING:
            return
        child.state = ChildState.UP
        child.cause = ""
        log.info("child is up", child=child.child_id, after_s=round(time.monotonic() - child.since_s, 2))
        child.since_s = time.monotonic()
        if child.starts > 1 and child.failures:
            self._restarts += 1
        self._hooks.up(child.spec, report)
        for waiter in child.waiters:
            waiter.set_result(None)
        child.waiters.clear()

    def _refused(self, report: ChildRefused) -> None:
        child = self._find(report.child_id)
        if child is None:
            return
        child.cause = report.message
        log.error("child could not start", child=report.child_id, cause=report.message)
        self._tell_waiters(child)

    @staticmethod
    def _tell_waiters(child: _Child) -> None:
        for waiter in child.waiters:
            waiter.set_exception(DeviceError(child.cause))
        child.waiters.clear()

    def _exited(self, child_id: str, code: int) -> None:
        child = self._find(child_id)
        if child is None:
            return
        child.process = None
        was_up, stopping = child.state is ChildState.UP, child.state is ChildState.STOPPING
        if was_up or stopping:
            self._hooks.lost(child.spec, child_id)
        if stopping or self._stopping:
            if child.waiters and not self._stopping:  # wanted again while it was ending
                child.state, child.due_s = ChildState.WAITING, 0.0
                return
            self._tell_waiters_stopped(child)
            del self._children[child.spec.id]
            return
        if was_up and time.monotonic() - child.since_s > HEALTHY_S:
            child.failures = 0
        self._fail(child, child.cause or f"{child.spec.id} ended with code {code}")

    @staticmethod
    def _tell_waiters_stopped(child: _Child) -> None:
        for waiter in child.waiters:
            waiter.set_exception(EngineStoppedError("the engine is stopping"))
        child.waiters.clear()

    def _fail(self, child: _Child, cause: str) -> None:
        child.cause = cause
        if child.state is ChildState.STARTING and child.waiters:
            self._tell_waiters(child)
        wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(child.failures, 16))
        child.failures += 1
        child.state = ChildState.WAITING
        child.due_s = time.monotonic() + wait_s
        log.warning("child ended", child=child.child_id, cause=cause, restart_in_s=round(wait_s, 2))

    def _retire(self, ids: Sequence[str], linger_s: float) -> None:
        for child_id in ids:
            child = self._children.get(child_id)
            if child is not None and child.stop_due_s is None and child.state is not ChildState.STOPPING:
                child.stop_due_s = time.monotonic() + linger_s

    def _stop_child(self, child: _Child) -> None:
        """Asks the child to end; the second time, makes it."""
        if child.process is None:
            self._tell_waiters_stopped(child)
            del self._children[child.spec.id]
        elif child.state is ChildState.UP:
            child.state = ChildState.STOPPING
            child.stop_due_s = time.monotonic() + 3.0
            self._hooks.stop_child(child.child_id)
        else:
            child.state = ChildState.STOPPING
            child.stop_due_s = time.monotonic() + 3.0
            child.process.kill()

    def _kill(self, child_id: str) -> None:
        child = self._find(child_id)
        if child is not None and child.process is not None:
            child.process.kill()

    def _forgive(self) -> None:
        now_s = time.monotonic()
        for child in self._children.values():
            child.failures = min(child.failures, 1)
            child.due_s = min(child.due_s, now_s + FIRST_BACKOFF_S)

    def _begin_stop(self) -> None:
        self._stopping = True
        for child in list(self._children.values()):
            if child.state is not ChildState.STOPPING:
                self._stop_child(child)
