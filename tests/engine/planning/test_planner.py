"""What a plan promises: sound by the checker, deterministic, with the options' meaning, and precise refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.planning.checker import check_placement, check_plan
from framepool.engine.planning.placement import place
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import (
    PlanInfeasibleError,
    PlannerOptions,
    PlanningError,
    Sharing,
    expected_rates,
    solve,
)

FAST_SLOW = {"a": [3000, 5000, 4000, 6000], "b": [6000, 9000, 9000, 11000]}  # 18 ms and 35 ms a frame


@pytest.fixture
def two_cores(make_inventory):
    return make_inventory({"a": 1, "b": 1}, shares=(1, 2, 4))


@pytest.fixture
def profiles(make_profile):
    return {n: make_profile(n, FAST_SLOW, shares=(1, 2, 4), seed=i) for i, n in enumerate("mkq")}


def test_three_models_on_two_devices(profiles, two_cores) -> None:
    demands = [Demand("m", 250, 10), Demand("k", 250, 5), Demand("q", 300, 2)]
    options = PlannerOptions(sharing=Sharing.DEVICE)
    plan = solve(profiles, two_cores, demands, options)
    assert plan.objective >= 1
    assert {p.model for p in plan.pipelines} == {"m", "k", "q"}
    rates = expected_rates(profiles, two_cores, demands, options)
    report = check_plan(plan, profiles, two_cores, slo_margin=0.1, sharing=Sharing.DEVICE, expected_fps=rates)
    assert report.problems == ()
    assert check_placement(place(plan, two_cores), two_cores, Sharing.DEVICE) == ()


def test_with_plenty_of_capacity_latency_counts_and_no_device_idles(profiles, two_cores) -> None:
    plan = solve(profiles, two_cores, [Demand("m", 250, 10)], PlannerOptions())
    fast, slow = sorted(plan.pipelines, key=lambda p: p.latency_us)
    assert [(s.device_class, s.share) for s in fast.stages] == [("a", 1)]
    assert [(s.device_class, s.share) for s in slow.stages] == [("b", 1)]
    assert fast.batch == slow.batch == 1
    greedy = solve(profiles, two_cores, [Demand("m", 250, 10)], PlannerOptions(enough=math.inf))
    assert greedy.objective > plan.objective
    assert min(p.latency_us for p in greedy.pipelines) > fast.latency_us
    alone = solve(profiles, two_cores, [Demand("m", 250, 10)], PlannerOptions(use_spare=False))
    assert [p.id for p in alone.pipelines] == [fast.id]


def test_a_split_across_both_classes_on_request(profiles, two_cores) -> None:
    options = PlannerOptions(min_stages=2, distinct_classes=True)
    plan = solve(profiles, two_cores, [Demand("m", 250, 10)], options)
    for pipeline in plan.pipelines:
        assert {s.device_class for s in pipeline.stages} == {"a", "b"}
    assert plan.objective >= 1


def test_no_partition(profiles, two_cores) -> None:
    plan = solve(profiles, two_cores, [Demand("m", 250, 10)], PlannerOptions(max_stages=1, enough=math.inf))
    assert all(len(p.stages) == 1 for p in plan.pipelines)
    split = solve(profiles, two_cores, [Demand("m", 250, 10)], PlannerOptions(max_stages=2, enough=math.inf))
    assert split.objective >= plan.objective * (1 - 1e-4)


def test_restricted_sequences_have_one_template_each(make_profile, make_inventory) -> None:
    profiles = {"m": make_profile("m", FAST_SLOW, shares=(1, 2), seed=5)}
    inventory = make_inventory({"a": 3, "b": 3}, shares=(1, 2))
    free = solve(profiles, inventory, [Demand("m", 120, 100)], PlannerOptions(enough=math.inf))
    options = PlannerOptions(enough=math.inf, restrict_sequences=True)
    plan = solve(profiles, inventory, [Demand("m", 120, 100)], options)
    sequences = [tuple(s.device_class for s in p.stages) for p in plan.pipelines]
    assert len(sequences) == len(set(sequences))
    assert plan.objective <= free.objective * (1 + 2e-4)


def test_an_slo_no_pipeline_meets_is_refused_with_the_fastest(profiles, two_cores) -> None:
    with pytest.raises(PlanInfeasibleError, match="'m' within 5 ms: the fastest possible is") as caught:
        solve(profiles, two_cores, [Demand("m", 5, 1), Demand("k", 250, 1)], PlannerOptions())
    (demand,) = caught.value.fastest_slo_ms
    assert (demand.model, demand.slo_ms) == ("m", 5)
    fastest = caught.value.fastest_slo_ms[demand]
    assert fastest is not None
    solve(profiles, two_cores, [Demand("m", fastest, 1)], PlannerOptions())
    with pytest.raises(PlanInfeasibleError):
        solve(profiles, two_cores, [Demand("m", fastest - 0.1, 1)], PlannerOptions())


def test_a_model_profiled_on_no_device_is_refused(profiles, make_inventory) -> None:
    with pytest.raises(PlanInfeasibleError, match="profiled on no device"):
        solve(profiles, make_inventory({"c": 2}), [Demand("m", 250, 1)], PlannerOptions())


@pytest.mark.parametrize(
    ("demand", "field"),
    [(Demand("m", 0, 1), "slo_ms"), (Demand("m", 100, -1), "rate_fps"), (Demand("m", 100, math.nan), "rate_fps"),
     (Demand("other", 100, 1), "model")],
)  # fmt: skip
def test_senseless_demands_are_refused_by_name(profiles, two_cores, demand, field) -> None:
    with pytest.raises(PlanningError) as caught:
        solve(profiles, two_cores, [demand], PlannerOptions())
    assert caught.value.field == field


def test_pool_sharing_refuses_shares_it_cannot_pack(make_profile, make_inventory) -> None:
    with pytest.raises(PlanningError, match="1/5"):
        solve(
            {"m": make_profile("m", FAST_SLOW, shares=(1, 5))},
            make_inventory({"a": 1}, shares=(1, 5)),
            [Demand("m", 250, 1)],
            PlannerOptions(sharing=Sharing.POOL),
        )


def test_overload_gives_a_plan_below_one_and_shares_it_evenly(profiles, two_cores) -> None:
    demands = [Demand("m", 250, 100), Demand("k", 250, 50)]
    plan = solve(profiles, two_cores, demands, PlannerOptions())
    assert 0 < plan.objective < 1
    for demand in demands:
        given = sum(p.rate_fps for p in plan.of_model(demand.model))
        assert given == pytest.approx(demand.rate_fps * plan.objective)


def test_no_demand_no_pipeline(profiles, two_cores) -> None:
    plan = solve(profiles, two_cores, [], PlannerOptions())
    assert plan.pipelines == ()
    assert plan.objective == math.inf


def test_same_question_same_answer_and_ids_outlive_a_replan(profiles, two_cores) -> None:
    demands = [Demand("m", 250, 10), Demand("k", 250, 5)]
    first = solve(profiles, two_cores, demands, PlannerOptions())
    again = solve(profiles, two_cores, list(reversed(demands)), PlannerOptions())
    assert replace(first, solve_s=0) == replace(again, solve_s=0)
    more = solve(profiles, two_cores, [Demand("m", 250, 11), Demand("k", 250, 5)], PlannerOptions())
    assert [p.id for p in more.pipelines] == [p.id for p in first.pipelines]


def test_streams_of_one_model_with_unlike_slos_share_its_pools(profiles, two_cores) -> None:
    plan = solve(profiles, two_cores, [Demand("m", 300, 10), Demand("m", 60, 10)], PlannerOptions())
    assert plan.objective >= 1
    tight = sum(p.capacity_fps for p in plan.pipelines if p.slo_ms <= 60)
    assert tight >= 10 * plan.objective * (1 - 1e-9)
    assert sum(p.rate_fps for p in plan.pipelines) == pytest.approx(20)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_plan_is_sound_and_can_be_placed(make_profile, make_inventory, data) -> None:
    shares = data.draw(st.sampled_from([(1,), (1, 2), (1, 2, 4), (1, 2, 3, 4)]))
    counts = {c: data.draw(st.integers(1, 3)) for c in "ab"}
    sharing = data.draw(st.sampled_from(list(Sharing)))
    link_gbps = data.draw(st.sampled_from([None, 1.0, 10.0]))
    inventory = make_inventory(counts, shares=shares, link_gbps=link_gbps, devices_per_link=2)
    profiles, demands = {}, []
    for name in data.draw(st.sampled_from(["m", "mk", "mkq"])):
        times = {c: data.draw(st.lists(st.floats(0, 9000), min_size=3, max_size=3)) for c in "ab"}
        profiles[name] = make_profile(name, times, shares=shares, seed=data.draw(st.integers(0, 9)))
        for slo_ms in data.draw(st.sets(st.sampled_from([40.0, 90.0, 250.0]), min_size=1, max_size=2)):
            demands.append(Demand(name, slo_ms, data.draw(st.floats(0.5, 200))))
    options = PlannerOptions(
        sharing=sharing,
        max_stages=data.draw(st.integers(1, 2)),
        restrict_sequences=data.draw(st.booleans()),
        gap=1e-3,
        time_limit_s=1.0,
    )
    rates = expected_rates(profiles, inventory, demands, options)
    refused: dict[Demand, float | None] = {}
    try:
        plan = solve(profiles, inventory, demands, options)
    except PlanInfeasibleError as error:
        refused = error.fastest_slo_ms
    assert all(fastest is None or fastest > d.slo_ms for d, fastest in refused.items())
    if refused:
        return
    report = check_plan(plan, profiles, inventory, slo_margin=0.1, sharing=sharing, expected_fps=rates)
    assert report.problems == ()
    assert check_placement(place(plan, inventory), inventory, sharing) == ()
