"""Which frames are used, and when those of a file are due."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.streams.pacing import FpsGate, Pacer

MS = 1_000_000


def taken(gate: FpsGate, times_ns: list[int], arrived_ns: int = 0) -> list[int]:
    """Media times that the gate takes; the first frame arrives at `arrived_ns`, the rest as their media time says."""
    interval_ns = min((b - a for a, b in itertools.pairwise(times_ns)), default=40 * MS)
    return [t for t in times_ns if gate.takes(t, interval_ns, arrived_ns + t - times_ns[0])]


def test_of_25_fps_an_even_ten_are_taken() -> None:
    found = taken(FpsGate(10), [i * 40 * MS for i in range(250)])
    assert len(found) == 100
    assert {b - a for a, b in itertools.pairwise(found)} == {80 * MS, 120 * MS}


@pytest.mark.parametrize("fps", [1.0, 5.0, 9.9, 10.0])
def test_a_stream_slower_than_its_target_is_taken_whole(fps: float) -> None:
    times = [round(i * 1e9 / fps) for i in range(50)]
    assert taken(FpsGate(10.0), times) == times


@given(st.floats(1, 60), st.floats(1, 30), st.floats(0, 0.3), st.integers(0, 10**6))
def test_no_more_than_the_target_are_taken_and_hardly_fewer(
    fps: float, target: float, jitter: float, seed: int
) -> None:
    """Over a minute of a jittering stream: at most the target, and at least all but a few of what there is."""
    random = Random(seed)
    times = [round((i + jitter * random.uniform(-0.5, 0.5)) * 1e9 / fps) for i in range(round(60 * fps))]
    found = taken(FpsGate(target), times)
    possible = min(fps, target) * 60
    assert possible * 0.97 - 2 <= len(found) <= min(len(times), target * 60 * 1.01 + 2)
    if fps > 2 * target:
        longest = max(b - a for a, b in itertools.pairwise(found))
        assert longest <= 1e9 / target + 1.5e9 / fps


def test_after_a_pause_frames_are_taken_at_once_and_not_in_a_burst() -> None:
    gate = FpsGate(10)
    times = [i * 40 * MS for i in range(10)] + [10_000 * MS + i * 40 * MS for i in range(10)]
    found = taken(gate, times)
    late = [t for t in found if t >= 10_000 * MS]
    assert late[0] == 10_000 * MS
    assert min(b - a for a, b in itertools.pairwise(late)) >= 80 * MS


@given(st.integers(0, 10**12), st.integers(0, 99))
def test_of_a_quick_camera_the_frames_nearest_to_the_phase_are_taken(arrived_ns: int, phase_ms: int) -> None:
    times = [i * 10 * MS for i in range(300)]  # 100 fps, ten wanted
    found = taken(FpsGate(10, phase_ms * MS), times, arrived_ns)
    assert len(found) in (29, 30)
    for t in found:
        off = (arrived_ns + t - phase_ms * MS) % (100 * MS)
        assert min(off, 100 * MS - off) <= 5 * MS + 1


def test_a_camera_at_its_target_rate_has_no_choice() -> None:
    times = [i * 100 * MS for i in range(20)]
    assert taken(FpsGate(10, 50 * MS), times, arrived_ns=0) == times


@given(st.integers(0, 10**15), st.integers(0, 10**12), st.floats(0.5, 60))
def test_a_file_is_due_from_now_or_its_phase_on_at_its_own_speed(now_ns: int, media_ns: int, fps: float) -> None:
    plain = Pacer()
    assert plain.due_ns(media_ns, now_ns) == now_ns
    assert plain.due_ns(media_ns + 70 * MS, now_ns + 5) == now_ns + 70 * MS
    period_ns = round(1e9 / fps)
    phase_ns = (now_ns * 7919) % period_ns
    phased = Pacer(fps, phase_ns)
    first = phased.due_ns(media_ns, now_ns)
    assert 0 <= first - now_ns < period_ns
    assert first % period_ns == phase_ns
    assert phased.due_ns(media_ns + 3, now_ns + 99) == first + 3
