"""Attainment and goodput, defined once."""

from __future__ import annotations

from framepool.engine.outcomes import OutcomeCounts, attainment, goodput_fps, load_factor, total
from framepool.engine.scheduling.events import DropReason


def test_late_frames_and_drops_of_every_reason_count_against_attainment():
    counts = OutcomeCounts(12, 8, 6, {DropReason.STALE: 1, DropReason.ERROR: 1})
    assert (counts.ended, counts.open, counts.dropped_total) == (10, 2, 2)
    assert counts.attainment == 0.6


def test_nothing_ended_is_full_attainment_and_no_time_no_goodput():
    assert attainment(0, 0) == 1.0
    assert goodput_fps(5, 0) == 0.0
    assert goodput_fps(5, 500_000_000) == 10.0
    assert load_factor(30.0, 40.0) == 0.75


def test_totals_add_up_reason_by_reason():
    one = OutcomeCounts(5, 3, 2, {DropReason.STALE: 2})
    two = OutcomeCounts(4, 1, 1, {DropReason.STALE: 1, DropReason.OVERLOAD: 2})
    assert total([one, two]) == OutcomeCounts(9, 4, 3, {DropReason.STALE: 3, DropReason.OVERLOAD: 2})
    assert total([]) == OutcomeCounts()
