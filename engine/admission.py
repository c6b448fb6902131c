"""What is asked of the planner on behalf of the registered streams, and whether one more fits. No I/O.

Streams of one model and SLO are one demand. An `offline` stream asks for nothing: it takes what the live ones leave,
but its model must have a place in the plan, so it stands for a small rate at a long SLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from framepool.engine.config import PlannerSection
from framepool.engine.control import StreamConfig
from framepool.engine.errors import CapacityError
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.offers import best_offer, fits
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.program import Sharing
from framepool.engine.planning.solving import fastest_slo_ms
from framepool.engine.scheduling.events import ServiceClass
from framepool.models.profile import ModelProfile

OFFLINE_RATE_FPS = 0.1
OFFLINE_SLO_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What one stream asks for."""

    model: str
    slo_ms: float
    rate_fps: float

    @classmethod
    def of(cls, config: StreamConfig) -> Wish:
        if config.service_class is ServiceClass.OFFLINE:
            return cls(config.model, OFFLINE_SLO_MS, OFFLINE_RATE_FPS)
        return cls(config.model, config.slo_ms, config.target_fps)


def demands_of(wishes: Iterable[Wish], headroom: float = 1.0) -> tuple[Demand, ...]:
    """One demand per (model, SLO), ordered, of `headroom` times the streams' rates."""
    rates: dict[tuple[str, float], float] = {}
    for wish in wishes:
        key = (wish.model, wish.slo_ms)
        rates[key] = rates.get(key, 0.0) + wish.rate_fps * headroom
    return tuple(Demand(model, slo_ms, rate) for (model, slo_ms), rate in sorted(rates.items()))


def planner_options(settings: PlannerSection) -> PlannerOptions:
    """The live engine's planner options: a device may serve several pools, so that three models fit on two devices."""
    return PlannerOptions(
        slo_margin=settings.slo_margin,
        min_stages=settings.min_stages,
        max_stages=settings.max_stages,
        max_batch=settings.max_batch,
        distinct_classes=settings.distinct_classes,
        restrict_sequences=settings.restrict_sequences,
        sharing=Sharing.DEVICE,
        time_limit_s=settings.time_limit_s,
    )


def admit(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    existing: Sequence[Wish],
    wanted: Wish,
    options: PlannerOptions,
    headroom: float,
) -> None:
    """Raises CapacityError, with what would fit, where `wanted` can't be served beside `existing`.

    It is admitted where `headroom` times the load of all fits.
    """
    profile = profiles[wanted.model]
    fastest_ms = fastest_slo_ms(profile, inventory, options)
    demands = demands_of([*existing, wanted], headroom)
    reachable = fastest_ms is not None and wanted.slo_ms >= fastest_ms
    if reachable and fits(profiles, inventory, demands, options):
        return
    offer = best_offer(
        profiles,
        inventory,
        demands_of(existing, headroom),
        Demand(wanted.model, wanted.slo_ms, wanted.rate_fps * headroom),
        options,
    )
    if offer.best_fps is not None:
        offer = replace(offer, best_fps=math.floor(offer.best_fps / headroom * 100) / 100 or None)
    if not reachable:
        least = "no device can run it" if fastest_ms is None else f"the fastest here takes {fastest_ms:.0f} ms"
        raise CapacityError(
            f"slo_ms: {wanted.slo_ms:g} ms is below what model {wanted.model!r} needs on these devices: {least}"
            f"{_hint(offer.best_slo_ms, offer.best_fps, wanted)}",
            field="slo_ms",
            best_slo_ms=offer.best_slo_ms,
            best_fps=offer.best_fps,
        )
    raise CapacityError(
        f"target_fps: {wanted.rate_fps:g} frames per second of model {wanted.model!r} within {wanted.slo_ms:g} ms do "
        f"not fit beside the streams that run{_hint(offer.best_slo_ms, offer.best_fps, wanted)}",
        field="target_fps",
        best_slo_ms=offer.best_slo_ms,
        best_fps=offer.best_fps,
    )


def _hint(best_slo_ms: float | None, best_fps: float | None, wanted: Wish) -> str:
    offers = []
    if best_fps is not None:
        offers.append(f"{best_fps:g} fps at {wanted.slo_ms:g} ms")
    if best_slo_ms is not None:
        offers.append(f"{wanted.rate_fps:g} fps at {best_slo_ms:g} ms")
    return f"; what would fit: {' or '.join(offers)}" if offers else "; nothing would fit: remove a stream first"
