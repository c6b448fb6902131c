"""Phases of cameras: as far apart as periods allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.planning.phases import CANDIDATES, Phase, choose_phase, nearest_ns, period

MS = 1_000_000


def phases(*rates: float) -> list[Phase]:
    found: list[Phase] = []
    for fps in rates:
        found.append(choose_phase(fps, found))
    return found


def nearest(found: list[Phase]) -> float:
    return min(d for i, a in enumerate(found) for b in found[:i] if (d := nearest_ns(a, b)) is not None)


def test_the_distance_is_that_at_which_frames_really_meet() -> None:
    assert nearest_ns(Phase(10, 0), Phase(10, 30 * MS)) == 30 * MS
    assert nearest_ns(Phase(10, 0), Phase(10, 80 * MS)) == 20 * MS
    assert nearest_ns(Phase(10, 0), Phase(5, 130 * MS)) == 30 * MS
    assert nearest_ns(Phase(10, 0), Phase(15, 10 * MS)) == pytest.approx(10 * MS)  # 1/30 s in common
    assert nearest_ns(Phase(10, 0), Phase(9.973, 10 * MS)) is None


@pytest.mark.parametrize(("streams", "least_ms"), [(2, 50), (4, 25), (6, 12.5), (8, 12.5), (16, 6.25)])
def test_streams_of_one_rate_share_the_period(streams: int, least_ms: float) -> None:
    assert nearest(phases(*[10.0] * streams)) >= least_ms * MS * 0.99


def test_unlike_rates_are_kept_apart_too() -> None:
    assert nearest(phases(10, 5, 20, 10)) >= 12 * MS
    assert nearest(phases(10, 15, 30)) >= 8 * MS


def test_a_phase_that_was_freed_is_used_again() -> None:
    found = phases(10, 10, 10, 10)
    gone = found.pop(2)
    assert choose_phase(10, found) == gone


@given(
    st.lists(st.sampled_from([1.0, 5.0, 7.5, 10.0, 12.5, 15.0, 25.0, 29.97, 30.0]), max_size=12), st.floats(0.1, 100)
)
def test_a_phase_lies_within_its_period_and_is_the_best_of_those_tried(rates: list[float], fps: float) -> None:
    others = phases(*rates)
    chosen = choose_phase(fps, others)
    assert 0 <= chosen.phase_ns < period(fps)

    def room(phase_ns: int) -> float:
        distances = [d for other in others if (d := nearest_ns(Phase(fps, phase_ns), other)) is not None]
        return min(distances, default=0.0)

    assert all(room(chosen.phase_ns) >= room(int(k * period(fps) / CANDIDATES)) for k in range(CANDIDATES))
