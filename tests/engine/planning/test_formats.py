"""Profiles, clusters and plans survive being written; what is wrong is named by file and key."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from framepool.engine.planning.errors import PlanningError
from framepool.engine.planning.formats import (
    Cluster,
    cluster_from_toml,
    plan_from_json,
    plan_to_json,
    profile_from_json,
    profile_to_json,
)
from framepool.engine.planning.inventory import DeviceClass
from framepool.engine.planning.plan import Demand
from framepool.engine.planning.planner import PlannerOptions, solve

TOML = """
[[classes]]
name = "L4"
count = 2
link_gbps = 10
devices_per_link = 4
shares = [1, 2]

[[classes]]
name = "cpu"
count = 8

[[demands]]
model = "m"
slo_ms = 150
rate_fps = 30
"""


def test_a_profile_survives(make_profile: Any) -> None:
    profile = make_profile("m", {"L4": [3000.0, 5000.5], "cpu": [9000.0, 8000.25]}, shares=(1, 2))
    back = profile_from_json(profile_to_json(profile), "m.json")
    assert (back.model, back.model_digest, back.n_blocks, back.edge_bytes) == ("m", "m", 2, profile.edge_bytes)
    for one, other in zip(back.blocks, profile.blocks, strict=True):
        assert (one.device_class, one.share, one.batch_sizes) == (other.device_class, other.share, other.batch_sizes)
        assert np.array_equal(one.latency_us, other.latency_us)


def test_a_cluster_is_read() -> None:
    cluster = cluster_from_toml(TOML, "c.toml")
    assert cluster.classes == (DeviceClass("L4", 2, 10.0, 4, (1, 2)), DeviceClass("cpu", 8))
    assert cluster.demands == (Demand("m", 150.0, 30.0),)
    assert [device.id for device in cluster.inventory.devices][:3] == ["L4-0", "L4-1", "cpu-0"]


def test_a_plan_survives_with_its_cluster(make_profile: Any) -> None:
    profiles = {"m": make_profile("m", {"L4": [3000.0, 5000.0], "cpu": [9000.0, 8000.0]}, shares=(1, 2))}
    cluster = cluster_from_toml(TOML, "c.toml")
    plan = solve(profiles, cluster.inventory, cluster.demands, PlannerOptions())
    assert plan_from_json(plan_to_json(plan, cluster), "p.json") == (plan, cluster)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[classes]", r"c\.toml is no valid TOML"),
        ("", r"c\.toml: .*classes"),
        ("classes = []", r"c\.toml: classes is empty"),
        (
            TOML.replace("count = 2", "count = 0"),
            r"c\.toml: classes\[0\]: count and devices_per_link must be at least 1",
        ),
        (
            TOML.replace("count = 2", "count = 'two'"),
            r"c\.toml: Expected `int`, got `str` - at `\$\.classes\[0\]\.count`",
        ),
        (TOML.replace("count = 2", "cuont = 2"), r"c\.toml: .*(cuont|count)"),
        (TOML.replace('"cpu"', '"L4"'), r"c\.toml: classes\[0\]: class 'L4' is there twice"),
        (TOML.replace("link_gbps = 10", "link_gbps = 0"), r"link_gbps must be above 0, or absent"),
        (TOML.replace("[1, 2]", "[0]"), r"shares must be whole numbers from 1 on"),
        (TOML.replace("slo_ms = 150", "slo_ms = 0"), r"demands\[0\]: slo_ms and rate_fps must be above 0"),
    ],
)
def test_a_wrong_cluster_is_named_by_its_key(text: str, words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        cluster_from_toml(text, "c.toml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 9}, "format is 9; this framepool reads format 1"),
        (
            {"edge_bytes": [1, 2]},
            r"blocks\[0\]\.latency_us has shape \(2, 4\); it must have a row for each of the 1 blocks",
        ),
        ({"model": 7}, r"m\.json: Expected `str`, got `int`"),
    ],
)
def test_a_wrong_profile_is_named_by_its_key(make_profile: Any, change: dict[str, Any], words: str) -> None:
    value = json.loads(profile_to_json(make_profile("m", {"a": [3.0, 5.0]})))
    with pytest.raises(PlanningError, match=words):
        profile_from_json(json.dumps({**value, **change}), "m.json")
    value["blocks"][0]["latency_us"][0][0] = 0.0
    with pytest.raises(PlanningError, match="must be above 0 everywhere"):
        profile_from_json(json.dumps(value), "m.json")


def test_a_plan_on_classes_that_are_not_there_is_refused(make_profile: Any) -> None:
    profiles = {"m": make_profile("m", {"L4": [3000.0]})}
    cluster = Cluster((DeviceClass("L4", 1),), (Demand("m", 150.0, 30.0),))
    text = plan_to_json(solve(profiles, cluster.inventory, cluster.demands, PlannerOptions()), cluster)
    with pytest.raises(PlanningError, match=r"p\.json: pipeline .* uses class 'H100', which the cluster has not"):
        plan_from_json(text.replace('"device_class": "L4"', '"device_class": "H100"'), "p.json")
    with pytest.raises(PlanningError, match=r"p\.json is no valid JSON"):
        plan_from_json(text[:50], "p.json")
