"""`framepool serve` as a command: what keeps it from starting is one line and an exit code; two engines don't mix."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import engine_rig as rig
import pytest
import tomli_w


def serve(config: Path, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """An engine that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "framepool.engine.cli", "serve", "--config", str(config)],
        capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip


def written(folder: Path, **sections: rig.Tables) -> Path:
    path = folder / "framepool.toml"
    path.write_text(tomli_w.dumps(rig.tables(folder / "state", rig.onnxruntime_pair(), **sections)))
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[planner]\nmax_stages = 0\n", "planner.max_stages"),
        ("[planner]\nmax_stage = 2\n", "planner.max_stage"),
        ("[[devices]]\nclass = 'a'\nbackend = 'tpu'\n", "devices"),
        ("[store]\nurl = 'nosuch://x:s3cret@h/db'\n", "store.url"),
        ("[scheduler]\npolicy = 'best'\n", "scheduler.policy"),
        ("[planner\n", "framepool.toml"),
    ],
)
def test_f9_a_configuration_that_is_wrong_is_named_and_nothing_starts(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "framepool.toml"
    path.write_text(f"[engine]\nstate_dir = '{tmp_path / 'state'}'\n{text}" if text != "[planner\n" else text)
    ended = serve(path)
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert says in last
    assert "s3cret" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_configuration_file_that_is_missing_is_named(tmp_path: Path) -> None:
    ended = serve(tmp_path / "nope.toml")
    assert ended.returncode != 0
    assert str(tmp_path / "nope.toml") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = serve(written(tmp_path, api={"port": port}))
    assert ended.returncode != 0
    assert str(port) in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_second_engine_on_the_same_state_is_refused_and_the_first_goes_on(state_dir: Path) -> None:
    with rig.served(state_dir, rig.onnxruntime_pair()) as first:
        first.client.register_stream(rig.clip_stream("gate", loop=True))
        ended = serve(first.state_dir.parent / f"{first.state_dir.name}.toml")
        assert ended.returncode != 0
        assert "another engine runs with state directory" in ended.stderr.strip().splitlines()[-1]
        done = first.client.stats().totals.completed
        assert rig.until(lambda: first.client.stats().totals.completed > done)
        assert first.terminate() == 0
