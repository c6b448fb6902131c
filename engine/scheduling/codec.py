"""Events and commands as JSON lines and back: what a driver writes to its event log and a replay reads.

One object a value, its class under "is", its fields by name. Times stay integers. `PlanActivated.workers` has tuple
keys, which JSON lacks, and is written as a list of [pipeline id, stage, worker ids].
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from framepool import FramepoolError
from framepool.engine.planning.plan import Plan
from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, WakeAt
from framepool.engine.scheduling.events import (
    Event,
    FrameArrived,
    PlanActivated,
    RoomWanted,
    StageFailed,
    StageFinished,
    StageRefused,
    StreamRemoved,
    Tick,
    WorkerLost,
    WorkerUp,
)

_EVENTS: MappingProxyType[str, type[Any]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            FrameArrived,
            RoomWanted,
            StreamRemoved,
            StageFinished,
            StageRefused,
            StageFailed,
            WorkerUp,
            WorkerLost,
            PlanActivated,
            Tick,
        )
    }
)
_COMMANDS: MappingProxyType[str, type[Any]] = MappingProxyType(
    {kind.__name__: kind for kind in (Dispatch, Complete, Drop, WakeAt)}
)


class LogFormatError(FramepoolError):
    """A line of an event log is no event or command of this version."""


def encode_event(event: Event) -> bytes:
    """The event as one line of JSON, without the line end."""
    return msgspec.json.encode(event_to_builtins(event))


def decode_event(line: bytes | str) -> Event:
    """The event of a line. Raises LogFormatError."""
    return event_from_builtins(_parsed(line))


def encode_command(command: Command) -> bytes:
    return msgspec.json.encode(command_to_builtins(command))


def decode_command(line: bytes | str) -> Command:
    """The command of a line. Raises LogFormatError."""
    return command_from_builtins(_parsed(line))


def event_to_builtins(event: Event) -> dict[str, Any]:
    if isinstance(event, PlanActivated):
        workers = [[pipeline_id, stage, list(ids)] for (pipeline_id, stage), ids in event.workers.items()]
        plan = msgspec.to_builtins(event.plan)
        return {"is": "PlanActivated", "plan": plan, "workers": workers, "links": dict(event.links)}
    return {"is": type(event).__name__, **msgspec.to_builtins(event)}


def event_from_builtins(value: Any) -> Event:
    if isinstance(value, dict) and value.get("is") == "PlanActivated":
        try:
            plan = msgspec.convert(value["plan"], Plan)
            workers = {(str(name), int(stage)): tuple(ids) for name, stage, ids in value["workers"]}
            return PlanActivated(plan, workers, dict(value["links"]))
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as exc:
            raise LogFormatError(f"a PlanActivated of the log can't be read: {exc}") from exc
    event: Event = _tagged(value, _EVENTS)
    return event


def command_to_builtins(command: Command) -> dict[str, Any]:
    return {"is": type(command).__name__, **msgspec.to_builtins(command)}


def command_from_builtins(value: Any) -> Command:
    command: Command = _tagged(value, _COMMANDS)
    return command


def _parsed(line: bytes | str) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as exc:
        raise LogFormatError(f"a line of the log is no JSON: {exc}") from exc


def _tagged(value: Any, kinds: MappingProxyType[str, type[Any]]) -> Any:
    kind = kinds.get(value.get("is", "")) if isinstance(value, dict) else None
    if kind is None:
        raise LogFormatError(f"a line of the log is none of: {', '.join(kinds)}")
    fields = {name: field for name, field in value.items() if name != "is"}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as exc:
        raise LogFormatError(f"a {kind.__name__} of the log can't be read: {exc}") from exc
