"""Time stamps of the field: whatever they are, media time only goes up; honest ones are kept."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.streams.backoff import Backoff, BackoffSettings
from framepool.streams.timeline import MOST_GAP_NS, Timeline

MS = 1_000_000
KHZ90 = Fraction(1, 90_000)
stamps = st.one_of(st.none(), st.integers(-(2**40), 2**40), st.integers(0, 400).map(lambda i: i * 3600))


@given(
    st.lists(stamps, max_size=60),
    st.sampled_from([None, 0, 25, 90_000, 1000, Fraction(30000, 1001)]),
    st.sets(st.integers(0, 60)),
)
def test_b2_b3_b9_media_time_only_goes_up_and_never_far(pts: list[int | None], fps: object, restarts: set[int]) -> None:
    timeline = Timeline(fps)  # type: ignore[arg-type]
    seen = []
    for index, value in enumerate(pts):
        if index in restarts:
            timeline.restart(25)
        seen.append(timeline.stamp(value, KHZ90))
    times = [stamp.media_time_ns for stamp in seen]
    assert all(0 < b - a <= MOST_GAP_NS for a, b in itertools.pairwise(times))
    assert not times or times[0] == 0
    assert [stamp.synthetic for stamp in seen] == [value is None for value in pts]


@given(st.integers(0, 2**50), st.lists(st.integers(1, 900_000), max_size=40))
def test_b1_honest_stamps_are_kept_whatever_they_start_at(start: int, steps: list[int]) -> None:
    """B1, B8: variable rate and a high start; to the rounding of nanoseconds."""
    timeline = Timeline()
    pts = list(itertools.accumulate(steps, initial=start))
    for value in pts:
        stamp = timeline.stamp(value, KHZ90)
        assert abs(stamp.media_time_ns - (value - start) * 1e9 / 90_000) <= 2
        assert not stamp.synthetic
        assert not stamp.rebased


def test_b9_a_wrap_of_33_bits_goes_on() -> None:
    timeline = Timeline()
    pts = [(2**33 - 9000 + i * 3600) % 2**33 for i in range(10)]
    times = [timeline.stamp(value, KHZ90).media_time_ns for value in pts]
    steps = [b - a for a, b in itertools.pairwise(times)]
    assert all(abs(step - 40 * MS) < 2 for step in steps)


def test_b9_a_jump_is_joined_on_one_interval_later_and_said() -> None:
    timeline = Timeline()
    for i in range(20):
        timeline.stamp(i * 3600, KHZ90)
    last = timeline.stamp(20 * 3600, KHZ90)
    jumped = timeline.stamp(10_000_000_000, KHZ90)
    assert jumped.rebased
    assert jumped.media_time_ns - last.media_time_ns == pytest.approx(40 * MS, abs=2)
    after = timeline.stamp(10_000_003_600, KHZ90)
    assert not after.rebased
    assert after.media_time_ns - jumped.media_time_ns == pytest.approx(40 * MS, abs=2)


@pytest.mark.parametrize("lie", [None, 0, 1000, 90_000, -5])
def test_b2_a_rate_that_can_not_be_is_not_believed(lie: float | None) -> None:
    timeline = Timeline(lie)
    times = [timeline.stamp(None, None).media_time_ns for _ in range(5)]
    assert times == [i * 40 * MS for i in range(5)]


def test_a_loop_goes_on_one_interval_after_the_last_frame() -> None:
    timeline = Timeline(25)
    times = []
    for _ in range(3):
        timeline.restart(25)
        times += [timeline.stamp(i * 3600, KHZ90).media_time_ns for i in range(4)]
    assert all(abs(b - a - 40 * MS) < 2 for a, b in itertools.pairwise(times))


@given(st.floats(0.01, 5), st.floats(1, 60), st.floats(0, 0.9), st.integers(0, 10**6))
def test_waits_double_up_to_a_bound_with_jitter_and_begin_again(
    first_s: float, longest_s: float, jitter: float, seed: int
) -> None:
    from random import Random

    settings = BackoffSettings(first_s=first_s, longest_s=longest_s, jitter=jitter, auth_s=90.0)
    backoff = Backoff(settings, Random(seed))
    for tries in range(50):
        nominal_s = min(longest_s, first_s * 2.0 ** min(tries, 32))
        assert nominal_s * (1 - jitter) * 0.999 <= backoff.next_s() <= nominal_s * (1 + jitter) * 1.001
    backoff.reset()
    assert backoff.next_s() <= first_s * (1 + jitter) * 1.001 or first_s > longest_s
    assert backoff.next_s(auth=True) >= 90.0 * (1 - jitter) * 0.999


def test_cameras_that_fail_together_do_not_come_back_together() -> None:
    from random import Random

    waits = [Backoff(BackoffSettings(), Random(stream)).next_s() for stream in range(50)]
    assert max(waits) - min(waits) > 0.1
