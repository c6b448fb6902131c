"""Replay: a recorded event log driven through a fresh scheduler, its commands compared with those recorded.

That the live engine runs the very scheduler that is simulated is checked this way: the engine records what it told
the scheduler and what it was told, and the replay must give the same. A log is JSON lines: a header, then one line an
event, with its time and the commands that followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from framepool.engine.scheduling.codec import (
    LogFormatError,
    command_from_builtins,
    command_to_builtins,
    event_from_builtins,
    event_to_builtins,
)
from framepool.engine.scheduling.commands import Command
from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.events import Event
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One call of `handle`."""

    now_ns: int
    event: Event
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first call whose commands differ: `index` counts calls from 0."""

    index: int
    entry: LogEntry
    replayed: tuple[Command, ...]


def encode_header(policy: str, options: SchedulerOptions) -> bytes:
    """The log's first line: how the scheduler was made."""
    return msgspec.json.encode({"policy": policy, "options": msgspec.to_builtins(options)})


def encode_entry(now_ns: int, event: Event, commands: Iterable[Command]) -> bytes:
    """A line of the log, without the line end. `now_ns` is the time given to `handle`."""
    told = [command_to_builtins(command) for command in commands]
    return msgspec.json.encode({"now_ns": now_ns, "event": event_to_builtins(event), "commands": told})


def decode_entry(line: bytes | str) -> LogEntry:
    """Raises LogFormatError."""
    try:
        value = msgspec.json.decode(line)
        commands = tuple(command_from_builtins(command) for command in value["commands"])
        return LogEntry(int(value["now_ns"]), event_from_builtins(value["event"]), commands)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as exc:
        raise LogFormatError(f"a line of the log can't be read: {exc}") from exc


def decode_header(line: bytes | str) -> Scheduler:
    """A fresh scheduler, made as the recorded one was. Raises LogFormatError, or ConfigError for a policy not known."""
    try:
        value = msgspec.json.decode(line)
        options = msgspec.convert(value["options"], SchedulerOptions)
        policy = str(value["policy"])
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as exc:
        raise LogFormatError(f"the log's header can't be read: {exc}") from exc
    return make_scheduler(policy, options)


def replay(scheduler: Scheduler, entries: Iterable[LogEntry]) -> Mismatch | None:
    """Drives a fresh scheduler through the log; the first call that differs, or None where all agree."""
    for index, entry in enumerate(entries):
        replayed = tuple(scheduler.handle(entry.event, entry.now_ns))
        if replayed != entry.commands:
            return Mismatch(index, entry, replayed)
    return None


def replay_log(lines: Iterable[bytes | str]) -> Mismatch | None:
    """Replays a whole log, header first. Raises LogFormatError."""
    remaining: Iterator[bytes | str] = iter(lines)
    header = next(remaining, None)
    if header is None:
        raise LogFormatError("the log is empty; its first line must be the header")
    return replay(decode_header(header), map(decode_entry, remaining))
