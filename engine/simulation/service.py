"""How long a batch really takes, as against what the plan says: models of service time. Seeded, no clock."""

from __future__ import annotations

import math
import random
from typing import Protocol


class ServiceModel(Protocol):
    """Turns a planned latency into the one that the simulated worker takes."""

    def duration_ns(self, planned_ns: int, rng: random.Random) -> int: ...


class Exact:
    """As planned."""

    def duration_ns(self, planned_ns: int, rng: random.Random) -> int:
        return planned_ns


class LognormalJitter:
    """Planned latency times a lognormal factor of mean `mean` and coefficient of variation `cv`."""

    def __init__(self, cv: float, mean: float = 1.0) -> None:
        self._sigma = math.sqrt(math.log1p(cv * cv))
        self._mu = math.log(mean) - self._sigma * self._sigma / 2

    def duration_ns(self, planned_ns: int, rng: random.Random) -> int:
        return max(1, round(planned_ns * rng.lognormvariate(self._mu, self._sigma)))
