"""Placement: complete, one worker a virtual device, and as still as the plan allows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.planning.checker import check_placement
from framepool.engine.planning.errors import PlacementError
from framepool.engine.planning.placement import place
from framepool.engine.planning.plan import Pipeline, Plan, StagePlan
from framepool.engine.planning.planner import Sharing


def _pipeline(name: str, *stages: tuple[str, int, int], model: str | None = None) -> Pipeline:
    """`stages` are (class, share, devices), one block each."""
    plans = tuple(StagePlan(i, i, i + 1, c, share, n, (1000.0,), 1, 1) for i, (c, share, n) in enumerate(stages))
    return Pipeline(name, model or name, 1, plans, 1.0, 1.0, 1000.0, 100.0)


def _plan(*pipelines: Pipeline) -> Plan:
    return Plan(pipelines, (), 1.0, 1.0, 0.0, 0.0)


def _seats(placed) -> dict[tuple[str, int], set[str]]:
    seats: dict[tuple[str, int], set[str]] = {}
    for worker in placed.workers:
        seats.setdefault((worker.pipeline_id, worker.stage_index), set()).add(worker.device.id)
    return seats


def test_workers_are_listed_by_pipeline_stage_and_device(make_inventory) -> None:
    inventory = make_inventory({"a": 2, "b": 2}, shares=(1, 2))
    placed = place(_plan(_pipeline("x", ("a", 1, 1), ("b", 2, 2)), _pipeline("y", ("a", 1, 1))), inventory)
    assert [(w.pipeline_id, w.stage_index, w.device.id) for w in placed.workers] == [
        ("x", 0, "a-0"),
        ("x", 1, "b-0/1of2"),
        ("x", 1, "b-0/2of2"),
        ("y", 0, "a-1"),
    ]


def test_what_stays_in_the_plan_stays_on_its_device(make_inventory) -> None:
    inventory = make_inventory({"a": 4}, shares=(1, 2))
    first = place(
        _plan(_pipeline("x", ("a", 1, 1)), _pipeline("y", ("a", 2, 2)), _pipeline("z", ("a", 1, 2))), inventory
    )
    second = place(
        _plan(_pipeline("w", ("a", 1, 1)), _pipeline("y", ("a", 2, 2)), _pipeline("z", ("a", 1, 2))), inventory, first
    )
    before, after = _seats(first), _seats(second)
    assert after["y", 0] == before["y", 0]
    assert after["z", 0] == before["z", 0]
    assert after["w", 0] == before["x", 0]


def test_growing_and_shrinking_a_pool_moves_nobody(make_inventory) -> None:
    inventory = make_inventory({"a": 4}, shares=(1, 4))
    small = place(_plan(_pipeline("x", ("a", 4, 3)), _pipeline("y", ("a", 1, 1))), inventory)
    large = place(_plan(_pipeline("x", ("a", 4, 6)), _pipeline("y", ("a", 1, 1))), inventory, small)
    assert _seats(small)["x", 0] < _seats(large)["x", 0]
    assert _seats(small)["y", 0] == _seats(large)["y", 0]
    back = place(_plan(_pipeline("x", ("a", 4, 3)), _pipeline("y", ("a", 1, 1))), inventory, large)
    assert _seats(back)["x", 0] < _seats(large)["x", 0]


def test_a_spare_device_keeps_its_split_rather_than_move_a_worker(make_inventory) -> None:
    inventory = make_inventory({"a": 2}, shares=(1, 2))
    full = place(_plan(_pipeline("x", ("a", 2, 2)), _pipeline("y", ("a", 2, 2))), inventory)
    assert {d.split("/")[0] for d in _seats(full)["x", 0]} == {"a-0"}
    less = place(_plan(_pipeline("x", ("a", 2, 1)), _pipeline("y", ("a", 2, 1))), inventory, full)
    for key, seats in _seats(less).items():
        assert seats <= _seats(full)[key]


def test_the_same_blocks_are_preferred_where_the_pipeline_is_new(make_inventory) -> None:
    inventory = make_inventory({"a": 3})
    first = place(
        _plan(_pipeline("m.b1", ("a", 1, 1), model="m"), _pipeline("k.b1", ("a", 1, 1), model="k")), inventory
    )
    changed = _plan(_pipeline("k.b2", ("a", 1, 1), model="k"), _pipeline("m.b2", ("a", 1, 1), model="m"))
    second = place(changed, inventory, first)
    assert _seats(second)["m.b2", 0] == _seats(first)["m.b1", 0]
    assert _seats(second)["k.b2", 0] == _seats(first)["k.b1", 0]


def test_a_plan_for_more_devices_than_there_are_is_refused(make_inventory) -> None:
    with pytest.raises(PlacementError, match="needs 3 devices of class 'a' and there are 2"):
        place(_plan(_pipeline("x", ("a", 1, 3))), make_inventory({"a": 2}))


def test_a_lost_device_keeps_the_others_in_place(make_inventory) -> None:
    inventory = make_inventory({"a": 3})
    first = place(_plan(_pipeline("x", ("a", 1, 1)), _pipeline("y", ("a", 1, 1))), inventory)
    left = replace(inventory, devices=inventory.devices[1:])
    second = place(first.plan, left, first)
    assert check_placement(second, left, Sharing.DEVICE) == ()
    assert _seats(second)["y", 0] == _seats(first)["y", 0]


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=3
    )
)
def test_pool_sharing_packs_whatever_sums_to_whole_devices(make_inventory, counts) -> None:
    pipelines, devices = [], 0
    for model, pool in enumerate(counts):
        devices += math.ceil(sum(n / share for share, n in enumerate(pool, start=1)) - 1e-9)
        for share, n in enumerate(pool, start=1):
            if n:
                pipelines.append(_pipeline(f"{model}.{share}", ("a", share, n), model=str(model)))
    inventory = make_inventory({"a": devices}, shares=(1, 2, 3, 4))
    placed = place(_plan(*pipelines), inventory)
    assert check_placement(placed, inventory, Sharing.POOL) == ()
    again = place(_plan(*pipelines), inventory, placed)
    assert check_placement(again, inventory, Sharing.POOL) == ()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_change_of_plan_is_placed_and_an_unchanged_plan_moves_nobody(make_inventory, data) -> None:
    inventory = make_inventory({"a": 4}, shares=(1, 2, 4))
    previous = None
    for _ in range(3):
        left, pipelines = 4, []
        for share in data.draw(st.permutations([1, 2, 4])):
            n = data.draw(st.integers(0, left * share))
            left -= math.ceil(n / share)
            while n:
                part = data.draw(st.integers(1, n))
                name = data.draw(st.sampled_from("uvwxyz"))
                if all(p.id != f"{name}{share}" for p in pipelines):
                    pipelines.append(_pipeline(f"{name}{share}", ("a", share, part)))
                n -= part
        placed = place(_plan(*pipelines), inventory, previous)
        assert check_placement(placed, inventory, Sharing.DEVICE) == ()
        assert place(placed.plan, inventory, placed) == placed
        previous = placed
