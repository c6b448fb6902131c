"""Errors as one line and an exit code."""

from __future__ import annotations

from dataclasses import dataclass

from framepool import FramepoolError
from framepool.engine.api.errors import UnreachableError
from framepool.engine.errors import CapacityError, DeadlineError, EngineStoppedError

REFUSED = 1
UNREACHED = 3


@dataclass(frozen=True, slots=True)
class Told:
    """What is said on stderr, and the exit code."""

    message: str
    code: int


def explain(error: FramepoolError) -> Told:
    message = " ".join(str(error).split())
    if isinstance(error, UnreachableError | DeadlineError | EngineStoppedError):
        return Told(message, UNREACHED)
    if isinstance(error, CapacityError):
        fits = [
            f"--slo {error.best_slo_ms:g}ms" if error.best_slo_ms is not None else "",
            f"--fps {error.best_fps:g}" if error.best_fps is not None else "",
        ]
        offers = " or ".join(fit for fit in fits if fit)
        message = f"{message} (would fit: {offers})" if offers else message
    return Told(message, REFUSED)
