"""An engine of one's own for a measurement: started as people start it, ended whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from framepool.benchmarks import MeasurementError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class OwnEngine:
    """A running engine: its gRPC address and its process."""

    address: str
    pid: int


@contextmanager
def own_engine(settings: Mapping[str, Any], folder: Path) -> Iterator[OwnEngine]:
    """Runs ``framepool serve`` with `settings` (sections of its configuration), state in `folder`, ports of the
    system's choice. Ends it by SIGTERM, and waits for it. Raises MeasurementError with its last log lines where it
    does not come up."""
    sections = {name: dict(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    sections["engine"] = {"state_dir": str(folder / "state"), **sections.get("engine", {}), "log_format": "json"}
    sections["api"] = {**sections.get("api", {}), "port": 0, "http_port": -1}
    config = folder / "framepool.toml"
    config.write_text(tomli_w.dumps(sections), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "framepool.engine.cli", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    port: list[int] = []
    tail: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            tail.append(line)
            del tail[:-_TAIL_LINES]
            if not port and '"serving"' in line:
                port.append(int(json.loads(line)["port"]))
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        ready.wait(START_TIMEOUT_S)
        if not port:
            raise MeasurementError("the engine did not start:\n" + "".join(tail))
        yield OwnEngine(f"127.0.0.1:{port[0]}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        if process.stderr is not None:
            process.stderr.close()
