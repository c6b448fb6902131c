"""How long to wait before a source is tried again: doubling, capped, with jitter so that cameras don't come in step."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffSettings:
    """Waits in seconds. `auth_s`: least wait after a wrong password, so that a camera does not lock the account."""

    first_s: float = 0.5
    longest_s: float = 30.0
    factor: float = 2.0
    jitter: float = 0.2
    auth_s: float = 60.0


class Backoff:
    """Waits of one source. `reset` once it plays."""

    def __init__(self, settings: BackoffSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next_s(self, *, auth: bool = False) -> float:
        """Seconds until the next try, in [(1 - jitter), (1 + jitter)] times the nominal wait."""
        settings = self._settings
        nominal_s = min(settings.longest_s, settings.first_s * settings.factor ** min(self._tries, 32))
        if auth:
            nominal_s = max(nominal_s, settings.auth_s)
        self._tries += 1
        return nominal_s * (1 + settings.jitter * self._rng.uniform(-1, 1))
