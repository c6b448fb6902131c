"""Small values on the wire: resource names, times, enums. Used by the server and the client alike.

Enums travel by the name of their member (the message class turns it into the number).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from framepool.engine.control import StreamState
from framepool.engine.scheduling.events import DropReason, ServiceClass
from framepool.proto import streams_pb2

STREAMS = "streams/"
MODELS = "models/"
_NS = 1_000_000_000

Member = TypeVar("Member", bound=StrEnum)


def stream_resource(stream: str) -> str:
    return STREAMS + stream


def model_resource(model: str) -> str:
    return MODELS + model


def bare(resource: str) -> str:
    """The part of a resource name after its collection."""
    return resource.partition("/")[2]


def timestamp(unix_ns: int) -> Timestamp:
    return Timestamp(seconds=unix_ns // _NS, nanos=unix_ns % _NS)


def timestamp_ns(value: Timestamp) -> int:
    return int(value.seconds) * _NS + int(value.nanos)


def duration(length_ns: int) -> Duration:
    """Seconds and nanoseconds of one sign, as the type asks."""
    seconds, nanos = divmod(abs(length_ns), _NS)
    return Duration(seconds=-seconds, nanos=-nanos) if length_ns < 0 else Duration(seconds=seconds, nanos=nanos)


def duration_ns(value: Duration) -> int:
    return int(value.seconds) * _NS + int(value.nanos)


def _wire_name(prefix: str, member: StrEnum) -> str:
    return prefix + member.value.upper().replace("-", "_")


def _member(kind: type[Member], prefix: str, wire_name: str, unspecified: Member) -> Member:
    """The member of that wire name; `unspecified` for 0 and for what a newer peer may send."""
    for member in kind:
        if _wire_name(prefix, member) == wire_name:
            return member
    return unspecified


def state_to_wire(state: StreamState) -> str:
    return _wire_name("STREAM_STATE_", state)


def state_from_wire(value: int) -> StreamState:
    known = value in streams_pb2.StreamState.values()
    name = streams_pb2.StreamState.Name(value) if known else ""
    return _member(StreamState, "STREAM_STATE_", name, StreamState.CONNECTING)


def drop_reason_to_wire(reason: DropReason) -> str:
    return _wire_name("DROP_REASON_", reason)


def drop_reason_from_wire(value: int) -> DropReason:
    known = value in streams_pb2.DropReason.values()
    name = streams_pb2.DropReason.Name(value) if known else ""
    return _member(DropReason, "DROP_REASON_", name, DropReason.ERROR)


def service_class_to_wire(service_class: ServiceClass) -> str:
    return _wire_name("SERVICE_CLASS_", service_class)


def service_class_from_wire(value: int) -> ServiceClass:
    known = value in streams_pb2.ServiceClass.values()
    name = streams_pb2.ServiceClass.Name(value) if known else ""
    return _member(ServiceClass, "SERVICE_CLASS_", name, ServiceClass.LIVE)
