"""What part of a capacity can be used: the table's cells are what a queue does, and between them nothing jumps."""

from __future__ import annotations

import heapq
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.planning.queueing import SERVERS, UTILISATION, WAITS, Queueing, utilisation


def lost(servers: int, wait: float, load: float, arrivals: int = 40_000) -> float:
    """Share of memoryless arrivals that would wait longer than `wait` services of length 1."""
    rng = random.Random(5)
    free = [0.0] * servers
    at, missed = 0.0, 0
    for _ in range(arrivals):
        at += rng.expovariate(load * servers)
        start = max(at, free[0])
        if start - at > wait:
            missed += 1
        else:
            heapq.heapreplace(free, start + 1.0)
    return missed / arrivals


@pytest.mark.parametrize(("row", "column"), [(0, 9), (3, 7), (5, 4), (7, 2), (9, 0), (11, 5)])
def test_a_cell_loses_one_in_a_hundred(row: int, column: int) -> None:
    share = lost(SERVERS[row], WAITS[column], UTILISATION[row, column])
    assert 0.004 <= share <= 0.02


@given(st.floats(0.5, 4000), st.floats(0, 20), st.floats(1, 2), st.floats(0, 2))
def test_more_servers_and_more_time_never_carry_less(servers, wait, more, longer) -> None:
    few, many = utilisation(np.array([servers, servers * more]), np.array([wait, wait + longer]))
    assert 0 < few <= many + 1e-9
    assert many <= 1.0


def test_cells_are_met_and_what_lies_between_is_between() -> None:
    assert utilisation(np.array([8.0]), np.array([0.5])) == pytest.approx(0.684)
    assert 0.39 < utilisation(np.array([10.0]), np.array([0.0])) < 0.486


def test_a_plan_pays_for_slack_it_does_not_have(make_profile, make_inventory) -> None:
    """Within 12 ms the quick class has no slack at batch 3: smaller batches carry more of what arrives by chance."""
    profiles = {"m": make_profile("m", {"a": [2000, 1000], "b": [3500, 2500]}, shares=(1,), max_batch=4, seed=3)}
    inventory = make_inventory({"a": 3, "b": 9}, shares=(1,))
    demand = Demand("m", 12.0, 100.0)
    options = PlannerOptions(
        slo_margin=0.0, sharing=Sharing.POOL, enough=math.inf, tie_break=False, use_spare=False, keep_faster=True
    )
    plain = solve(profiles, inventory, [demand], options)
    steady = solve(profiles, inventory, [demand], options, queueing=Queueing({"m": 500.0}, gap_cv=0.001))
    chance = solve(profiles, inventory, [demand], options, queueing=Queueing({"m": 500.0}))
    bursts = solve(profiles, inventory, [demand], options, queueing=Queueing({"m": 500.0}, gap_cv=2.0))
    assert plain.objective == pytest.approx(steady.objective, rel=5e-3)
    assert plain.objective > chance.objective > bursts.objective
    capacity = [sum(p.capacity_fps for p in plan.pipelines) for plan in (chance, bursts)]
    assert all(fps >= plan.objective * 100 * (1 - 1e-9) for fps, plan in zip(capacity, (chance, bursts), strict=True))
    slack = [
        sum(p.capacity_fps * (12e3 - p.latency_us) for p in plan.pipelines)
        / sum(p.capacity_fps for p in plan.pipelines)
        for plan in (plain, bursts)
    ]
    assert slack[1] >= slack[0]


def test_nobody_waits_in_the_reserve(make_profile, make_inventory) -> None:
    """Of 12 ms a template of 7 leaves 5 to wait; with 30 % kept back 1.4, and with half of it next to nothing."""
    profiles = {"m": make_profile("m", {"a": [3000, 4000]}, shares=(1,), max_batch=1)}
    inventory = make_inventory({"a": 40}, shares=(1,))
    options = PlannerOptions(slo_margin=0.0, sharing=Sharing.POOL, enough=math.inf, tie_break=False, max_stages=1)
    found = [
        solve(profiles, inventory, [Demand("m", 12.0, 100.0)], options, queueing=Queueing({"m": 5000.0}, reserve=kept))
        for kept in (0.0, 0.3, 0.5)
    ]
    z = [plan.objective for plan in found]
    assert z[0] > z[1] > 100 * z[2] > 0
    assert len({plan.pipelines[0].stages for plan in found}) == 1  # the only way there is
