"""A load as cameras: so many streams of the nominal rate, and one of what is left. Pure."""

from __future__ import annotations

import math

LEAST_SHARE = 0.05
"""A rest below this share of the nominal rate is spread over the other streams instead of being one of its own."""


def stream_rates(load_fps: float, fps: float) -> tuple[float, ...]:
    """Frames per second of each stream; they sum to `load_fps`. Raises ValueError where a rate is not above 0.

    >>> stream_rates(25, 10)
    (10.0, 10.0, 5.0)
    """
    if not (math.isfinite(load_fps) and load_fps > 0 and math.isfinite(fps) and fps > 0):
        raise ValueError(f"a load of {load_fps:g} fps in streams of {fps:g} fps can't be offered; both must be above 0")
    whole = math.floor(load_fps / fps + 1e-9)
    rest = load_fps - whole * fps
    if whole and rest < LEAST_SHARE * fps:
        return (load_fps / whole,) * whole if rest > 1e-6 * fps else (float(fps),) * whole
    return (float(fps),) * whole + (rest,)
