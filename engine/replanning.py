"""From registered streams to a serving plan: profiles, admission, solving, placing, deploying.

One caller at a time: the engine's control lock is held around every call. A plan that can't serve all demands in full
(devices went, streams were resumed) still serves what it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from framepool.engine.admission import Wish, admit, demands_of, planner_options
from framepool.engine.config import PlannerSection
from framepool.engine.control import Progress
from framepool.engine.deployment import Deployment
from framepool.engine.hardware import Hardware
from framepool.engine.planning.errors import PlanInfeasibleError
from framepool.engine.planning.keeping import kept_plan
from framepool.engine.planning.placement import place
from framepool.engine.planning.plan import PlacedPlan, Plan
from framepool.engine.planning.solving import fastest_slo_ms, solve
from framepool.engine.profiling import Profiles
from framepool.models.profile import ModelProfile
from framepool.models.registry import ModelRegistry

log = structlog.get_logger("framepool.planning")

EMPTY_PLAN = Plan((), (), 1.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Replanner:
    """See the module docstring."""

    registry: ModelRegistry
    profiles: Profiles
    hardware: Hardware
    deployment: Deployment
    settings: PlannerSection

    def ensure_profile(self, model: str, force: bool = False) -> Iterator[Progress]:
        """Measures the model where that was never done. Raises DeviceError, ModelNotFoundError."""
        entry = self.registry.get(model)
        yield from self.profiles.measure(entry, self.registry.partition(model), force)

    def profile(self, model: str) -> ModelProfile:
        """The model's profile, measured now if need be."""
        entry, partition = self.registry.get(model), self.registry.partition(model)
        kept = self.profiles.get(entry, partition)
        if kept is None:
            for _ in self.profiles.measure(entry, partition, force=False):
                pass
            kept = self.profiles.get(entry, partition)
        assert kept is not None
        return kept

    def admit(self, existing: Sequence[Wish], wanted: Wish) -> None:
        """Raises CapacityError, saying what would fit, where one more stream can't be served."""
        if self.settings.admit_all:
            return
        admit(
            self._profiles([*existing, wanted]),
            self.hardware.inventory,
            existing,
            wanted,
            planner_options(self.settings),
            self.settings.headroom,
        )

    def apply(self, wishes: Sequence[Wish], *, anew: bool = False) -> PlacedPlan:
        """Serves these streams: by the plan that runs, where it does with room to spare, else by a new one (always,
        with `anew`). Streams whose SLO no device can meet are planned without.

        Raises DeviceError when a worker does not start; the plan before then still serves.
        """
        before = self.deployment.active
        if not anew:
            kept = kept_plan(before.plan, demands_of(wishes), self.settings.slo_margin, self.settings.headroom)
            if kept is not None:
                return self.deployment.deploy(replace(before, plan=kept))
        deployed = self.deployment.deploy(place(self._solve(wishes), self.hardware.inventory, before))
        log.info(
            "plan is active",
            pipelines=[f"{p.id}: {p.rate_fps:.1f} of {p.capacity_fps:.1f} fps" for p in deployed.plan.pipelines],
            load_served=round(deployed.plan.objective, 3),
            gap=deployed.plan.gap,
        )
        return deployed

    def _solve(self, wishes: Sequence[Wish]) -> Plan:
        if not wishes:
            return EMPTY_PLAN
        profiles = self._profiles(wishes)
        options = planner_options(self.settings)
        inventory = self.hardware.inventory
        fastest = {model: fastest_slo_ms(profile, inventory, options) for model, profile in profiles.items()}
        reachable = [w for w in wishes if (least := fastest[w.model]) is not None and w.slo_ms >= least]
        if len(reachable) < len(wishes):
            log.warning("streams have an SLO that no device here can meet", streams=len(wishes) - len(reachable))
        if not reachable:
            return EMPTY_PLAN
        try:
            return solve(profiles, inventory, demands_of(reachable), options)
        except PlanInfeasibleError as exc:
            log.error("no plan serves the streams", cause=str(exc))
            return EMPTY_PLAN

    def _profiles(self, wishes: Sequence[Wish]) -> dict[str, ModelProfile]:
        return {model: self.profile(model) for model in sorted({wish.model for wish in wishes})}
