"""Option values as people write them: durations, moments, key=value pairs. A wrong one is a usage error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from framepool.engine.durations import parse_ns


def duration_ns(text: str) -> int:
    """``150ms``, ``2s``, ``5m``, ..."""
    try:
        return parse_ns(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def duration_ms(text: str) -> float:
    return duration_ns(text) / 1e6


def moment_unix_ns(text: str) -> int:
    """How long ago (``5m``) or an ISO date and time (UTC where it names no zone), as Unix nanoseconds."""
    try:
        return max(0, time.time_ns() - parse_ns(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text[:60]!r} is no time; write how long ago (5m, 2h30m) or a date (2025-06-01T12:00:00Z)"
        ) from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp()) * 1_000_000_000 + zoned.microsecond * 1000


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """``key=value`` options as a mapping."""
    result = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{text[:60]!r} is not key=value")
        result[key] = value
    return result
