"""Plans of whole devices at once: exact where devices can't be split, and a lower bound where they can."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framepool.engine.planning import search
from framepool.engine.planning.allotting import MOST_CELLS, allot
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, expected_rates
from framepool.engine.planning.program import Program
from framepool.engine.planning.search import SearchLimits, maximise
from framepool.engine.planning.solving import _program, _template_sets

TABLES = {"a": [800, 900, 700], "b": [1900, 2500, 1700]}


def program(make_profile, make_inventory, counts, demands, *, shares=(1,), restrict=False) -> Program:
    profiles = {n: make_profile(n, TABLES, shares=shares, seed=i) for i, n in enumerate(("k", "m"))}
    inventory = make_inventory(counts, shares=shares, link_gbps=10.0)
    options = PlannerOptions(sharing=Sharing.POOL, enough=math.inf, restrict_sequences=restrict)
    rates = expected_rates(profiles, inventory, demands, options)
    return _program(_template_sets(profiles, inventory, demands, options, rates), demands, (), inventory, options)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    a=st.integers(1, 6),
    b=st.integers(1, 12),
    fast=st.sampled_from([8.0, 12.0, 20.0]),
    weight=st.floats(0.2, 5.0),
    restrict=st.booleans(),
)
def test_it_is_exact_where_no_device_is_split(make_profile, make_inventory, a, b, fast, weight, restrict) -> None:
    demands = [Demand("k", fast, 100.0 * weight), Demand("m", 25.0, 100.0)]
    made = program(make_profile, make_inventory, {"a": a, "b": b}, demands, restrict=restrict)
    counts = allot(made)
    assert counts is not None
    assert made.fits(counts)
    found = search._integer(made, 1.0, SearchLimits(gap=1e-7), np.ones(made.size, dtype=bool), None, None)
    assert made.objective(counts) == pytest.approx(found.objective, rel=1e-6)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.integers(2, 6), b=st.integers(2, 12), more=st.sampled_from(["a", "b"]))
def test_with_splits_it_is_a_start_and_more_devices_never_carry_less(make_profile, make_inventory, a, b, more) -> None:
    demands = [Demand("k", 12.0, 150.0), Demand("m", 25.0, 100.0)]
    counts = {"a": a, "b": b}
    made = program(make_profile, make_inventory, counts, demands, shares=(1, 2))
    start = allot(made)
    best = maximise(made, SearchLimits(gap=1e-4))
    assert made.fits(start)
    assert 0 < made.objective(start) <= best.objective * (1 + 1e-9)
    larger = program(make_profile, make_inventory, counts | {more: counts[more] + 1}, demands, shares=(1, 2))
    assert maximise(larger, SearchLimits(gap=1e-4)).objective >= best.objective * (1 - 1e-4)


def test_what_it_is_not_made_for_is_left_to_the_search(make_profile, make_inventory) -> None:
    several_slos = [Demand("k", 12.0, 100.0), Demand("k", 20.0, 100.0), Demand("m", 25.0, 100.0)]
    assert allot(program(make_profile, make_inventory, {"a": 2, "b": 2}, several_slos)) is None
    assert MOST_CELLS < (100 + 1) * (100 + 1)
    two = [Demand("k", 12.0, 100.0), Demand("m", 25.0, 100.0)]
    assert allot(program(make_profile, make_inventory, {"a": 100, "b": 100}, two)) is None
