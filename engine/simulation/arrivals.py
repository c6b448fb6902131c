"""Arrivals: frames in the order in which they reach the scheduler, as iterators that never end up in one big list.

An arrival is (time it reaches the scheduler, frame). Randomness is seeded; frame ids come from one counter that all
iterators of a run share, so ids are unique and the same seed gives the same frames.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from framepool.engine.outcomes import NS_PER_S
from framepool.engine.scheduling.events import Frame

Arrival = tuple[int, Frame]


@dataclass(frozen=True, slots=True)
class Source:
    """What all frames of a stream share. `decode_ns`: from capture to the scheduler."""

    stream_id: int
    model: str
    slo_ns: int
    decode_ns: int = 0

    def frame(self, frame_id: int, capture_ns: int) -> Arrival:
        frame = Frame(frame_id, self.stream_id, self.model, capture_ns, capture_ns + self.slo_ns)
        return capture_ns + self.decode_ns, frame


def poisson(
    source: Source, rate_fps: float, ids: Iterator[int], *, seed: int, until_ns: int, start_ns: int = 0
) -> Iterator[Arrival]:
    """Memoryless arrivals at `rate_fps` on average, captured within [start_ns, until_ns)."""
    rng = _generator(source, seed)
    return _renewal(source, lambda: rng.expovariate(1.0), rate_fps, ids, until_ns, start_ns)


def gamma(
    source: Source, rate_fps: float, ids: Iterator[int], *, cv: float, seed: int, until_ns: int, start_ns: int = 0
) -> Iterator[Arrival]:
    """Arrivals at `rate_fps` on average whose distances are Gamma distributed with coefficient of variation `cv`: 1 is
    Poisson, above it they come in bursts."""
    rng = _generator(source, seed)
    shape = 1.0 / (cv * cv)
    return _renewal(source, lambda: rng.gammavariate(shape, 1.0 / shape), rate_fps, ids, until_ns, start_ns)


def trace(source: Source, times_s: Iterable[float], ids: Iterator[int], *, speed: float = 1.0) -> Iterator[Arrival]:
    """Arrivals at the given seconds (ascending) after the start, `speed` times as fast."""
    for at_s in times_s:
        yield source.frame(next(ids), round(at_s / speed * NS_PER_S))


def _generator(source: Source, seed: int) -> random.Random:
    return random.Random(f"{seed}/{source.stream_id}/{source.model}")


def _renewal(
    source: Source,
    distance: Callable[[], float],
    rate_fps: float,
    ids: Iterator[int],
    until_ns: int,
    start_ns: int,
) -> Iterator[Arrival]:
    """Arrivals whose distances are independent; `distance` draws one of mean 1."""
    mean_ns = NS_PER_S / rate_fps
    at = start_ns + distance() * mean_ns
    while at < until_ns:
        yield source.frame(next(ids), int(at))
        at += distance() * mean_ns


def camera(
    source: Source,
    fps: float,
    ids: Iterator[int],
    *,
    until_ns: int,
    phase_ns: int = 0,
    jitter_ns: int = 0,
    seed: int = 0,
) -> Iterator[Arrival]:
    """A periodic camera: frame k is captured at phase + k/fps, and arrives up to `jitter_ns` later."""
    rng = _generator(source, seed)
    k = 0
    while (capture_ns := phase_ns + round(k * NS_PER_S / fps)) < until_ns:
        at_ns, frame = source.frame(next(ids), capture_ns)
        yield at_ns + (rng.randrange(jitter_ns + 1) if jitter_ns else 0), frame
        k += 1


def cameras(
    source: Source,
    rate_fps: float,
    ids: Iterator[int],
    *,
    fps: float,
    random_phases: bool,
    seed: int,
    until_ns: int,
) -> Iterator[Arrival]:
    """Cameras of `fps` that add up to `rate_fps` (the last may be slower), as streams from `source.stream_id` on. Their
    phases share the period evenly, or are drawn by `seed`."""
    rng = _generator(source, seed)
    count = max(1, math.ceil(rate_fps / fps - 1e-9))
    period_ns = NS_PER_S / fps
    made = []
    for number in range(count):
        mine = replace(source, stream_id=source.stream_id + number)
        phase_ns = period_ns * (rng.random() if random_phases else number / count)
        rate = min(fps, rate_fps - number * fps)
        made.append(camera(mine, rate, ids, until_ns=until_ns, phase_ns=round(phase_ns)))
    return merged(made)


def merged(arrivals: Iterable[Iterator[Arrival]]) -> Iterator[Arrival]:
    """Several iterators as one, by time; each must be ordered already (jitter below the period keeps a camera so)."""
    return heapq.merge(*arrivals, key=lambda arrival: arrival[0])
