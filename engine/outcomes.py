"""What came of frames: counts, and attainment and goodput defined once for live serving, simulation and benchmarks.

Pure functions over counts. A frame counts as *in time* only if its detections were published no later than its
deadline; late completions and drops of every reason count against attainment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from framepool.engine.scheduling.events import DropReason

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """Frames of a stream, a model or a whole run. ingested = completed + dropped + open; in_time <= completed."""

    ingested: int = 0
    completed: int = 0
    in_time: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)

    @property
    def dropped_total(self) -> int:
        return sum(self.dropped.values())

    @property
    def ended(self) -> int:
        return self.completed + self.dropped_total

    @property
    def open(self) -> int:
        return self.ingested - self.ended

    @property
    def attainment(self) -> float:
        return attainment(self.in_time, self.ended)


def attainment(in_time: int, ended: int) -> float:
    """Share of ended frames that were in time; 1.0 while none has ended."""
    return in_time / ended if ended else 1.0


def goodput_fps(in_time: int, elapsed_ns: int) -> float:
    """Frames per second published in time; 0.0 for no time at all."""
    return in_time * NS_PER_S / elapsed_ns if elapsed_ns > 0 else 0.0


def load_factor(offered_fps: float, planned_fps: float) -> float:
    """Offered load over the load planned for. `planned_fps` must be positive."""
    return offered_fps / planned_fps


def total(counts: Iterable[OutcomeCounts]) -> OutcomeCounts:
    """The sum over streams."""
    ingested = completed = in_time = 0
    dropped: dict[DropReason, int] = {}
    for count in counts:
        ingested += count.ingested
        completed += count.completed
        in_time += count.in_time
        for reason, number in count.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + number
    return OutcomeCounts(ingested, completed, in_time, dropped)
