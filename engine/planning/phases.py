"""When each camera's frames should come within its period, so that frames of unlike streams do not come together. Pure.

Two periodic streams meet again and again at the same distances: those congruent to the difference of their phases
modulo the greatest common divisor of their periods. The nearest of these is how close their frames ever come; a new
stream gets the phase that keeps the nearest frame of any other stream as far away as can be. Less queueing at the same
load, and nothing to pay for it: a file may begin when it likes, and of a camera that sends more than is analysed the
frames nearest to the phase are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

NS = 1_000_000_000
CANDIDATES = 128
"""Phases that are tried, evenly over the period."""
LEAST_COMMON_NS = 2_000_000
"""Streams whose periods have less in common meet at every distance, whatever their phases."""
_FINEST_FPS = 1000


@dataclass(frozen=True, slots=True)
class Phase:
    """Frames come at `phase_ns` modulo the period of `fps` (CLOCK_MONOTONIC)."""

    fps: float
    phase_ns: int


def period(fps: float) -> Fraction:
    """Nanoseconds between frames, as a fraction, so that 15 and 10 fps have 1/30 s in common."""
    return NS / Fraction(fps).limit_denominator(_FINEST_FPS)


def nearest_ns(a: Phase, b: Phase) -> float | None:
    """How close frames of the two streams ever come; None where that can be any distance."""
    one, other = period(a.fps), period(b.fps)
    common = Fraction(
        math.gcd(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )
    if common < LEAST_COMMON_NS:
        return None
    apart = (a.phase_ns - b.phase_ns) % common
    return float(min(apart, common - apart))


def choose_phase(fps: float, others: Sequence[Phase]) -> Phase:
    """The phase for a new stream of `fps` beside `others`."""
    step = period(fps) / CANDIDATES
    candidates = [Phase(fps, int(k * step)) for k in range(CANDIDATES)]
    return max(candidates, key=lambda candidate: _room(candidate, others))


def _room(candidate: Phase, others: Sequence[Phase]) -> tuple[float, float]:
    """The distance to the nearest other stream, and, among equals, to all of them."""
    distances = [distance for other in others if (distance := nearest_ns(candidate, other)) is not None]
    return min(distances, default=0.0), sum(distances)
