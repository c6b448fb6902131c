"""The largest load that holds, whatever the guess; arrivals of the asked rate and shape."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.plan import Demand
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.simulation.arrivals import Source, gamma, poisson, trace
from framepool.engine.simulation.cluster import activated
from framepool.engine.simulation.handmade import StageSketch, single
from framepool.engine.simulation.loads import RESERVE_OF_JITTER, Load, Trial, largest
from framepool.engine.simulation.service import LognormalJitter

SOURCE = Source(0, "m", 100_000_000)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(-5, 400))
def test_the_largest_is_found_from_any_guess_with_few_tries(most: int, point: int, guess: int) -> None:
    tried: list[int] = []

    def holds(step: int) -> bool:
        assert 1 <= step <= most
        tried.append(step)
        return step <= point

    assert largest(holds, most, guess) == min(point, most)
    assert len(tried) <= 22


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_gamma_arrivals_have_their_rate_and_their_spread(cv: float) -> None:
    times = [at / 1e9 for at, _ in gamma(SOURCE, 200.0, itertools.count(), cv=cv, seed=3, until_ns=200 * 10**9)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(1 / 200, rel=0.05)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.05)


def test_gamma_of_spread_1_is_poisson_in_law() -> None:
    arrivals = [
        [at for at, _ in made]
        for made in (
            gamma(SOURCE, 100.0, itertools.count(), cv=1.0, seed=1, until_ns=300 * 10**9),
            poisson(SOURCE, 100.0, itertools.count(), seed=2, until_ns=300 * 10**9),
        )
    ]
    assert len(arrivals[0]) == pytest.approx(len(arrivals[1]), rel=0.03)


def test_a_trace_is_played_at_its_speed() -> None:
    found = [at for at, _ in trace(SOURCE, [0.0, 0.5, 2.0], itertools.count(), speed=2.0)]
    assert found == [0, 250_000_000, 1_000_000_000]


@pytest.mark.parametrize("kind", ["cameras:10", "cameras:10:random"])
def test_cameras_add_up_to_the_rate(kind: str) -> None:
    arrivals = list(Load(kind).arrivals(Demand("m", 100.0, 1.0), 45.0, seed=1, seconds=20.0))
    assert len(arrivals) == pytest.approx(900, abs=5)
    assert len({frame.stream_id for _, frame in arrivals}) == 5
    times = [at for at, _ in arrivals]
    assert times == sorted(times)
    if kind == "cameras:10":
        full = sorted(at for at, frame in arrivals if frame.stream_id < 4)
        assert min(b - a for a, b in itertools.pairwise(full)) == 20_000_000


def test_unknown_arrivals_name_those_there_are() -> None:
    with pytest.raises(ValueError, match="'pareto' are unknown; use poisson"):
        Load("pareto").arrivals(Demand("m", 1.0, 1.0), 1.0, seed=1, seconds=1.0)


def test_one_worker_carries_what_queueing_theory_says() -> None:
    """Cameras with phases on one device: full load; Poisson arrivals: less, by the tail of M/D/1."""
    made = single([StageSketch(1, 10.0)], slo_ms=40.0)
    inventory = Inventory((DeviceClass("a", 1),), ())
    demand = Demand("m", 40.0, 1.0)
    cameras = Trial(load=Load("cameras:10"), seconds=20.0)
    assert cameras.largest_factor(made.plan, inventory, demand, 100.0, grid=0.05) == pytest.approx(1.0)
    memoryless = Trial(seconds=100.0)
    assert 0.5 <= memoryless.largest_factor(made.plan, inventory, demand, 100.0, grid=0.05) <= 0.65


def test_a_pool_has_servers_of_its_own_and_is_dealt_to_them() -> None:
    """Four to a server: a pool of six takes two and loads them evenly; the next pool of its class has others."""
    made = single([StageSketch(6, 5.0, out_ms=1.0, device_class="a"), StageSketch(2, 5.0, device_class="a")])
    found = activated(made.plan, Inventory((DeviceClass("a", 8, 10.0, 4),), ()))
    first, second = ([found.links[worker] for worker in found.workers["p", stage]] for stage in (0, 1))
    assert [first.count(server) for server in sorted(set(first))] == [3, 3]
    assert len(set(second)) == 1
    assert not set(first) & set(second)
    assert activated(made.plan, Inventory((DeviceClass("a", 8),), ())).links == {}


@pytest.mark.parametrize(
    "kind", ["pareto", "gamma", "gamma:x", "gamma:0", "gamma:nan", "gamma:2:random", "cameras:", "cameras:10:odd",
             "cameras:-1", "poisson:2", "cameras:10:", ""]
)  # fmt: skip
def test_a_load_that_is_none_is_refused_before_anything_runs(kind: str) -> None:
    with pytest.raises(ValueError, match="use poisson, gamma:CV, cameras:FPS"):
        Load(kind)


def test_what_varies_has_a_reserve() -> None:
    """At little load batches are held until their head's deadline: late whenever service takes longer than profiled."""
    made = single([StageSketch(4, 0.2, 50.0, device_class="a")], batch=3, slo_ms=80.0)
    inventory = Inventory((DeviceClass("a", 4),), ())
    demand = Demand("m", 80.0, 100.0)
    shares = []
    for reserve in (0.0, RESERVE_OF_JITTER * 0.05):
        how = Trial("framepool", SchedulerOptions.late(), service=LognormalJitter(0.05), reserve=reserve)
        totals = how.run(made.plan, inventory, demand, 20.0, 1).totals
        shares.append(totals.in_time / totals.ended)
    assert shares[0] < 0.9
    assert shares[1] >= 0.97
