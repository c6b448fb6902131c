"""Blocks: exact against brute force, deterministic, fast on thousands of candidates."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from framepool.models.blocks import choose_blocks, refine
from framepool.models.errors import ModelError


def brute_force(
    latency: NDArray[np.float64], cut_bytes: NDArray[np.int64], max_blocks: int, slack: float
) -> tuple[float, int]:
    """Tightest bound, and least bytes within it relaxed by `slack`."""
    n = len(latency)
    shares = latency / latency.sum(axis=0)
    choices = []
    for count in range(min(max_blocks, n)):
        for cuts in combinations(range(1, n), count):
            edges = (0, *cuts, n)
            bound = max(shares[i:j].sum(axis=0).max() for i, j in pairwise(edges))
            choices.append((float(bound), int(sum(cut_bytes[c - 1] for c in cuts))))
    tightest = min(bound for bound, _ in choices)
    return tightest, min(size for bound, size in choices if bound <= tightest * (1 + slack) + 1e-9)


@st.composite
def problems(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.int64], int, float]:
    n = draw(st.integers(1, 9))
    classes = draw(st.integers(1, 3))
    rows = draw(st.lists(st.lists(st.integers(0, 40), min_size=classes, max_size=classes), min_size=n, max_size=n))
    latency = np.array(rows, dtype=np.float64) + 1e-3
    sizes = np.array(draw(st.lists(st.integers(0, 9), min_size=n - 1, max_size=n - 1)), dtype=np.int64)
    return latency, sizes, draw(st.integers(1, 5)), draw(st.sampled_from([0.0, 0.05, 0.5]))


@given(problems())
def test_bound_and_bytes_equal_brute_force(problem: tuple[NDArray[np.float64], NDArray[np.int64], int, float]) -> None:
    latency, sizes, max_blocks, slack = problem
    choice = choose_blocks(latency, sizes, max_blocks=max_blocks, slack=slack)
    tightest, least = brute_force(latency, sizes, max_blocks, slack)
    assert choice.bound <= tightest * (1 + slack) + 1e-9
    assert choice.bytes_per_sample == least
    assert len(choice.loads) == len(choice.cuts) + 1 <= max_blocks
    assert max(choice.loads) == choice.bound


@given(problems())
def test_choice_is_made_of_its_cuts(problem: tuple[NDArray[np.float64], NDArray[np.int64], int, float]) -> None:
    latency, sizes, max_blocks, slack = problem
    choice = choose_blocks(latency, sizes, max_blocks=max_blocks, slack=slack)
    assert list(choice.cuts) == sorted(set(choice.cuts))
    assert all(0 < cut < len(latency) for cut in choice.cuts)
    assert choice.bytes_per_sample == sum(int(sizes[cut - 1]) for cut in choice.cuts)
    assert choose_blocks(latency * 7.0, sizes, max_blocks=max_blocks, slack=slack).bound == pytest.approx(choice.bound)


def test_every_class_counts() -> None:
    """Cheap on one class and dear on the other: the bound is the worse of both."""
    latency = np.array([[1.0, 9.0], [1.0, 1.0], [8.0, 0.0]])
    choice = choose_blocks(latency, np.array([5, 1], dtype=np.int64), max_blocks=2)
    assert choice.bound == pytest.approx(0.9)
    assert choice.cuts == (1,)  # the only cut with 0.9: [0.1, 0.9] and [0.9, 0.1]


def test_slack_buys_fewer_bytes() -> None:
    latency = np.array([[10.0], [0.5], [10.5]])
    sizes = np.array([1, 1000], dtype=np.int64)
    assert choose_blocks(latency, sizes, max_blocks=2).cuts == (2,)
    assert choose_blocks(latency, sizes, max_blocks=2, slack=0.1).cuts == (1,)


def test_dominant_segment_does_not_buy_needless_cuts() -> None:
    latency = np.array([[1.0], [1.0], [98.0], [1.0]])
    choice = choose_blocks(latency, np.array([3, 2, 2], dtype=np.int64), max_blocks=10)
    assert choice.cuts == (2, 3)


@given(problems())
def test_refining_keeps_the_cuts_and_the_bound(
    problem: tuple[NDArray[np.float64], NDArray[np.int64], int, float],
) -> None:
    latency, sizes, max_blocks, slack = problem
    choice = choose_blocks(latency, sizes, max_blocks=max_blocks, slack=slack)
    refined = refine(choice, latency, sizes, max_blocks=max_blocks)
    assert set(choice.cuts) <= set(refined.cuts)
    assert len(refined.loads) <= max_blocks
    assert refined.bound <= choice.bound + 1e-9


def test_refining_spends_the_cuts_that_a_dominant_segment_left() -> None:
    latency = np.array([[10.0], [10.0], [60.0], [10.0], [10.0]])
    sizes = np.array([9, 1, 1, 9], dtype=np.int64)
    choice = choose_blocks(latency, sizes, max_blocks=5)
    assert choice.cuts == (2, 3)
    assert refine(choice, latency, sizes, max_blocks=5).cuts == (1, 2, 3, 4)
    assert len(refine(choice, latency, sizes, max_blocks=4).cuts) == 3


def test_no_candidates_is_one_block() -> None:
    choice = choose_blocks(np.array([[4.0, 2.0]]), np.array([], dtype=np.int64))
    assert (choice.cuts, choice.bound, choice.bytes_per_sample) == ((), 1.0, 0)


def test_latencies_of_zero_are_shared_evenly() -> None:
    choice = choose_blocks(np.zeros((4, 1)), np.ones(3, dtype=np.int64), max_blocks=2)
    assert choice.cuts == (2,)


def test_thousands_of_candidates() -> None:
    rng = np.random.default_rng(7)
    latency = rng.exponential(size=(4000, 3))
    sizes = rng.integers(1, 1_000_000, size=3999)
    choice = choose_blocks(latency, sizes, max_blocks=10, slack=0.02)
    assert choice.bound < 0.12
    assert len(choice.cuts) == 9


@pytest.mark.parametrize(
    ("latency", "sizes", "max_blocks"),
    [
        (np.ones((3, 1)), np.ones(3, dtype=np.int64), 2),
        (np.ones(3), np.ones(2, dtype=np.int64), 2),
        (-np.ones((3, 1)), np.ones(2, dtype=np.int64), 2),
        (np.full((3, 1), np.nan), np.ones(2, dtype=np.int64), 2),
        (np.ones((3, 1)), np.ones(2, dtype=np.int64), 0),
    ],
)
def test_nonsense_is_refused(latency: NDArray[np.float64], sizes: NDArray[np.int64], max_blocks: int) -> None:
    with pytest.raises(ModelError):
        choose_blocks(latency, sizes, max_blocks=max_blocks)
