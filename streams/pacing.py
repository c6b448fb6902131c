"""Which frames of a stream are used, and when those of a file are due. Pure.

The gate goes by media time, not by counting: of a 25 fps stream at a target of 10 it takes the frame nearest to each
tenth of a second, whatever the jitter; of a stream slower than its target it takes all.
"""

from __future__ import annotations

NS = 1_000_000_000
TOLERANCE = 0.5
"""A frame this share of an interval before its turn is taken: stamps are rounded, and cameras jitter."""


class FpsGate:
    """Takes at most `target_fps` frames a second of media time. The grid follows the stream when it pauses."""

    def __init__(self, target_fps: float) -> None:
        self._interval_ns = NS / target_fps
        self._next_ns: float | None = None

    def takes(self, media_time_ns: int, frame_interval_ns: int) -> bool:
        """Whether the frame at `media_time_ns` is used; `frame_interval_ns` is the stream's own typical interval."""
        if self._next_ns is None:
            self._next_ns = media_time_ns + self._interval_ns
            return True
        early_ns = TOLERANCE * min(frame_interval_ns, self._interval_ns)
        if media_time_ns < self._next_ns - early_ns:
            return False
        self._next_ns += self._interval_ns
        if self._next_ns <= media_time_ns:  # a pause or a jump: count anew from here
            self._next_ns = media_time_ns + self._interval_ns
        return True


class Pacer:
    """Due times of a file that is played at its own speed: wall time = start + media time."""

    def __init__(self) -> None:
        self._origin_ns: int | None = None

    def due_ns(self, media_time_ns: int, now_ns: int) -> int:
        """When (monotonic ns) the frame at `media_time_ns` is due. The first frame asked about is due now."""
        if self._origin_ns is None:
            self._origin_ns = now_ns - media_time_ns
        return self._origin_ns + media_time_ns
