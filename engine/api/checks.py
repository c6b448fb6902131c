"""Checks of request fields at the edge: each returns the value in the engine's terms or names field, value and limit.

Only what can be told from the request alone; whether a stream exists or a source can be played is the engine's to say.
Values of sources and credentials are never repeated in a message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from framepool.engine.errors import InvalidArgumentError

LONGEST_NAME = 63
LONGEST_SLO_MS = 3_600_000.0
HIGHEST_FPS = 1000.0
DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000
LONGEST_PAGE_TOKEN = 4096
LONGEST_SOURCE = 4096
LONGEST_USERNAME = 256
LONGEST_PASSWORD = 1024
LONGEST_PATH = 4096
LONGEST_LABEL = 128
MOST_LABELS = 256
MOST_MODEL_LABELS = 65_536
MOST_STREAMS = 256
MOST_METADATA = 64
LONGEST_METADATA_KEY = 128
LONGEST_METADATA_VALUE = 1024
LARGEST_SPEC_BYTES = 256 * 1024

_STREAM_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MODEL_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Item = TypeVar("Item")


def shown(value: str) -> str:
    """`value` quoted and cut short, for a message."""
    return repr(value) if len(value) <= 60 else f"{value[:57]!r}... ({len(value)} characters)"


def stream_id(value: str, field: str) -> str:
    """The id of a stream to be."""
    if not _STREAM_ID.fullmatch(value):
        raise InvalidArgumentError(
            f"{field} {shown(value)} is no stream name; use 1 to {LONGEST_NAME} of a-z, 0-9 and '-', "
            "beginning with a letter or digit",
            field=field,
        )
    return value


def model_id(value: str, field: str) -> str:
    """The id of a model to be."""
    if not _MODEL_ID.fullmatch(value):
        raise InvalidArgumentError(
            f"{field} {shown(value)} is no model name; use 1 to {LONGEST_NAME} of a-z, 0-9, '-' and '_', "
            "beginning with a letter or digit",
            field=field,
        )
    return value


def stream_name(value: str, field: str) -> str:
    """The id in "streams/{stream}"."""
    return stream_id(_within(value, "streams/", field), field)


def model_name(value: str, field: str) -> str:
    """The id in "models/{model}"."""
    return model_id(_within(value, "models/", field), field)


def _within(value: str, collection: str, field: str) -> str:
    if not value.startswith(collection):
        raise InvalidArgumentError(
            f'{field} {shown(value)} is no resource name; write "{collection}" and the name after it', field=field
        )
    return value.removeprefix(collection)


def slo_ms(value: float, field: str) -> float:
    if not (math.isfinite(value) and 0 < value <= LONGEST_SLO_MS):
        raise InvalidArgumentError(
            f"{field} is {value:g} ms; an SLO is above 0 and at most {LONGEST_SLO_MS:,.0f} ms (1 h)", field=field
        )
    return value


def target_fps(value: float, field: str) -> float:
    if not (math.isfinite(value) and 0 < value <= HIGHEST_FPS):
        raise InvalidArgumentError(
            f"{field} is {value:g} frames per second; it must be above 0 and at most {HIGHEST_FPS:g}", field=field
        )
    return value


def score(value: float, field: str) -> float:
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise InvalidArgumentError(f"{field} is {value:g}; a score lies between 0 and 1", field=field)
    return value


def source(value: str, field: str) -> str:
    """A source as typed; its kind and credentials are looked at elsewhere. Never repeated: it may hold a password."""
    if not value.strip():
        raise InvalidArgumentError(
            f"{field} is empty; give an rtsp, rtsps, http or https URL or the path of a file", field=field
        )
    return text(value, field, longest=LONGEST_SOURCE)


def text(value: str, field: str, *, longest: int) -> str:
    """One line of at most `longest` characters; the value is not repeated."""
    if len(value) > longest:
        raise InvalidArgumentError(f"{field} has {len(value)} characters; at most {longest} are taken", field=field)
    if _CONTROL.search(value):
        raise InvalidArgumentError(f"{field} holds a control character; it must be one plain line", field=field)
    return value


def texts(values: Iterable[str], field: str, *, most: int, longest: int) -> tuple[str, ...]:
    """Not more than `most` lines, none of them empty."""
    taken = bounded(tuple(values), field, most=most)
    for index, value in enumerate(taken):
        entry = f"{field}[{index}]"
        if not value:
            raise InvalidArgumentError(f"{entry} is empty; leave it out or name something", field=entry)
        text(value, entry, longest=longest)
    return taken


def labels(values: Iterable[str], field: str) -> tuple[str, ...]:
    return texts(values, field, most=MOST_LABELS, longest=LONGEST_LABEL)


def bounded(values: tuple[Item, ...], field: str, *, most: int) -> tuple[Item, ...]:
    if len(values) > most:
        raise InvalidArgumentError(f"{field} has {len(values)} entries; at most {most} are taken", field=field)
    return values


def metadata(values: Mapping[str, str], field: str) -> dict[str, str]:
    if len(values) > MOST_METADATA:
        raise InvalidArgumentError(f"{field} has {len(values)} entries; at most {MOST_METADATA} are taken", field=field)
    for key, value in values.items():
        if not key:
            raise InvalidArgumentError(f"{field} has an empty key; name it", field=field)
        text(key, field, longest=LONGEST_METADATA_KEY)
        text(value, f"{field}[{shown(key)}]", longest=LONGEST_METADATA_VALUE)
    return dict(values)


def page_size(value: int, field: str = "page_size") -> int:
    if not 0 <= value <= LARGEST_PAGE_SIZE:
        raise InvalidArgumentError(
            f"{field} is {value}; it lies between 1 and {LARGEST_PAGE_SIZE} (0: {DEFAULT_PAGE_SIZE})", field=field
        )
    return value or DEFAULT_PAGE_SIZE


def page_token(value: str, field: str = "page_token") -> str:
    return text(value, field, longest=LONGEST_PAGE_TOKEN)


def unix_ns(value: Timestamp, field: str) -> int:
    """Nanoseconds since 1970, UTC, of a time from 1970 to 2262 (what 64 bits of them hold)."""
    if not (0 <= value.seconds < 2**63 // 1_000_000_000 and 0 <= value.nanos < 1_000_000_000):
        raise InvalidArgumentError(f"{field} lies outside the years 1970 to 2262", field=field)
    return value.seconds * 1_000_000_000 + value.nanos


def time_range(start_unix_ns: int | None, end_unix_ns: int | None, field: str) -> None:
    """Refuses a range that can hold nothing."""
    if start_unix_ns is not None and end_unix_ns is not None and end_unix_ns <= start_unix_ns:
        raise InvalidArgumentError(f"{field} is not after the start; an empty time range selects nothing", field=field)


def update_paths(paths: Iterable[str], allowed: frozenset[str], field: str = "update_mask") -> frozenset[str]:
    """The paths of an update mask, each of them allowed."""
    taken = frozenset(paths)
    if not taken:
        raise InvalidArgumentError(
            f"{field} is empty; name the fields to change: {', '.join(sorted(allowed))}", field=field
        )
    for path in sorted(taken - allowed):
        raise InvalidArgumentError(
            f"{field} names {shown(path)}, which can't be changed; it takes {', '.join(sorted(allowed))}", field=field
        )
    return taken
