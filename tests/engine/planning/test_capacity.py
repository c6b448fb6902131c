"""What bounds a cluster, and what one more device buys: planned again, not guessed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from framepool.engine.planning.capacity import capacity, with_one_more
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve

OPTIONS = PlannerOptions(sharing=Sharing.POOL, enough=math.inf, tie_break=False, use_spare=False, max_batch=1)


def test_a_binding_class_has_a_price_and_an_idle_one_has_none(make_profile: Any, make_inventory: Any) -> None:
    """The SLO rules the slow class out: only fast devices count, each worth a fifth of the plan."""
    profiles = {"m": make_profile("m", {"fast": [20_000.0], "slow": [200_000.0]})}
    report = capacity(profiles, make_inventory({"fast": 5, "slow": 9}), [Demand("m", 100.0, 10.0)], OPTIONS)
    fast, slow = report.classes
    assert report.plan.objective == pytest.approx(25.0)
    assert (fast.binding, slow.binding) == (True, False)
    assert fast.price == pytest.approx(5.0)
    assert (fast.devices, slow.devices) == (5, 0)
    assert fast.utilisation == pytest.approx(1.0)
    assert slow.utilisation == 0.0
    assert report.models[0].way == "replicated"
    assert report.models[0].rate_fps == pytest.approx(250.0)
    assert (report.models[0].other_fps, report.models[0].wins) == (0.0, None)  # a model of one block can't be cut


def test_what_cutting_wins_is_told(make_profile: Any, make_inventory: Any) -> None:
    """Whole models fit the fast class alone; cut, the slow class does the first half."""
    profiles = {"m": make_profile("m", {"fast": [10_000.0, 10_000.0], "slow": [30_000.0, 60_000.0]})}
    demands = [Demand("m", 60.0, 10.0)]
    inventory = make_inventory({"fast": 2, "slow": 6})
    report = capacity(profiles, inventory, demands, OPTIONS)
    assert report.without_cuts == pytest.approx(10.0)
    assert report.plan.objective > 1.4 * report.without_cuts
    assert report.models[0].way in ("pipelined", "both")
    assert report.models[0].other_fps == pytest.approx(100.0)  # whole, on the fast devices it has
    assert report.models[0].wins == pytest.approx(report.plan.objective * 10 / 100 - 1)
    nothing = capacity(profiles, make_inventory({"slow": 6}), [Demand("m", 120.0, 1.0)], OPTIONS, prices=False)
    assert nothing.classes[0].price is None
    assert not nothing.classes[0].binding


def test_a_price_is_what_planning_again_gains(make_profile: Any, make_inventory: Any) -> None:
    profiles = {n: make_profile(n, {"a": [3000.0, 5000.0], "b": [6000.0, 9000.0]}, seed=i) for i, n in enumerate("mk")}
    inventory = make_inventory({"a": 3, "b": 5})
    demands = [Demand("m", 60.0, 10.0), Demand("k", 80.0, 20.0)]
    report = capacity(profiles, inventory, demands, OPTIONS)
    for use in report.classes:
        more = with_one_more(inventory, use.name)
        assert more.device_class(use.name).count == use.count + 1
        assert len(more.devices) == len(inventory.devices) + 1
        again = solve(profiles, more, demands, replace(OPTIONS)).objective
        assert use.price == pytest.approx(max(0.0, again - report.plan.objective))
