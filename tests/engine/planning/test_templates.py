"""Enumeration against plain loops: nothing infeasible is kept, and everything left out is dominated."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from framepool.engine.planning.checker import check_plan
from framepool.engine.planning.errors import PlanInfeasibleError
from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve
from framepool.engine.planning.templates import TemplateOptions, TemplateSet, enumerate_templates, fastest_us
from framepool.models.profile import ModelProfile


def _every_template(
    profile: ModelProfile, inventory: Inventory, options: TemplateOptions, expected_fps: float | None
) -> dict[tuple[object, ...], tuple[float, tuple[float, ...]]]:
    """(stages, batch) -> (microseconds needed, rates), by plain loops from the definition."""
    out: dict[tuple[object, ...], tuple[float, tuple[float, ...]]] = {}
    for k in range(options.min_stages, options.max_stages + 1):
        for seq in itertools.product(inventory.classes, repeat=k):
            for inner in itertools.combinations(range(1, profile.n_blocks), k - 1):
                edges = (0, *inner, profile.n_blocks)
                for shares in itertools.product(*(c.shares for c in seq)):
                    for batch in range(1, options.max_batch + 1):
                        need, rates = 0.0, []
                        cuts_us = [
                            8e6 * profile.edge_bytes[e] / (min(a.link_gbps, b.link_gbps) * 1e9)
                            if a.link_gbps and b.link_gbps
                            else 0.0
                            for e, (a, b) in zip(inner, itertools.pairwise(seq), strict=True)
                        ]
                        for i, (cls, share) in enumerate(zip(seq, shares, strict=True)):
                            block = profile.of(cls.name, share)
                            assert block is not None
                            stage = sum(
                                max(1.0, float(block.latency_us[j, batch - 1])) for j in range(*edges[i : i + 2])
                            )
                            rate = 1e6 * batch / stage
                            for us in (cuts_us[i - 1 : i] if i else []) + cuts_us[i : i + 1]:
                                if us:
                                    rate = min(rate, 1e6 / us / share / cls.devices_per_link)
                            need += stage
                            rates.append(rate)
                        need += sum(cuts_us) * batch
                        if expected_fps:
                            need += 1.3e6 * (batch - 1) / expected_fps
                        names = tuple(
                            (c.name, s, *edges[i : i + 2]) for i, (c, s) in enumerate(zip(seq, shares, strict=True))
                        )
                        out[(names, batch)] = need, tuple(rates)
    return out


def _named(templates: TemplateSet, inventory: Inventory, t: int) -> tuple[object, ...]:
    stages = tuple(
        (
            inventory.classes[int(templates.classes[t, i])].name,
            int(templates.shares[t, i]),
            int(templates.first[t, i]),
            int(templates.last[t, i]),
        )
        for i in range(int(templates.n_stages[t]))
    )
    return stages, int(templates.batch[t])


@pytest.mark.parametrize("any_share", [False, True])
@pytest.mark.parametrize("keep_faster", [False, True])
@pytest.mark.parametrize("link_gbps", [None, 1.0])
def test_keeps_only_the_feasible_and_loses_only_the_dominated(
    make_profile, make_inventory, any_share, keep_faster, link_gbps
) -> None:
    profile = make_profile("m", {"a": [900, 500, 700], "b": [2000, 1500, 1800]}, shares=(1, 2, 3), seed=3)
    inventory = make_inventory({"a": 2, "b": 2}, shares=(1, 2, 3), link_gbps=link_gbps, devices_per_link=2)
    options = TemplateOptions(max_stages=3, max_batch=4, keep_faster=keep_faster, any_share=any_share)
    slos_us = [9_000.0, 16_000.0]
    limits = [slo - round(0.1 * slo) for slo in slos_us]
    every = _every_template(profile, inventory, options, 800.0)
    found = enumerate_templates(profile, inventory, slos_us, options, 800.0)

    kept = {}
    for t in range(len(found)):
        name = _named(found, inventory, t)
        need, rates = every[name]
        assert found.latency_us[t] + found.build_us[t] == pytest.approx(need)
        assert found.rate_fps[t, : len(rates)] == pytest.approx(rates)
        assert need <= limits[int(found.tightest[t])] + 1e-6
        assert found.tightest[t] == 0 or need > limits[0]
        kept[name] = t
    assert 0 < len(kept) < len(every)

    for (stages, batch), (need, rates) in every.items():
        if need > limits[1] or (stages, batch) in kept:
            continue
        tight = 0 if need <= limits[0] else 1
        build = 1.3e6 * (batch - 1) / 800.0
        assert any(
            _may_replace(found, inventory, t, stages, rates, tight, need - build if keep_faster else None, any_share)
            for t in kept.values()
        ), (stages, batch)


def _may_replace(found, inventory, t, stages, rates, tight, latency_us, any_share) -> bool:
    mine, _ = _named(found, inventory, t)
    if [s[0] for s in mine] != [s[0] for s in stages] or found.tightest[t] > tight:
        return False
    if latency_us is not None and found.latency_us[t] > latency_us + 1e-6:
        return False
    for i, (a, b) in enumerate(zip(mine, stages, strict=True)):
        if (a[1] % b[1] if any_share else a[1] != b[1]) or found.rate_fps[t, i] * a[1] < rates[i] * b[1] * (1 - 1e-12):
            return False
    return True


def test_sequences_stage_limits_and_distinct_classes(make_profile, make_inventory) -> None:
    profile = make_profile("m", {"a": [100, 100, 100], "b": [200, 200, 200]})
    inventory = make_inventory({"a": 1, "b": 1})

    def sequences(**settings: object) -> set[tuple[str, ...]]:
        found = enumerate_templates(profile, inventory, [1e5], TemplateOptions(**settings))  # type: ignore[arg-type]
        return {tuple(s[0] for s in _named(found, inventory, t)[0]) for t in range(len(found))}

    assert sequences(max_stages=1) == {("a",), ("b",)}
    assert sequences(min_stages=2, max_stages=2, distinct_classes=True) == {("a", "b"), ("b", "a")}
    assert sequences(max_stages=3, sequences=(("b", "a"), ("a",))) == {("b", "a"), ("a",)}
    assert sequences(max_stages=2) == {("a",), ("b",), ("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")}


def test_a_block_below_the_timers_resolution_counts_a_microsecond(make_profile, make_inventory) -> None:
    profile = make_profile("m", {"a": [0.0, 0.0]})
    found = enumerate_templates(profile, make_inventory({"a": 1}), [1e4], TemplateOptions(max_stages=1, max_batch=1))
    assert found.latency_us.tolist() == [2.0]
    assert np.isfinite(found.rate_fps[0, 0])


def test_fastest_is_the_least_latency_and_none_without_profile(make_profile, make_inventory) -> None:
    profile = make_profile("m", {"a": [100, 300], "b": [500, 50]})
    assert fastest_us(profile, make_inventory({"a": 1, "b": 1}), TemplateOptions(max_stages=2)) == pytest.approx(150)
    assert fastest_us(profile, make_inventory({"a": 1, "b": 1}), TemplateOptions(max_stages=1)) == pytest.approx(400)
    assert fastest_us(profile, make_inventory({"c": 1}), TemplateOptions()) is None


def test_a_share_measured_up_to_small_batches_does_not_limit_the_others(make_profile, make_inventory) -> None:
    """A quarter of a device often has no time for the batches that a whole one runs."""
    whole = make_profile("m", {"a": [100, 100]}, shares=(1,), max_batch=8)
    half = make_profile("m", {"a": [100, 100]}, shares=(2,), max_batch=2)
    profile = replace(whole, blocks=whole.blocks + half.blocks)
    inventory = make_inventory({"a": 2}, shares=(1, 2))
    found = enumerate_templates(profile, inventory, [1e5], TemplateOptions(max_stages=2, any_share=True))
    named = {_named(found, inventory, t) for t in range(len(found))}
    assert ((("a", 1, 0, 2),), 8) in named
    for stages, batch in named:
        assert batch <= (2 if any(share == 2 for _, share, _, _ in stages) else 8)
    assert any(share == 2 for stages, _ in named for _, share, _, _ in stages)


def test_a_stage_that_does_not_fit_a_share_s_memory_is_not_enumerated(make_profile, make_inventory) -> None:
    """100 bytes of weights a block: a device of 250 holds two blocks whole, one at most on a half, batches aside."""
    profile = replace(make_profile("m", {"a": [1000.0] * 4}, shares=(1, 2), max_batch=2), block_bytes=(100,) * 4)
    profile = replace(profile, edge_bytes=(10,) * 5)
    (plain,) = make_inventory({"a": 4}, shares=(1, 2)).classes
    tight = Inventory((replace(plain, memory_bytes=250),), ())
    options = TemplateOptions(max_stages=2, any_share=True, keep_faster=True)
    every = enumerate_templates(profile, Inventory((plain,), ()), [1e6], options)
    found = enumerate_templates(profile, tight, [1e6], options)
    assert (every.n_stages == 1).any()
    assert 0 < len(found) < len(every)
    for t in range(len(found)):
        for k in range(found.n_stages[t]):
            first, last, share = int(found.first[t, k]), int(found.last[t, k]), int(found.shares[t, k])
            held = (last - first) * 100 + 20 * int(found.batch[t])
            assert held * share <= 250
            assert held == profile.stage_bytes(first, last, int(found.batch[t]))
    demand = Demand("m", 1000.0, 10.0)
    plan = solve({"m": profile}, tight, [demand], PlannerOptions(sharing=Sharing.POOL))
    assert check_plan(plan, {"m": profile}, tight, slo_margin=0.1, sharing=Sharing.POOL).problems == ()
    small = Inventory((replace(plain, memory_bytes=150),), ())
    problems = check_plan(plan, {"m": profile}, small, slo_margin=0.1, sharing=Sharing.POOL).problems
    assert any("more than 1/" in problem for problem in problems)
    with pytest.raises(PlanInfeasibleError):
        solve({"m": profile}, small, [demand], PlannerOptions(sharing=Sharing.POOL))
