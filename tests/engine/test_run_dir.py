"""One engine per state directory: it is locked, and what a dead one left is known by its name and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from framepool.engine.errors import FailedPreconditionError
from framepool.engine.run_dir import RunDir
from framepool.engine.runtime.arena import Arena, ArenaSpec


def arena(run: RunDir) -> Arena:
    return Arena.create(ArenaSpec(run.name_arena(), 1, 10))


def test_a_state_directory_has_one_engine_at_a_time(tmp_path: Path) -> None:
    first = RunDir(tmp_path / "state")
    with pytest.raises(FailedPreconditionError, match=r"another engine runs with state directory .*/state; stop it or"):
        RunDir(tmp_path / "state")
    other = RunDir(tmp_path / "other")
    assert other.path != first.path
    first.release()
    RunDir(tmp_path / "state").release()
    other.release()


def test_what_a_dead_engine_left_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    dead, alive = RunDir(tmp_path / "dead"), RunDir(tmp_path / "alive")
    left, kept = [arena(dead), arena(dead)], arena(alive)
    (dead.path / "engine").touch()
    dead._lock.close()  # as the kernel does when a process is killed
    again = RunDir(tmp_path / "dead")
    assert again.swept_arenas == 2
    assert not any(one.spec.path.exists() for one in left)
    assert kept.spec.path.exists()
    assert list(again.path.iterdir()) == []
    assert again.path.stat().st_mode & 0o777 == 0o700
    again.release()
    alive.release()
    assert not kept.spec.path.exists()
    assert not alive.path.exists()


def test_names_are_the_same_for_a_directory_by_any_path(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    run = RunDir(tmp_path / "state")
    with pytest.raises(FailedPreconditionError):
        RunDir(tmp_path / "link")
    path = run.path
    run.release()
    by_link = RunDir(tmp_path / "link")
    assert by_link.path == path
    assert len({by_link.name_arena() for _ in range(5)}) == 5
    by_link.release()
