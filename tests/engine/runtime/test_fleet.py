"""Supervision: every child has an owner, is restarted with growing waits, and is gone when the fleet stops."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import psutil
import pytest

from framepool.engine.errors import DeviceError, EngineStoppedError
from framepool.engine.runtime import fleet as fleet_module
from framepool.engine.runtime import process as process_module
from framepool.engine.runtime.fleet import ChildSpec, ChildState, Fleet, FleetHooks
from framepool.engine.runtime.messages import ChildReady, ChildRefused
from framepool.engine.runtime.process import ChildProcess

WAITS = "import sys; sys.stdin.buffer.read()"
"""A child that ends when its engine's end of the pipe closes, as real ones do."""
STUBBORN = "import time; time.sleep(600)"
ENDS = "import sys; print('cam at rtsp://u:s3cret@cam failed', file=sys.stderr); sys.exit(3)"


class Rig:
    """A fleet whose children are one-line programs (module names stand for them)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up: list[str] = []
        self.lost: list[str] = []
        self.stops: list[str] = []
        self.fleet = Fleet(
            FleetHooks(
                up=lambda spec, report: self.up.append(report.child_id),
                lost=lambda spec, child_id: self.lost.append(child_id),
                stop_child=self._stop_child,
            )
        )
        self.obeys = True
        real = process_module.subprocess.Popen

        def popen(command: list[str], **options: object) -> object:
            return real([sys.executable, "-c", command[-1]], **options)  # type: ignore[call-overload]

        monkeypatch.setattr(process_module.subprocess, "Popen", popen)
        monkeypatch.setattr(fleet_module, "FIRST_BACKOFF_S", 0.02)
        self.fleet.start()

    def _stop_child(self, child_id: str) -> None:
        self.stops.append(child_id)
        if self.obeys:
            psutil.Process(self.status(child_id.rsplit(".", 1)[0]).pid).terminate()

    def want(self, child: str, program: str = WAITS) -> Future[None]:
        return self.fleet.ensure([ChildSpec(child, program, lambda child_id: b"{}")])[0]

    def ready(self, child_id: str) -> None:
        self.fleet.ready(ChildReady(child_id, f"/run/{child_id}", {}, ()))

    def status(self, child: str) -> fleet_module.ChildStatus:
        return self.fleet.status()[child]

    def bring_up(self, child: str) -> int:
        future = self.want(child)
        until(lambda: self.status(child).state is ChildState.STARTING and self.status(child).pid > 0)
        self.ready(f"{child}.{self.status(child).starts}")
        future.result(10)
        return self.status(child).pid


def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        try:
            if holds():
                return
        except KeyError:
            pass
        time.sleep(0.005)
    raise AssertionError("it did not come to hold in time")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    made.fleet.stop(5)
    assert not psutil.Process().children()
    assert not [t.name for t in threading.enumerate() if t.name.startswith(("watch-", "framepool-fleet"))]


def test_a_child_is_up_when_it_says_so_and_is_started_once(rig: Rig) -> None:
    pid = rig.bring_up("w")
    assert rig.want("w").result(5) is None
    assert rig.status("w").pid == pid
    assert rig.up == ["w.1"]
    assert rig.fleet.restarts == 0


def test_a_child_that_dies_is_told_of_and_started_again_under_a_new_id(rig: Rig) -> None:
    pid = rig.bring_up("w")
    psutil.Process(pid).kill()
    until(lambda: rig.status("w").starts == 2)
    assert rig.lost == ["w.1"]
    rig.ready("w.1")  # a late word of the dead one is nobody's
    until(lambda: rig.status("w").pid > 0)
    assert rig.status("w").state is ChildState.STARTING
    rig.ready("w.2")
    until(lambda: rig.up == ["w.1", "w.2"])
    assert rig.fleet.restarts == 1


def test_a_child_that_ends_at_once_is_tried_again_ever_more_slowly(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    future = rig.want("w", ENDS)
    with pytest.raises(DeviceError, match="w ended with code 3"):
        future.result(10)
    seen = {}
    until(lambda: bool(seen.setdefault(rig.status("w").starts, time.monotonic())) and len(seen) >= 5, 20)
    times = [at for _, at in sorted(seen.items())]
    waits = [b - a for a, b in itertools.pairwise(times)]
    assert waits[-1] > waits[0]
    assert rig.lost == []
    said = capsys.readouterr().out
    assert "failed" in said
    assert "s3cret" not in said


def test_the_cause_a_child_gives_reaches_whoever_wanted_it(rig: Rig) -> None:
    future = rig.want("w", STUBBORN)
    until(lambda: rig.status("w").pid > 0)
    rig.fleet.refused(ChildRefused("w.1", "DeviceError", "CUDA did not load: libcudnn is missing"))
    with pytest.raises(DeviceError, match="libcudnn is missing"):
        future.result(5)
    assert rig.status("w").cause == "CUDA did not load: libcudnn is missing"


def test_a_retired_child_is_asked_to_end_and_one_that_is_wanted_again_stays(rig: Rig) -> None:
    rig.bring_up("a")
    rig.bring_up("b")
    rig.fleet.retire(["a", "b"], linger_s=0.3)
    rig.want("b").result(5)
    until(lambda: "a" not in rig.fleet.status())
    time.sleep(0.4)
    assert rig.stops == ["a.1"]
    assert rig.status("b").state is ChildState.UP


def test_one_that_does_not_obey_is_made_to(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = rig.bring_up("w")
    rig.obeys = False
    rig.fleet.retire(["w"], linger_s=0.0)
    until(lambda: not psutil.pid_exists(pid), 20)
    assert rig.stops == ["w.1"]
    until(lambda: "w" not in rig.fleet.status())


def test_one_that_is_wanted_again_while_it_ends_is_started_anew(rig: Rig) -> None:
    rig.bring_up("w")
    rig.obeys = False
    rig.fleet.retire(["w"], linger_s=0.0)
    until(lambda: rig.stops == ["w.1"])
    future = rig.want("w")
    psutil.Process(rig.status("w").pid).kill()
    until(lambda: rig.status("w").starts == 2 and rig.status("w").pid > 0)
    rig.ready("w.2")
    assert future.result(5) is None


def test_nothing_starts_in_a_fleet_that_stops(rig: Rig) -> None:
    rig.bring_up("w")
    pending = rig.want("x", STUBBORN)
    until(lambda: rig.status("x").pid > 0)
    rig.fleet.stop(5)
    with pytest.raises(EngineStoppedError):
        pending.result(1)
    rig.fleet.stop(5)
    assert rig.fleet.status() == {}


def test_what_a_child_says_at_its_end_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    codes: list[int] = []
    child = ChildProcess.spawn("c.1", "no_such_module", b"", lambda code: (codes.append(code), ended.set())[0])
    assert ended.wait(20)
    child.end(1)
    assert codes == [1]
    assert not child.running
    said = capsys.readouterr()
    assert "no_such_module" in said.out + said.err


def test_a_child_ends_when_its_engine_s_pipe_closes() -> None:
    ended = threading.Event()
    child = ChildProcess.spawn("c.1", "framepool.engine.runtime.profile_child", b"\x81", lambda code: ended.set())
    child.end(20)
    assert ended.is_set()
    assert not psutil.pid_exists(child.pid)
