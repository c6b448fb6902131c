"""The largest load that holds, from runs that are noisy. Pure: the runs are made by whoever is asked.

Theory of operation. The load is bisected on a grid (`framepool.engine.simulation.loads.largest`). At each load runs are
pooled until the share of frames in time is surely above or surely below what is required (Wilson's interval), or
`most_runs` have been made; then the pooled share decides. So loads far from the edge cost one run, and those near it
several. Frames of a run are not independent, so the interval is an aid to spend runs well, not a proof; the load that
is found is run again until `most_runs` are there, and given up for the next smaller one where their pooled share fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from framepool.engine.simulation.loads import largest

Z = 1.64
"""Of Wilson's interval: one-sided 95 %."""


class Counted(Protocol):
    """A run's outcome: frames that ended, and those of them in time."""

    @property
    def ended(self) -> int: ...

    @property
    def in_time(self) -> int: ...

    @property
    def valid(self) -> bool:
        """False where the load was not really offered (refused, or not decoded): it does not hold."""
        ...


R = TypeVar("R", bound=Counted)


def wilson(hits: int, trials: int, z: float = Z) -> tuple[float, float]:
    """Bounds of the share behind `hits` of `trials`; (0, 1) for none."""
    if not trials:
        return 0.0, 1.0
    share = hits / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    centre = share + z * z / (2 * trials)
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(slots=True)
class Search(Generic[R]):
    """Runs by grid step. `run(step)` makes one run of the load `step` grids; `attainment` is the share required."""

    run: Callable[[int], R]
    attainment: float
    most_runs: int = 3
    runs: dict[int, list[R]] = field(default_factory=dict)

    def holds(self, step: int) -> bool:
        """Whether the load holds, by as many runs as it takes."""
        made = self.runs.setdefault(step, [])
        while True:
            verdict = self._verdict(made)
            if verdict is not None:
                return verdict
            made.append(self.run(step))

    def _verdict(self, made: list[R]) -> bool | None:
        if any(not run.valid for run in made):
            return False
        in_time, ended = sum(run.in_time for run in made), sum(run.ended for run in made)
        low, high = wilson(in_time, ended)
        if made and low >= self.attainment:
            return True
        if made and high < self.attainment:
            return False
        if len(made) < self.most_runs:
            return None
        return ended > 0 and in_time >= self.attainment * ended

    def largest(self, guess: int, most: int) -> int:
        """The largest step of 1..most that holds, confirmed by `most_runs` runs; 0 where none does."""
        found = largest(self.holds, most, guess)
        while found > 0:
            made = self.runs.setdefault(found, [])
            while len(made) < self.most_runs and all(run.valid for run in made):
                made.append(self.run(found))
            in_time, ended = sum(run.in_time for run in made), sum(run.ended for run in made)
            if all(run.valid for run in made) and in_time >= self.attainment * ended > 0:
                break
            found -= 1
        return found
