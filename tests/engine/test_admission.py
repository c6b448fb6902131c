"""What is asked for on behalf of streams, what is admitted, and what is offered where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.admission import OFFLINE_RATE_FPS, Wish, admit, demands_of, planner_options
from framepool.engine.config import PlannerSection
from framepool.engine.control import StreamConfig
from framepool.engine.errors import CapacityError
from framepool.engine.planning.plan import Demand
from framepool.engine.scheduling.events import ServiceClass

OPTIONS = planner_options(PlannerSection())
HEADROOM = 1.25


@pytest.fixture
def machine(make_profile: Any, make_inventory: Any) -> dict[str, Any]:
    """One fast device of 20 ms and one slow of 50 ms a frame."""
    return {
        "profiles": {"m": make_profile("m", {"fast": [20_000.0], "slow": [50_000.0]})},
        "inventory": make_inventory({"fast": 1, "slow": 1}),
        "options": OPTIONS,
        "headroom": HEADROOM,
    }


def test_streams_of_a_model_and_slo_are_one_demand() -> None:
    wishes = [Wish("m", 100, 10), Wish("k", 100, 1), Wish("m", 100, 5), Wish("m", 200, 2)]
    assert demands_of(wishes, 2.0) == (Demand("k", 100, 2), Demand("m", 100, 30), Demand("m", 200, 4))


def test_an_offline_stream_takes_what_is_left() -> None:
    config = StreamConfig("s", "f.mp4", "m", 100.0, 25.0, service_class=ServiceClass.OFFLINE)
    assert Wish.of(config).rate_fps == OFFLINE_RATE_FPS
    assert Wish.of(config).slo_ms >= 60_000


def test_what_fits_is_admitted(machine: dict[str, Any]) -> None:
    admit(existing=[], wanted=Wish("m", 250, 10), **machine)
    admit(existing=[Wish("m", 250, 10)] * 3, wanted=Wish("m", 250, 10), **machine)


def test_too_many_frames_are_refused_with_the_rate_that_fits(machine: dict[str, Any]) -> None:
    existing = [Wish("m", 250, 10)] * 3
    with pytest.raises(
        CapacityError, match=r"target_fps: 100 frames per second of model 'm'.*what would fit"
    ) as raised:
        admit(existing=existing, wanted=Wish("m", 250, 100), **machine)
    assert raised.value.field == "target_fps"
    best = raised.value.best_fps
    assert best is not None
    assert 10 < best < 100
    admit(existing=existing, wanted=Wish("m", 250, best), **machine)
    with pytest.raises(CapacityError):
        admit(existing=existing, wanted=Wish("m", 250, best * 1.1), **machine)


def test_an_slo_below_the_fastest_is_refused_with_the_one_that_fits(machine: dict[str, Any]) -> None:
    with pytest.raises(
        CapacityError, match=r"slo_ms: 10 ms is below what model 'm' needs.*the fastest here takes"
    ) as raised:
        admit(existing=[], wanted=Wish("m", 10, 5), **machine)
    assert raised.value.field == "slo_ms"
    best = raised.value.best_slo_ms
    assert best is not None
    assert 20 / 0.8 <= best < 40
    admit(existing=[], wanted=Wish("m", best, 5), **machine)


def test_a_machine_that_is_full_says_so(machine: dict[str, Any]) -> None:
    full = [Wish("m", 40, 40)]
    admit(existing=[], wanted=full[0], **machine)
    with pytest.raises(CapacityError) as raised:
        admit(existing=full, wanted=Wish("m", 40, 30), **machine)
    assert raised.value.best_fps is None or raised.value.best_fps < 30


@given(st.lists(st.tuples(st.sampled_from("mk"), st.sampled_from([50.0, 100.0]), st.floats(0.1, 30)), max_size=8))
def test_no_stream_s_frames_are_forgotten(streams: list[tuple[str, float, float]]) -> None:
    demands = demands_of([Wish(*stream) for stream in streams], HEADROOM)
    assert sum(d.rate_fps for d in demands) == pytest.approx(HEADROOM * sum(rate for _, _, rate in streams))
    assert len({(d.model, d.slo_ms) for d in demands}) == len(demands)
