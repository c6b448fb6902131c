"""Writes what the scheduler is told and answers, so that a run can be replayed (`engine/simulation/replay.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from framepool.engine.scheduling.commands import Command
from framepool.engine.scheduling.events import Event
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.replay import encode_entry, encode_header


class EventLog:
    """An open log file; one line a call of the scheduler. Buffered: `close` completes it."""

    def __init__(self, path: Path, policy: str, options: SchedulerOptions) -> None:
        self._file = path.open("wb", buffering=1 << 20)
        self._file.write(encode_header(policy, options) + b"\n")

    def write(self, now_ns: int, event: Event, commands: Iterable[Command]) -> None:
        self._file.write(encode_entry(now_ns, event, commands) + b"\n")

    def close(self) -> None:
        self._file.close()
