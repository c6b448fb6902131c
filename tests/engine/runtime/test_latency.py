"""Where time went adds up, and recent sums are those of the last seconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.runtime.latency import PARTS, LatencyWindow, RecentSums, breakdown

MS = 1_000_000


def test_parts_add_up_to_the_total() -> None:
    window = LatencyWindow()
    window.add(total_ns=50 * MS, decode_ns=5 * MS, transfer_ns=1 * MS, inference_ns=30 * MS, publish_ns=2 * MS)
    found = breakdown(window.snapshot())
    assert found.queueing.p50_ms == 12
    assert found.overhead.p50_ms == 20
    parts = (found.decode, found.transfer, found.inference, found.publish, found.queueing)
    assert sum(part.p50_ms for part in parts) == found.total.p50_ms == 50


def test_clocks_that_disagree_give_no_negative_queueing() -> None:
    window = LatencyWindow()
    window.add(total_ns=10, decode_ns=8, transfer_ns=4, inference_ns=3, publish_ns=0)
    assert window.snapshot()[0, PARTS.index("queueing")] == 0


def test_quantiles_are_of_the_newest_frames() -> None:
    window = LatencyWindow(capacity=100)
    for ms in [1000] * 50 + list(range(1, 101)):
        window.add(ms * MS, 0, 0, 0, 0)
    total = breakdown(window.snapshot()).total
    assert (total.count, total.max_ms) == (100, 100)
    assert total.p50_ms == pytest.approx(50.5)
    assert total.p90_ms == pytest.approx(90.1)
    assert total.p99_ms == pytest.approx(99.01)


def test_only_frames_of_the_window_asked_for() -> None:
    window = LatencyWindow(capacity=10)
    for second in range(15):
        window.add(second * MS, 0, 0, 0, 0, now_ns=second * 10**9)
    assert breakdown(window.snapshot(since_ns=12 * 10**9)).total.p50_ms == 13
    assert breakdown(window.snapshot()).total.count == 10
    assert breakdown(window.snapshot(since_ns=15 * 10**9)).total.count == 0


def test_no_frames_no_figures() -> None:
    assert breakdown(LatencyWindow().snapshot()).total.count == 0


@given(st.lists(st.tuples(st.integers(0, 3 * 10**9), st.integers(0, 1), st.integers(1, 9)), max_size=40))
def test_recent_sums_are_those_of_the_window(steps: list[tuple[int, int, int]]) -> None:
    start_ns = 1_000_000_000_500
    sums = RecentSums(2, start_ns, window_s=5)
    now_ns = start_ns
    told = []
    for wait_ns, index, amount in steps:
        now_ns += wait_ns
        sums.add(now_ns, index, amount)
        told.append((now_ns, index, amount))
    first_s = now_ns // 10**9 - 4
    expected = [sum(a for at, i, a in told if i == index and at // 10**9 >= first_s) for index in (0, 1)]
    found, seconds = sums.read(now_ns)
    assert found == expected
    assert seconds == pytest.approx(max(0.001, now_ns / 1e9 - max(first_s, start_ns / 1e9)))
    assert seconds <= 5


def test_old_sums_are_forgotten() -> None:
    sums = RecentSums(1, 0, window_s=3)
    for second in range(1000):
        sums.add(second * 10**9, 0, 1)
    assert sums.read(999 * 10**9 + 5)[0] == [3]
    assert sums.read(2000 * 10**9)[0] == [0]
    assert np.isfinite(sums.read(2000 * 10**9)[1])
