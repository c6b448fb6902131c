"""The planner against brute force on cases small enough to try every assignment of every slot."""

from __future__ import annotations

import itertools
import math

import pytest

from framepool.engine.planning import search
from framepool.engine.planning.checker import check_plan
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.models.profile import ModelProfile

SLOTS = {1: ((1,), (2, 2)), 2: ((1, 1), (1, 2, 2), (2, 2, 2, 2))}  # splits of 1 and 2 devices into wholes and halves


def _brute_force(
    profiles: dict[str, ModelProfile], inventory: Inventory, demands: list[Demand], sharing: Sharing
) -> float:
    """Greatest z over every use of every slot by a (model, batch 1 template, stage); no links, at most two stages."""
    stages: dict[tuple[str, int], list[tuple[object, int, float]]] = {}
    for profile in profiles.values():
        slo_us = max(d.slo_ms for d in demands if d.model == profile.model) * 1e3
        singles = [((c.name, s),) for c in inventory.classes for s in c.shares]
        pairs = [(a, b) for (a,), (b,) in itertools.product(singles, singles)]
        for seq in [*singles, *pairs]:
            for cut in range(1, profile.n_blocks) if len(seq) == 2 else (profile.n_blocks,):
                bounds = [(0, cut), (cut, profile.n_blocks)][: len(seq)]
                times = [profile.of(*place).stage_us(*b, 1) for place, b in zip(seq, bounds, strict=True)]  # type: ignore[union-attr]
                if sum(times) <= slo_us - round(0.1 * slo_us):
                    for k, (place, us) in enumerate(zip(seq, times, strict=True)):
                        template = (profile.model, seq, cut, sum(times))
                        stages.setdefault(place, []).append((template, k, 1e6 / us))
    best = 0.0
    for split in itertools.product(*(SLOTS[c.count] for c in inventory.classes)):
        slots = [(c.name, s) for c, shares in zip(inventory.classes, split, strict=True) for s in shares]
        options = [[None, *stages.get(slot, [])] for slot in slots]
        for used in itertools.product(*options):
            if sharing is Sharing.POOL and not _own_pools(slots, used):
                continue
            best = max(best, _z(used, demands))
    return best


def _own_pools(slots: list[tuple[str, int]], used: tuple[object, ...]) -> bool:
    """Whether halves can be paired so that no device has two pools."""
    for name in {s[0] for s in slots}:
        halves = [u for slot, u in zip(slots, used, strict=True) if slot == (name, 2)]
        pools = [(u[0][0], u[1]) for u in halves if u is not None]  # type: ignore[index]
        if sum(math.ceil(pools.count(p) / 2) for p in set(pools)) > len(halves) // 2:
            return False
    return True


def _z(used: tuple[object, ...], demands: list[Demand]) -> float:
    rates: dict[object, dict[int, float]] = {}
    for use in used:
        if use is not None:
            template, k, rate = use  # type: ignore[misc]
            rates.setdefault(template, {}).setdefault(k, 0.0)
            rates[template][k] += rate
    z = math.inf
    for demand in demands:
        room = demand.slo_ms * 1e3 - round(demand.slo_ms * 100)
        have = sum(
            min(by_stage.values())
            for (model, seq, _, us), by_stage in rates.items()  # type: ignore[misc]
            if model == demand.model and len(by_stage) == len(seq) and us <= room
        )
        asked = sum(d.rate_fps for d in demands if d.model == demand.model and d.slo_ms <= demand.slo_ms)
        z = min(z, have / asked)
    return z


@pytest.fixture(params=["covering", "prices"])
def path(request, monkeypatch) -> str:
    """Both ways of the search, whatever the number of devices would choose."""
    monkeypatch.setattr(search, "_FEW_SLOTS", 10_000 if request.param == "covering" else 0)
    return request.param


CASES = [
    ({"a": 1, "b": 1}, [("m", 20.0, 30.0), ("k", 15.0, 10.0)]),
    ({"a": 1, "b": 1}, [("m", 6.5, 30.0), ("m", 30.0, 60.0)]),
    ({"a": 1, "b": 1}, [("m", 6.5, 60.0), ("m", 30.0, 10.0), ("k", 9.0, 20.0)]),
    ({"a": 2}, [("m", 20.0, 30.0), ("k", 15.0, 10.0)]),
]


@pytest.mark.parametrize("sharing", list(Sharing))
@pytest.mark.parametrize(("counts", "asked"), CASES)
def test_best_z_equals_brute_force(make_profile, make_inventory, path, counts, asked, sharing) -> None:
    profiles = {
        "m": make_profile("m", {"a": [1500, 2500], "b": [4000, 3000]}, shares=(1, 2), max_batch=1, seed=1),
        "k": make_profile("k", {"a": [2000, 900], "b": [2500, 4100]}, shares=(1, 2), max_batch=1, seed=2),
    }
    demands = [Demand(*d) for d in asked]
    profiles = {m: p for m, p in profiles.items() if any(d.model == m for d in demands)}
    inventory = make_inventory(counts, shares=(1, 2))
    options = PlannerOptions(sharing=sharing, enough=math.inf, gap=1e-6)
    plan = solve(profiles, inventory, demands, options)
    assert plan.objective == pytest.approx(_brute_force(profiles, inventory, demands, sharing), rel=1e-5)
    assert plan.objective <= plan.bound * (1 + 1e-9)
    assert check_plan(plan, profiles, inventory, slo_margin=0.1, sharing=sharing).problems == ()


def test_both_ways_agree_on_a_larger_case(make_profile, make_inventory, monkeypatch) -> None:
    names = ("m", "k")
    profiles = {
        n: make_profile(n, {"a": [800, 900, 700], "b": [1900, 2500, 1700]}, shares=(1, 2), seed=i)
        for i, n in enumerate(names)
    }
    inventory = make_inventory({"a": 2, "b": 2}, shares=(1, 2), link_gbps=10.0)
    demands = [Demand("m", 20.0, 300.0), Demand("k", 30.0, 150.0), Demand("k", 12.0, 50.0)]
    for sharing in Sharing:
        found = {}
        for few in (0, 10_000):
            monkeypatch.setattr(search, "_FEW_SLOTS", few)
            options = PlannerOptions(sharing=sharing, enough=math.inf, gap=1e-3, time_limit_s=20.0)
            found[few] = solve(profiles, inventory, demands, options)
        assert found[0].gap <= 1e-3
        assert found[10_000].gap <= 1e-3
        assert found[0].objective == pytest.approx(found[10_000].objective, rel=2e-3)
