"""Repairs a stream's time stamps: one clock per stream that starts at 0 and never goes back. Pure.

Stamps of the field are missing, repeat, jump by hours, run backwards, start anywhere, or come at a rate that the
container's header lies about. Media time here is nanoseconds from the first frame; a jump (backwards at all, forwards
by more than `MOST_GAP_NS`) is taken for a new beginning and joined on, one frame interval later.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NS = 1_000_000_000
MOST_GAP_NS = 10 * NS
"""A longer step forward between neighbouring frames is taken for a jump of the stamps, not for a pause."""
LEAST_INTERVAL_NS = NS // 1000
DEFAULT_INTERVAL_NS = NS // 25
_SMOOTHING = 0.1


@dataclass(frozen=True, slots=True)
class MediaStamp:
    """A frame's repaired time. `synthetic`: the stream gave none; `rebased`: its stamps jumped here."""

    media_time_ns: int
    synthetic: bool
    rebased: bool


class Timeline:
    """Stamps of one stream, across reconnects and loops. `nominal_fps` is a hint for frames without stamps."""

    def __init__(self, nominal_fps: Fraction | float | None = None, start_ns: int = 0) -> None:
        self._last_ns: int | None = None
        self._start_ns = start_ns
        self._offset_ns = 0
        self._fresh = True
        self._aligned = False
        self._interval_ns = _interval_of(nominal_fps)
        self._measured = False

    @property
    def interval_ns(self) -> int:
        """Typical distance of two frames: measured where stamps came, else from the hint."""
        return self._interval_ns

    def restart(self, nominal_fps: Fraction | float | None = None) -> None:
        """The source begins anew (reconnect, loop): its stamps go on one interval after the last."""
        self._fresh = True
        if not self._measured:
            self._interval_ns = _interval_of(nominal_fps)

    def align(self, first_stamp_ns: int) -> None:
        """Fixes where media time 0 lies in the source's own clock, for a file that is entered in its middle."""
        self._offset_ns = -first_stamp_ns
        self._aligned = True

    def predict(self, raw_ns: int, first_stamp_ns: int | None) -> int | None:
        """The media time a stamp of the source will have, without taking it; None where that can't be told."""
        if self._last_ns is None:
            offset_ns = self._offset_ns if self._aligned else self._start_ns - (first_stamp_ns or 0)
            return raw_ns + offset_ns
        if self._fresh:
            return None
        at_ns = raw_ns + self._offset_ns
        return at_ns if -MOST_GAP_NS < at_ns - self._last_ns <= MOST_GAP_NS else None

    def stamp(self, pts: int | None, time_base: Fraction | None) -> MediaStamp:
        """The media time of a frame with presentation stamp `pts` in units of `time_base` seconds."""
        if pts is None or not time_base:
            return self._synthetic()
        raw_ns = int(pts * time_base * NS)
        if self._last_ns is None:
            if not self._aligned:
                self._offset_ns = self._start_ns - raw_ns
            return self._take(raw_ns + self._offset_ns, rebased=False)
        at_ns = raw_ns + self._offset_ns
        step_ns = at_ns - self._last_ns
        if self._fresh or step_ns <= 0 or step_ns > MOST_GAP_NS:
            rebased = not self._fresh
            at_ns = self._last_ns + self._interval_ns
            self._offset_ns = at_ns - raw_ns
            return self._take(at_ns, rebased=rebased)
        self._learn(step_ns)
        return self._take(at_ns, rebased=False)

    def _take(self, at_ns: int, *, rebased: bool) -> MediaStamp:
        self._last_ns = at_ns
        self._fresh = False
        return MediaStamp(at_ns, synthetic=False, rebased=rebased)

    def _synthetic(self) -> MediaStamp:
        at_ns = self._start_ns if self._last_ns is None else self._last_ns + self._interval_ns
        self._last_ns = at_ns
        self._fresh = True  # should real stamps come, they are joined on here
        return MediaStamp(at_ns, synthetic=True, rebased=False)

    def _learn(self, step_ns: int) -> None:
        if not self._measured:
            self._interval_ns, self._measured = step_ns, True
        else:
            self._interval_ns += int(_SMOOTHING * (step_ns - self._interval_ns))
        self._interval_ns = max(LEAST_INTERVAL_NS, self._interval_ns)


def _interval_of(fps: Fraction | float | None) -> int:
    """The interval a rate stands for, as far as it can be believed (0.05 to 240 fps)."""
    if fps is None or not 0.05 <= fps <= 240:
        return DEFAULT_INTERVAL_NS
    return int(NS / fps)
