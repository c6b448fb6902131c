"""What would fit: the best SLO and the best rate that a new stream could be offered beside those that run. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framepool.engine.planning.errors import PlanInfeasibleError, PlanningError
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.solving import fastest_slo_ms, most_fps, solve
from framepool.models.profile import ModelProfile

_SLO_STEP_MS = 1.0
_LONGEST_SLO_MS = 60_000.0
"""No SLO above this is offered: a stream that waits a minute for its detections is no live stream."""

_FPS_STEP = 0.01
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """`best_slo_ms`: the smallest SLO that fits at the rate asked for; `best_fps`: the greatest rate at the SLO.

    None: no SLO, or no rate, would do.
    """

    best_slo_ms: float | None
    best_fps: float | None


def fits(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    demands: Sequence[Demand],
    options: PlannerOptions,
) -> bool:
    """Whether some plan serves all demands in full (z >= 1)."""
    quick = replace(options, enough=1.0, tie_break=False, use_spare=False)
    try:
        return solve(profiles, inventory, demands, quick).objective >= 1.0 - 1e-9
    except PlanInfeasibleError:
        return False


def best_offer(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    existing_demands: Sequence[Demand],
    wanted: Demand,
    options: PlannerOptions,
) -> Offer:
    """What could be promised to `wanted` while every existing demand stays served in full. Each is checked by `solve`.

    Meant for a demand that does not fit as it is: neither a rate above nor an SLO below what was wanted is looked for.
    """
    return Offer(
        best_slo_ms=_best_slo_ms(profiles, inventory, existing_demands, wanted, options),
        best_fps=_best_fps(profiles, inventory, existing_demands, wanted, options),
    )


def _best_fps(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    existing: Sequence[Demand],
    wanted: Demand,
    options: PlannerOptions,
) -> float | None:
    try:
        rate_fps = most_fps(profiles, inventory, existing, wanted, options)
    except PlanningError:
        return None
    # Batches build at a rate that depends on the demands themselves, so the offer is checked as `solve` will see it.
    for _ in range(_TRIES):
        rate_fps = math.floor(min(rate_fps, wanted.rate_fps) / _FPS_STEP * (1 + 1e-9)) * _FPS_STEP
        if rate_fps <= 0:
            return None
        if fits(profiles, inventory, [*existing, replace(wanted, rate_fps=rate_fps)], options):
            return round(rate_fps, 2)
        rate_fps *= 0.9
    return None


def _best_slo_ms(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    existing: Sequence[Demand],
    wanted: Demand,
    options: PlannerOptions,
) -> float | None:
    """Bisection in steps of 1 ms: what fits at an SLO fits at every longer one."""
    fastest = fastest_slo_ms(profiles[wanted.model], inventory, options)
    if fastest is None:
        return None

    def fits_at(slo_ms: float) -> bool:
        return fits(profiles, inventory, [*existing, replace(wanted, slo_ms=slo_ms)], options)

    low = max(math.ceil(max(fastest, wanted.slo_ms) / _SLO_STEP_MS) - 1, 0)  # does not fit
    high = max(2 * low, low + 1)
    while not fits_at(high * _SLO_STEP_MS):
        low, high = high, 2 * high
        if high * _SLO_STEP_MS > _LONGEST_SLO_MS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if fits_at(middle * _SLO_STEP_MS):
            high = middle
        else:
            low = middle
    return high * _SLO_STEP_MS
