"""Which frames of a stream are used, and when those of a file are due. Pure.

The gate goes by media time, not by counting: of a 25 fps stream at a target of 10 it takes the frame nearest to each
tenth of a second, whatever the jitter; of a stream slower than its target it takes all.

A stream may be given a *phase*: its frames should come at that time modulo the period of its target rate, so that
streams do not come together. A file is begun accordingly; of a camera that sends more than is used, the frames are
taken that come nearest to it.
"""

from __future__ import annotations

NS = 1_000_000_000
LEAST_CHOICE = 1.5
"""A stream must send so many times its target rate to have a choice of frames."""
TOLERANCE = 0.5
"""A frame this share of an interval before its turn is taken: stamps are rounded, and cameras jitter."""


class FpsGate:
    """Takes at most `target_fps` frames a second of media time. The grid follows the stream when it pauses."""

    def __init__(self, target_fps: float, phase_ns: int = -1) -> None:
        self._interval_ns = NS / target_fps
        self._phase_ns = phase_ns
        self._next_ns: float | None = None

    def takes(self, media_time_ns: int, frame_interval_ns: int, arrived_ns: int = 0) -> bool:
        """Whether the frame at `media_time_ns`, which came at `arrived_ns`, is used; `frame_interval_ns` is the
        stream's own typical interval."""
        if self._next_ns is None:
            if self._phase_ns < 0 or frame_interval_ns * LEAST_CHOICE > self._interval_ns:
                self._next_ns = media_time_ns + self._interval_ns
                return True
            self._next_ns = media_time_ns + (self._phase_ns - arrived_ns) % self._interval_ns
        early_ns = TOLERANCE * min(frame_interval_ns, self._interval_ns)
        if media_time_ns < self._next_ns - early_ns:
            return False
        self._next_ns += self._interval_ns
        if self._next_ns <= media_time_ns:  # a pause or a jump: count anew from here
            self._next_ns = media_time_ns + self._interval_ns
        return True


class Pacer:
    """Due times of a file that is played at its own speed: wall time = start + media time. With a phase, the first
    frame waits (less than a period) until it is due in phase."""

    def __init__(self, target_fps: float = 1.0, phase_ns: int = -1) -> None:
        self._period_ns = round(NS / target_fps)
        self._phase_ns = phase_ns
        self._origin_ns: int | None = None

    def due_ns(self, media_time_ns: int, now_ns: int) -> int:
        """When (monotonic ns) the frame at `media_time_ns` is due. The first frame asked about is due now, or as soon
        as it is in phase."""
        if self._origin_ns is None:
            wait_ns = 0 if self._phase_ns < 0 else (self._phase_ns - now_ns) % self._period_ns
            self._origin_ns = now_ns + wait_ns - media_time_ns
        return self._origin_ns + media_time_ns
