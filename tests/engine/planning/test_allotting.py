"""Plans of whole devices at once: exact where devices can't be split, and a lower bound where they can."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framepool.engine.planning import search
from framepool.engine.planning.allotting import MOST_CELLS, allot
from framepool.engine.planning.checker import check_plan
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, expected_rates
from framepool.engine.planning.program import Program
from framepool.engine.planning.search import SearchLimits, maximise
from framepool.engine.planning.solving import _program, _template_sets, solve

TABLES = {"a": [800, 900, 700], "b": [1900, 2500, 1700]}


def program(make_profile, make_inventory, counts, demands, *, shares=(1,), restrict=False) -> Program:
    profiles = {n: make_profile(n, TABLES, shares=shares, seed=i) for i, n in enumerate(("k", "m"))}
    inventory = make_inventory(counts, shares=shares, link_gbps=10.0)
    options = PlannerOptions(sharing=Sharing.POOL, enough=math.inf, restrict_sequences=restrict)
    rates = expected_rates(profiles, inventory, demands, options)
    return _program(_template_sets(profiles, inventory, demands, options, rates), demands, (), inventory, options)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    a=st.integers(1, 3),
    b=st.integers(1, 6),
    fast=st.sampled_from([8.0, 12.0, 20.0]),
    weight=st.floats(0.2, 5.0),
    restrict=st.booleans(),
)
def test_it_is_exact_where_no_device_is_split(make_profile, make_inventory, a, b, fast, weight, restrict) -> None:
    demands = [Demand("k", fast, 100.0 * weight), Demand("m", 25.0, 100.0)]
    made = program(make_profile, make_inventory, {"a": a, "b": b}, demands, restrict=restrict)
    counts = allot(made)
    found = search._integer(made, 1.0, SearchLimits(gap=1e-7), np.ones(made.size, dtype=bool), None, None)
    if counts is None:  # too few devices for both models
        assert found is None or found.objective <= 0
        return
    assert made.fits(counts)
    assert made.objective(counts) == pytest.approx(found.objective, rel=1e-6)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.integers(1, 2), b=st.integers(2, 3), more=st.sampled_from(["a", "b"]))
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


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.integers(2, 6), b=st.integers(2, 12), slo_ms=st.sampled_from([8.0, 12.0, 20.0]))
def test_chains_are_one_template_a_model_on_as_many_whole_devices_a_stage(
    make_profile, make_inventory, a, b, slo_ms
) -> None:
    """DART-r as it was compared with: never better than what is free to choose, and found exactly."""
    profiles = {n: make_profile(n, TABLES, shares=(1, 2), seed=i) for i, n in enumerate(("k", "m"))}
    inventory = make_inventory({"a": a, "b": b}, shares=(1, 2), link_gbps=10.0)
    demands = [Demand("k", slo_ms, 150.0), Demand("m", 25.0, 100.0)]
    options = PlannerOptions(sharing=Sharing.POOL, enough=math.inf, tie_break=False, use_spare=False, time_limit_s=1.0)
    chained = solve(profiles, inventory, demands, replace(options, chains=True))
    assert sorted(p.model for p in chained.pipelines) == ["k", "m"]
    for pipeline in chained.pipelines:
        assert len({stage.devices for stage in pipeline.stages}) == 1
        assert {stage.share for stage in pipeline.stages} == {1}
    assert check_plan(chained, profiles, inventory, slo_margin=0.1, sharing=Sharing.POOL).problems == ()
    assert chained.objective <= solve(profiles, inventory, demands, options).objective * (1 + 1e-9)
    rates = {  # every template at every count, by hand
        (model, n, taken): rate
        for model, templates in _chains(profiles, inventory, demands, options).items()
        for n, taken, rate in templates
    }
    best = max(
        (
            min(one / 150.0, two / 100.0)
            for (model, _, u), one in rates.items() if model == "k"
            for (other, _, v), two in rates.items() if other == "m" and u[0] + v[0] <= a and u[1] + v[1] <= b
        ),
        default=0.0,
    )  # fmt: skip
    assert chained.objective == pytest.approx(best)


def _chains(profiles, inventory, demands, options):
    """By model: (devices a stage, devices by class, rate) of every template."""
    found = {}
    fps = expected_rates(profiles, inventory, demands, replace(options, chains=True))
    for templates in _template_sets(profiles, inventory, demands, replace(options, chains=True), fps):
        kept = {}
        for t in range(len(templates)):
            stages = range(int(templates.n_stages[t]))
            for n in range(1, 13):
                taken = [0, 0]
                for k in stages:
                    taken[int(templates.classes[t, k])] += n
                rate = n * min(float(templates.rate_fps[t, k]) for k in stages)
                key = n, tuple(taken)
                kept[key] = max(kept.get(key, 0.0), rate)
        found[templates.model] = [(n, taken, rate) for (n, taken), rate in kept.items()]
    return found
