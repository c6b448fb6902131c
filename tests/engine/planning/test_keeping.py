"""A plan that still serves is kept: how often it serves demands, and when it must give way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.planning.keeping import kept_plan, served_times
from framepool.engine.planning.plan import Demand, Pipeline, Plan, StagePlan


def pipeline(name: str, model: str, latency_ms: float, capacity_fps: float, batch: int = 1) -> Pipeline:
    stage = StagePlan(0, 0, 1, "a", 1, 1, (latency_ms * 1e3,), 1, 1, 0.0, 1.0)
    return Pipeline(name, model, batch, (stage,), capacity_fps / 2, capacity_fps, latency_ms * 1e3, 1000.0)


def plan(*pipelines: Pipeline) -> Plan:
    return Plan(pipelines, (), 1.0, 1.0, 0.0, 0.0)


def test_times_served_is_capacity_over_what_is_asked() -> None:
    assert served_times([pipeline("p", "m", 10, 40)], [Demand("m", 100, 10)], 0.0) == 4
    assert served_times([pipeline("p", "m", 10, 40)], [Demand("m", 100, 10), Demand("m", 200, 10)], 0.0) == 2


def test_a_pipeline_too_slow_for_a_demand_does_not_serve_it() -> None:
    fast, slow = pipeline("f", "m", 10, 20), pipeline("s", "m", 80, 100)
    demands = [Demand("m", 50, 10), Demand("m", 100, 10)]
    assert served_times([fast, slow], demands, 0.0) == 2  # the short SLO has the fast one alone
    assert served_times([slow], demands, 0.0) == 0
    assert served_times([fast, slow], demands, 0.25) == 1  # 75 ms are left of 100: the slow one serves nobody


def test_the_wait_for_a_full_batch_counts() -> None:
    batches = [pipeline("b", "m", 50, 100, batch=4)]
    assert served_times(batches, [Demand("m", 100, 60)], 0.0) == pytest.approx(100 / 60)  # 3 frames take 50 ms
    assert served_times(batches, [Demand("m", 100, 50)], 0.0) == 0  # 60 ms


def test_a_kept_plan_spreads_rates_by_capacity() -> None:
    old = plan(pipeline("a", "m", 10, 30), pipeline("b", "m", 10, 10))
    kept = kept_plan(old, [Demand("m", 100, 20)], 0.1, 1.25)
    assert kept is not None
    assert [p.rate_fps for p in kept.pipelines] == [15, 5]
    assert kept.objective == 2
    assert kept.demands == (Demand("m", 100, 20),)


@pytest.mark.parametrize(
    "demands",
    [
        [],
        [Demand("m", 100, 33)],
        [Demand("m", 5, 1)],
        [Demand("m", 100, 1), Demand("other", 100, 1)],
    ],
)
def test_a_plan_gives_way_when_it_does_not_serve(demands: list[Demand]) -> None:
    assert kept_plan(plan(pipeline("a", "m", 10, 40)), demands, 0.1, 1.25) is None


def test_a_model_nobody_asks_for_frees_its_devices() -> None:
    old = plan(pipeline("a", "m", 10, 40), pipeline("b", "gone", 10, 40))
    assert kept_plan(old, [Demand("m", 100, 1)], 0.1, 1.25) is None


pipelines = st.lists(
    st.builds(lambda ms, fps: pipeline("p", "m", ms, fps), st.floats(1, 200), st.floats(1, 100)), min_size=1, max_size=4
)
demands = st.lists(st.builds(lambda slo, fps: Demand("m", slo, fps), st.floats(1, 300), st.floats(0.1, 50)), min_size=1,
                   max_size=4)  # fmt: skip


@given(pipelines, demands)
def test_times_served_is_what_a_greedy_filling_finds(given_pipelines: list[Pipeline], asked: list[Demand]) -> None:
    """Serving the shortest SLO first from the slowest pipelines that meet it is optimal on nested sets."""
    times = served_times(given_pipelines, asked, 0.0)
    for factor, fits in ((times * 0.999, True), (times * 1.001 + 1e-6, False)):
        left = {i: p.capacity_fps for i, p in enumerate(given_pipelines)}
        served = True
        for demand in sorted(asked, key=lambda d: d.slo_ms):
            need = demand.rate_fps * factor
            for i in sorted(left, key=lambda i: -given_pipelines[i].latency_us):
                if given_pipelines[i].latency_us <= demand.slo_ms * 1e3:
                    took = min(need, left[i])
                    left[i] -= took
                    need -= took
            served = served and need <= 1e-9 * max(1.0, demand.rate_fps)
        assert served is fits
