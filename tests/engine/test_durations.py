"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.durations import format_ns, parse_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("150ms", 150_000_000),
        ("2s", 2_000_000_000),
        ("5m", 300_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        (" 1 d 2 h ", 93_600_000_000_000),
        ("7D", 604_800_000_000_000),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("3ns", 3),
        ("0", 0),
        ("0s", 0),
        ("0.1ms", 100_000),
        ("0.000000001s", 1),
    ],
)
def test_parse(text: str, expected_ns: int) -> None:
    assert parse_ns(text) == expected_ns


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "-5s", "+5s", "5x", "ms", "1m1h", "1s1s", "1e3s", "nan", "inf", ".5s", "5.s", "1,5s", "9" * 99 + "s",
     "300000d", "1s x"],
)  # fmt: skip
def test_refused_with_the_cure(text: str) -> None:
    with pytest.raises(ValueError, match=r"150ms|292 years"):
        parse_ns(text)


@given(st.integers(0, 2**63 - 1))
def test_format_and_back(duration_ns: int) -> None:
    assert parse_ns(format_ns(duration_ns)) == duration_ns


def test_format() -> None:
    assert format_ns(150_000_000) == "150ms"
    assert format_ns(90_000_000_000) == "1m30s"
    assert format_ns(0) == "0s"
    with pytest.raises(ValueError, match="0 or more"):
        format_ns(-1)
