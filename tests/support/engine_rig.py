"""Engines for integration tests: real, on loopback ports the system picks, with models measured once a session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from framepool.engine.client import Client
from framepool.engine.config import EngineConfig, make_config
from framepool.engine.control import EngineStats, StreamConfig
from framepool.engine.core import Engine
from framepool.engine.hardware import allowed_cores
from framepool.streams import SAMPLES_DIR

CLIP = SAMPLES_DIR / "walkway.mp4"

Tables = dict[str, Any]


def device(name: str, backend: str, core: int, precision: str = "fp32") -> Tables:
    return {"class": name, "backend": backend, "precision": precision, "cores": [core]}


def two_cores() -> tuple[int, int]:
    """Two CPUs to pin to; the same one twice can't be given to two devices."""
    cores = allowed_cores()
    return cores[0], cores[min(1, len(cores) - 1)]


def onnxruntime_pair() -> list[Tables]:
    """Two classes of one core each, both onnxruntime: a split over them must be bit-exact."""
    first, second = two_cores()
    return [device("left", "onnxruntime", first), device("right", "onnxruntime", second)]


def unlike_pair() -> list[Tables]:
    """OpenVINO (bf16 where the CPU has it) beside onnxruntime fp32."""
    from framepool.engine.runtime.backends.openvino_backend import cpu_has_bf16

    first, second = two_cores()
    precision = "bf16" if cpu_has_bf16() else "fp32"
    return [device("fast", "openvino", first, precision), device("slow", "onnxruntime", second)]


def tables(state_dir: Path, devices: list[Tables], **sections: Tables) -> Tables:
    """Configuration as nested tables; `sections` add to the defaults for tests."""
    base: dict[str, Tables] = {
        "engine": {"state_dir": str(state_dir), "log_level": "warning", "log_format": "json"},
        "api": {"port": 0, "http_port": -1},
        "profiles": {"seconds_per_batch": 0.02, "batch_sizes": [1, 2, 4]},
        "sources": {"file_roots": [str(SAMPLES_DIR), str(state_dir.parent)]},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section}
    return {**base, "devices": devices}


@contextmanager
def engine(state_dir: Path, devices: list[Tables], **sections: Tables) -> Iterator[Engine]:
    """A running engine in this process."""
    config: EngineConfig = make_config(tables(state_dir, devices, **sections))
    running = Engine(config)
    running.start()
    try:
        yield running
    finally:
        running.stop()


class ServedEngine:
    """`framepool serve` as a process of its own, with a client."""

    def __init__(self, state_dir: Path, devices: list[Tables], **sections: Tables) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        config = state_dir.parent / f"{state_dir.name}.toml"
        import tomli_w

        found = tables(state_dir, devices, **sections)
        found["engine"]["log_level"] = "info"
        config.write_text(tomli_w.dumps(found))
        self.state_dir = state_dir
        self.log: list[str] = []
        self._ready = threading.Event()
        self.port = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "framepool.engine.cli", "serve", "--config", str(config)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(60) or not self.port:
            self.kill()
            raise AssertionError("the engine did not start:\n" + "".join(self.log[-20:]))
        self.client = Client(f"127.0.0.1:{self.port}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if '"event": "serving"' in line:
                self.port = int(json.loads(line)["port"])
                self._ready.set()
        self._ready.set()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; the exit code."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        finally:
            self._end()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def served(state_dir: Path, devices: list[Tables], **sections: Tables) -> Iterator[ServedEngine]:
    """A served engine that is ended whatever happens."""
    running = ServedEngine(state_dir, devices, **sections)
    try:
        yield running
    finally:
        running.client.close()
        if running.process.poll() is None:
            running.terminate()


def clip_stream(name: str, **changes: Any) -> StreamConfig:
    """A stream of the bundled clip: 10 fps, SLO 250 ms, unless changed."""
    values: dict[str, Any] = {
        "name": name, "source": str(CLIP), "model": "nanodet", "slo_ms": 250.0, "target_fps": 10.0, **changes,
    }  # fmt: skip
    return StreamConfig(**values)


def until(condition: Callable[[], bool], timeout_s: float = 15.0, every_s: float = 0.02) -> bool:
    """Whether `condition` came true in time."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(every_s)
    return True


def framepool_children(parent: int | None = None) -> dict[str, list[int]]:
    """Children of an engine by kind: "stage", "decoder"."""
    found: dict[str, list[int]] = {"stage": [], "decoder": []}
    for child in psutil.Process(parent or os.getpid()).children(recursive=True):
        try:
            title = " ".join(child.cmdline())
        except psutil.Error:
            continue
        for kind, pids in found.items():
            if title.startswith(f"framepool: {kind}"):
                pids.append(child.pid)
    return found


def balanced(stats: EngineStats) -> bool:
    """ingested = completed + dropped, per stream and in total."""
    counters = [*(stream.counters for stream in stats.streams), stats.totals]
    return all(c.ingested == c.completed + c.dropped_total for c in counters)


def copy_state(source: Path, target: Path) -> Path:
    """A state directory with the models and profiles of another."""
    for part in ("models", "profiles", "stages"):
        if (source / part).exists():
            shutil.copytree(source / part, target / part)
    return target
