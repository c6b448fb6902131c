"""Durations as people write them: ``150ms``, ``2s``, ``5m``, ``1h30m``; integer nanoseconds inside.

Only text to number and back. What range a duration may have is for the setting or option that holds it to say.
"""

from __future__ import annotations

import re

_UNIT_NS = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_PART = re.compile(r"(?P<whole>\d{1,18})(?:\.(?P<fraction>\d{1,18}))?(?P<unit>ms|us|ns|d|h|m|s)")
_LONGEST_TEXT = 64
_LONGEST_NS = 2**63 - 1


def parse_ns(text: str) -> int:
    """Nanoseconds of `text`: numbers with a unit each (d, h, m, s, ms, us, ns), one after another, largest first.

    ValueError with the cure where it is anything else: no unit, a sign, an unknown or repeated unit, over 292 years.
    """
    compact = text.strip().lower().replace(" ", "").replace("µs", "us")
    if compact == "0":
        return 0
    shown = repr(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...")
    at = 0
    total_ns = 0
    smallest_ns = _LONGEST_NS
    while at < len(compact) <= _LONGEST_TEXT:
        part = _PART.match(compact, at)
        if part is None or _UNIT_NS[part["unit"]] >= smallest_ns:
            break
        smallest_ns = _UNIT_NS[part["unit"]]
        total_ns += int(part["whole"]) * smallest_ns
        if part["fraction"]:
            parts = 10 ** len(part["fraction"])
            total_ns += (2 * int(part["fraction"]) * smallest_ns + parts) // (2 * parts)
        at = part.end()
    if not compact or at != len(compact):
        raise ValueError(f"{shown} is no duration; write a number and its unit, like 150ms, 2s, 5m, 1h30m or 7d")
    if total_ns > _LONGEST_NS:
        raise ValueError(f"{shown} is longer than 292 years")
    return total_ns


def format_ns(duration_ns: int) -> str:
    """`duration_ns` (>= 0) with as few units as hold it exactly; ``parse_ns(format_ns(x)) == x``."""
    if duration_ns < 0:
        raise ValueError(f"a duration of {duration_ns} ns has no written form; it must be 0 or more")
    if duration_ns == 0:
        return "0s"
    parts = []
    rest_ns = duration_ns
    for unit, unit_ns in _UNIT_NS.items():
        count, rest_ns = divmod(rest_ns, unit_ns)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
