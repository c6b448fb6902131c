"""Exact choice of blocks: where, among many candidate cuts, a model is parted into few balanced blocks.

Theory of operation. Between neighbouring candidates lie segments, each with a latency per device class. Latencies are
normalised by class (a class's segments sum to 1), so the *load* of a block is its largest share over all classes, and
the *bound* of a choice is its largest load. Two dynamic programs, both exact:

1. The tightest bound that `max_blocks` contiguous blocks can reach. The load of ``[i, j)`` falls with i and the best
   bound up to i rises with it, so for each j the optimum lies where they cross: a binary search for all j at once.
2. Among all choices within that bound (relaxed by `slack`), the least total bytes at the cuts. The allowed starts i of
   a block ending at j are a window that only moves right, so a queue of ascending minima gives each step in O(1).

Cuts are offers: bytes are paid only at those a plan uses. Where one unsplittable block sets the bound, the second
program leaves cuts unused that would still part other blocks; `refine` spends them, largest block first.

Ties go to fewer blocks, then to earlier cuts, so equal input gives equal output. Cost: O(max_blocks * n log n) time,
O(max_blocks * n) memory, n segments. Where blocks come from and what becomes of them is no matter here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from framepool.models.errors import ModelError

MAX_BLOCKS = 10
"""Blocks of a model by default: enough freedom for three stages on unlike devices, few enough to profile each."""

_ROUNDING = 1e-12
"""Loads are differences of running sums near 1; this is far above their rounding and far below any measured share."""


_LEAST_SHARE = 0.25
"""Least part, in even shares (1 / max_blocks), that `refine` splits off."""


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """The chosen cuts. `cuts` are indices of segments that begin a new block (ascending, none is 0).

    `bound` is the largest load of a block (1.0: no cut), `bytes_per_sample` the sum over the chosen cuts, `loads` each
    block's load.
    """

    cuts: tuple[int, ...]
    bound: float
    bytes_per_sample: int
    loads: tuple[float, ...]


def choose_blocks(
    latency: NDArray[np.float64], cut_bytes: NDArray[np.int64], *, max_blocks: int = MAX_BLOCKS, slack: float = 0.0
) -> BlockChoice:
    """Parts segments into at most `max_blocks` contiguous blocks: tightest bound first, then least bytes.

    `latency` is float64 [n, classes], not negative, in any unit; `cut_bytes` int64 [n - 1], bytes a sample at the cut
    before segment i + 1. `slack` relaxes the tightest bound by that fraction (latencies are measured, so differences
    below their noise are not worth bytes). Raises ModelError for shapes or values that make no sense.
    """
    running = _running_loads(latency, cut_bytes, max_blocks, slack)
    limit = min(1.0, _tightest_bound(running, max_blocks) * (1.0 + slack)) + _ROUNDING
    cuts = _least_bytes(running, cut_bytes, max_blocks, limit)
    return _made_of(cuts, running, cut_bytes)


def refine(
    choice: BlockChoice, latency: NDArray[np.float64], cut_bytes: NDArray[np.int64], *, max_blocks: int = MAX_BLOCKS
) -> BlockChoice:
    """Splits the largest blocks of `choice` further, as evenly as they can be, until there are `max_blocks`.

    A part smaller than `_LEAST_SHARE` of an even share is not worth profiling, so such splits are not made.
    """
    running = _running_loads(latency, cut_bytes, max_blocks, 0.0)
    edges = [0, *choice.cuts, len(running) - 1]
    whole: set[tuple[int, int]] = set()  # blocks that can't be split
    while len(edges) - 1 < max_blocks:
        blocks = [block for block in pairwise(edges) if block not in whole]
        if not blocks:
            break
        start, end = max(blocks, key=lambda block: float((running[block[1]] - running[block[0]]).max()))
        middle = np.arange(start + 1, end)
        left = (running[middle] - running[start]).max(axis=1)
        right = (running[end] - running[middle]).max(axis=1)
        worth = np.minimum(left, right) >= _LEAST_SHARE / max_blocks
        if not worth.any():
            whole.add((start, end))
            continue
        order = np.lexsort((cut_bytes[middle - 1], np.round(np.maximum(left, right), 3), ~worth))
        edges = sorted([*edges, int(middle[order[0]])])
    return _made_of(tuple(edges[1:-1]), running, cut_bytes)


def _made_of(cuts: tuple[int, ...], running: NDArray[np.float64], cut_bytes: NDArray[np.int64]) -> BlockChoice:
    edges = (0, *cuts, len(running) - 1)
    loads = tuple(float((running[j] - running[i]).max()) for i, j in pairwise(edges))
    return BlockChoice(cuts, max(loads), sum(int(cut_bytes[cut - 1]) for cut in cuts), loads)


def _running_loads(
    latency: NDArray[np.float64], cut_bytes: NDArray[np.int64], max_blocks: int, slack: float
) -> NDArray[np.float64]:
    """Running sums of the normalised latencies, float64 [n + 1, classes]."""
    if latency.ndim != 2 or 0 in latency.shape or cut_bytes.shape != (latency.shape[0] - 1,):
        raise ModelError(
            f"blocks need latency [segments, classes] and one cut fewer than segments; got latency {latency.shape} and "
            f"cuts {cut_bytes.shape}"
        )
    if not np.isfinite(latency).all() or (latency < 0).any() or (cut_bytes < 0).any():
        raise ModelError("latencies and cut bytes of segments must be finite and not negative")
    if max_blocks < 1 or slack < 0:
        raise ModelError(f"max_blocks {max_blocks} must be at least 1 and slack {slack} at least 0")
    totals = latency.sum(axis=0)
    shares = np.where(totals > 0, latency / np.where(totals > 0, totals, 1.0), 1.0 / latency.shape[0])
    return np.vstack([np.zeros((1, latency.shape[1])), np.cumsum(shares, axis=0)])


def _tightest_bound(running: NDArray[np.float64], max_blocks: int) -> float:
    """The least possible largest load of at most `max_blocks` blocks."""
    n_segments = len(running) - 1
    ends = np.arange(n_segments + 1)
    best = running.max(axis=1)  # one block up to each end
    for _ in range(1, min(max_blocks, n_segments)):
        low, high = np.zeros_like(ends), ends.copy()  # crossing: the first i at which best[i] >= load of [i, j)
        while (low < high).any():
            middle = (low + high) // 2
            crossed = best[middle] >= (running - running[middle]).max(axis=1)
            high = np.where(crossed, middle, high)
            low = np.where(crossed | (low == high), low, middle + 1)
        before = np.maximum(low - 1, 0)
        at_crossing = np.maximum(best[low], (running - running[low]).max(axis=1))
        before_crossing = np.maximum(best[before], (running - running[before]).max(axis=1))
        best = np.minimum(best, np.minimum(at_crossing, before_crossing))
    return float(best[-1])


def _least_bytes(
    running: NDArray[np.float64], cut_bytes: NDArray[np.int64], max_blocks: int, limit: float
) -> tuple[int, ...]:
    """Cuts of least total bytes such that no block's load exceeds `limit`."""
    n_segments = len(running) - 1
    first_start = _first_starts(running, limit)
    paid = [0, *cut_bytes.tolist()]  # paid[i]: bytes of the cut before segment i
    cost: list[list[float]] = [[0.0] + [np.inf] * n_segments]  # cost[k][j]: k blocks over the first j segments
    origin: list[list[int]] = [[0] * (n_segments + 1)]
    for blocks in range(1, min(max_blocks, n_segments) + 1):
        previous = cost[-1]
        here, start = [np.inf] * (n_segments + 1), [0] * (n_segments + 1)
        window: deque[tuple[float, int]] = deque()
        for j in range(1, n_segments + 1):
            entered = previous[j - 1] + (paid[j - 1] if blocks > 1 else 0)
            while window and window[-1][0] > entered:
                window.pop()
            window.append((entered, j - 1))
            while window[0][1] < first_start[j]:
                window.popleft()
            here[j], start[j] = window[0]
        cost.append(here)
        origin.append(start)
    blocks = min(range(1, len(cost)), key=lambda count: (cost[count][n_segments], count))
    cuts: list[int] = []
    end = n_segments
    for count in range(blocks, 1, -1):
        end = origin[count][end]
        cuts.append(end)
    return tuple(reversed(cuts))


def _first_starts(running: NDArray[np.float64], limit: float) -> list[int]:
    """For each end j, the first start i such that the load of [i, j) is within `limit`."""
    starts = np.zeros(len(running), dtype=np.int64)
    for column in running.T:
        found = np.searchsorted(column, column - limit, side="left")
        starts = np.maximum(starts, found)
    return [int(start) for start in starts]
