"""Models are measured once a session; every test gets a state directory of its own with the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import engine_rig as rig
import psutil
import pytest

from framepool.engine.runtime.arena import shared_memory_dir


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory in which nanodet was cut and measured on every class that tests use."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu or gpu)")
    state = tmp_path_factory.mktemp("measured") / "state"
    for devices in (rig.onnxruntime_pair(), rig.unlike_pair()):
        with rig.engine(state, devices) as engine:
            for _ in engine.profile("nanodet", force=False):
                pass
    return state


@pytest.fixture
def state_dir(measured: Path, tmp_path: Path) -> Path:
    return rig.copy_state(measured, tmp_path / "state")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No process and no shared memory stays behind a test."""
    before = set(arenas())
    yield
    assert rig.until(lambda: not psutil.Process().children(recursive=True), 10), psutil.Process().children()
    assert set(arenas()) <= before


def arenas() -> list[Path]:
    return list(shared_memory_dir().glob("framepool-*"))


@pytest.fixture
def session_results() -> Callable[[int], list[object]]:
    """Detections of one onnxruntime session over the clip's first frames, one frame at a time."""
    from whole_model import whole_model_results

    return whole_model_results
