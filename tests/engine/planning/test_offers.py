"""Offers: what is offered fits when it is taken, and little more would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import Offer, PlannerOptions, best_offer, solve

OPTIONS = PlannerOptions()


@pytest.fixture
def inventory(make_inventory):
    return make_inventory({"a": 1, "b": 1}, shares=(1, 2))


@pytest.fixture
def profiles(make_profile):
    times = {"a": [3000, 5000, 4000, 6000], "b": [6000, 9000, 9000, 11000]}
    return {n: make_profile(n, times, shares=(1, 2), seed=i) for i, n in enumerate("mk")}


def test_too_fast_a_stream_is_offered_the_rate_that_is_left(profiles, inventory) -> None:
    existing = [Demand("m", 250, 30)]
    wanted = Demand("k", 200, 500)
    offer = best_offer(profiles, inventory, existing, wanted, OPTIONS)
    assert offer.best_fps is not None
    assert 1 < offer.best_fps < 500
    taken = replace(wanted, rate_fps=offer.best_fps)
    assert solve(profiles, inventory, [*existing, taken], OPTIONS).objective >= 1 - 1e-9
    greedy = replace(wanted, rate_fps=offer.best_fps * 1.25)
    assert solve(profiles, inventory, [*existing, greedy], OPTIONS).objective < 1


def test_too_tight_an_slo_is_offered_the_smallest_that_fits(profiles, inventory) -> None:
    existing = [Demand("m", 250, 5)]
    wanted = Demand("k", 4, 10)
    offer = best_offer(profiles, inventory, existing, wanted, OPTIONS)
    assert offer.best_fps is None
    assert offer.best_slo_ms is not None
    for slo_ms, fits in ((offer.best_slo_ms, True), (offer.best_slo_ms + 25, True)):
        plan = solve(profiles, inventory, [*existing, replace(wanted, slo_ms=slo_ms)], OPTIONS)
        assert (plan.objective >= 1 - 1e-9) is fits


def test_a_stream_of_the_same_model_and_slo_counts_on_top_of_those_that_run(profiles, inventory) -> None:
    existing = [Demand("m", 250, 30)]
    offer = best_offer(profiles, inventory, existing, Demand("m", 250, 900), OPTIONS)
    assert offer.best_fps is not None
    together = [Demand("m", 250, 30 + offer.best_fps)]
    assert solve(profiles, inventory, together, OPTIONS).objective >= 1 - 1e-9


def test_nothing_is_offered_where_what_runs_does_not_fit(profiles, inventory) -> None:
    offer = best_offer(profiles, inventory, [Demand("m", 250, 5000)], Demand("k", 200, 10), OPTIONS)
    assert offer == Offer(best_slo_ms=None, best_fps=None)
