"""Where the time of a frame went, and what the last frames of a stream looked like. No I/O.

The parts of a frame's latency, all within [capture, published]:

    decode     capture -> the picture lies in its slot (decoding, conversion, resizing)
    transfer   messages between processes and the gathering of inputs
    inference  the model's stages, the head included
    publish    head done -> published
    queueing   all the rest: waiting for a batch, for a worker, for an earlier batch
    overhead   total - inference: what is the engine's own
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framepool.engine.control import LatencyBreakdown, Quantiles

WINDOW_FRAMES = 1000
"""Frames that quantiles are taken over: enough for a p99 of ten frames, a minute and a half at 10 fps."""

PARTS = ("total", "decode", "queueing", "transfer", "inference", "publish", "overhead")


class LatencyWindow:
    """Latency parts of a stream's most recent completed frames, in a ring, with when each was published."""

    __slots__ = ("_count", "_published_ns", "_rows")

    def __init__(self, capacity: int = WINDOW_FRAMES) -> None:
        self._rows: NDArray[np.int64] = np.zeros((capacity, len(PARTS)), dtype=np.int64)
        self._published_ns: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self._count = 0

    def add(
        self, total_ns: int, decode_ns: int, transfer_ns: int, inference_ns: int, publish_ns: int, now_ns: int = 0
    ) -> None:
        """Takes in one frame, published at `now_ns`; queueing and overhead follow from the rest."""
        queueing_ns = max(0, total_ns - decode_ns - transfer_ns - inference_ns - publish_ns)
        row = (total_ns, decode_ns, queueing_ns, transfer_ns, inference_ns, publish_ns, total_ns - inference_ns)
        at = self._count % len(self._rows)
        self._rows[at] = row
        self._published_ns[at] = now_ns
        self._count += 1

    def snapshot(self, since_ns: int = 0) -> NDArray[np.int64]:
        """A copy: int64 [frames, parts] (`PARTS`) in nanoseconds, of frames published from `since_ns` on."""
        count = min(self._count, len(self._rows))
        rows: NDArray[np.int64] = self._rows[:count][self._published_ns[:count] >= since_ns]
        return rows


def breakdown(rows: NDArray[np.int64]) -> LatencyBreakdown:
    """Quantiles of every part of a `LatencyWindow.snapshot`."""
    if not len(rows):
        return LatencyBreakdown()
    p50, p90, p99 = np.percentile(rows, (50, 90, 99), axis=0) / 1e6
    most = rows.max(axis=0) / 1e6
    parts = {
        name: Quantiles(float(p50[i]), float(p90[i]), float(p99[i]), float(most[i]), len(rows))
        for i, name in enumerate(PARTS)
    }
    return LatencyBreakdown(**parts)


@dataclass(slots=True)
class _Second:
    number: int
    sums: list[int]


class RecentSums:
    """Sums of a few quantities over the last `window_s` full or running seconds."""

    __slots__ = ("_seconds", "_started_s", "_width", "_window_s")

    def __init__(self, width: int, now_ns: int, window_s: int = 10) -> None:
        self._width = width
        self._window_s = window_s
        self._started_s = now_ns / 1e9
        self._seconds: deque[_Second] = deque()

    def add(self, now_ns: int, index: int, amount: int) -> None:
        number = now_ns // 1_000_000_000
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number, [0] * self._width))
            while self._seconds[0].number <= number - self._window_s:
                self._seconds.popleft()
        self._seconds[-1].sums[index] += amount

    def read(self, now_ns: int) -> tuple[list[int], float]:
        """The sums, and the seconds that they cover (never 0)."""
        now_s = now_ns / 1e9
        first = now_ns // 1_000_000_000 - self._window_s + 1
        sums = [0] * self._width
        for second in self._seconds:
            if second.number >= first:
                sums = [a + b for a, b in zip(sums, second.sums, strict=True)]
        return sums, max(0.001, now_s - max(float(first), self._started_s))
