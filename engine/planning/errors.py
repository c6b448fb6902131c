"""Errors of planning: what a caller can do about a plan that can't be made or placed."""

from __future__ import annotations

from collections.abc import Mapping

from framepool import FramepoolError
from framepool.engine.planning.plan import Demand


class PlanningError(FramepoolError):
    """The planner was asked something that makes no sense: an unknown model, a rate of 0, a share it can't place."""


class PlanInfeasibleError(PlanningError):
    """No template meets the SLO of at least one demand.

    `fastest_slo_ms` maps each demand that can't be met to the smallest SLO that one idle pipeline could meet, margin
    included (None: its model was not profiled on any device at hand).
    """

    def __init__(self, message: str, *, fastest_slo_ms: Mapping[Demand, float | None], field: str = "slo_ms") -> None:
        super().__init__(message, field=field)
        self.fastest_slo_ms = dict(fastest_slo_ms)


class PlacementError(PlanningError):
    """A plan asks for more virtual devices than the inventory has; a plan of `solve` never does."""
