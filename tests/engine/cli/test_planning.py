"""`framepool plan --cluster` and `framepool simulate`: without any engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_rig import run_cli

from framepool.engine.planning.formats import profile_to_json

CLUSTER = """
[[classes]]
name = "fast"
count = 2

[[classes]]
name = "slow"
count = 6

[[demands]]
model = "m"
slo_ms = 60
rate_fps = 10
"""


@pytest.fixture
def files(tmp_path: Path, make_profile: Any) -> Path:
    profile = make_profile("m", {"fast": [10_000.0, 10_000.0], "slow": [30_000.0, 60_000.0]})
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "m.json").write_text(profile_to_json(profile))
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    return tmp_path


def planned(files: Path, *more: str) -> Any:
    return run_cli("plan", "--cluster", str(files / "cluster.toml"), "--profiles", str(files / "profiles"), *more)


def test_a_plan_shows_what_fits_and_what_one_more_buys(files: Path) -> None:
    result = planned(files, "--margin", "0", "--out", str(files / "plan.json"))
    assert result.exit_code == 0, result.output
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["CLASS", "DEVICES", "IN", "USE", "UTILISATION", "ONE", "MORE", "BUYS", "BINDING"] in words
    fast = next(line for line in words if line[:2] == ["fast", "2"])
    assert fast[-1] == "yes"
    assert "cutting models wins +" in result.stdout
    whole = planned(files, "--margin", "0", "--policy", "np")
    assert "serves 11.76 times what is asked" in whole.stdout  # batches of two: 17 ms a frame
    value = json.loads((files / "plan.json").read_text())
    assert value["plan"]["objective"] > 14


def test_demands_and_slo_may_be_given_on_the_command_line(files: Path) -> None:
    result = planned(files, "--demand", "m=20fps@100ms", "--slo", "200ms", "--json")
    report = json.loads(result.stdout)
    assert report["plan"]["demands"] == [{"model": "m", "slo_ms": 200.0, "rate_fps": 20.0}]
    assert planned(files, "--demand", "m=20").exit_code == 2
    missing = planned(files, "--demand", "other=20fps@100ms")
    assert missing.exit_code == 2
    assert "no profile of model 'other'" in " ".join(missing.stderr.split())


def test_an_slo_that_nothing_meets_is_refused(files: Path) -> None:
    result = planned(files, "--slo", "5ms")
    assert result.exit_code == 1
    assert "m" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arrivals", ["poisson", "gamma:2", "cameras:5fps"])
def test_a_plan_is_tried_at_a_load(files: Path, arrivals: str) -> None:
    planned(files, "--margin", "0.3", "--out", str(files / "plan.json"))
    low = run_cli("simulate", "--plan", str(files / "plan.json"), "--arrivals", arrivals, "--load", "0.3", "--json")
    assert low.exit_code == 0, low.output
    easy = json.loads(low.stdout)["models"][0]
    assert easy["attainment"] > 0.9
    high = run_cli("simulate", "--plan", str(files / "plan.json"), "--arrivals", arrivals, "--load", "3", "--json")
    hard = json.loads(high.stdout)
    assert hard["models"][0]["attainment"] < 0.6
    assert hard["models"][0]["goodput_fps"] > easy["goodput_fps"]
    assert max(hard["utilisation"].values()) > 0.7


def test_a_trace_is_played_and_a_wrong_one_is_named(files: Path) -> None:
    planned(files, "--margin", "0.3", "--out", str(files / "plan.json"))
    trace = files / "trace.csv"
    trace.write_text("time_s,what\n" + "".join(f"{i * 0.02},x\n" for i in range(500)))
    result = run_cli("simulate", "--plan", str(files / "plan.json"), "--arrivals", str(trace), "--load", "0.5")
    assert result.exit_code == 0, result.output
    assert "100%" in result.stdout
    trace.write_text("0.1\n0.2\nnoon\n")
    wrong = run_cli("simulate", "--plan", str(files / "plan.json"), "--arrivals", str(trace))
    assert wrong.exit_code == 2
    assert "line 3: 'noon' is no number" in " ".join(wrong.stderr.split())
    unknown = run_cli("simulate", "--plan", str(files / "plan.json"), "--arrivals", "pareto")
    assert unknown.exit_code == 2
    assert "'pareto' are unknown" in " ".join(unknown.stderr.split())


def test_spare_devices_are_left_out_and_more_arrives_than_is_planned_for_margins(files: Path) -> None:
    whole = json.loads(planned(files, "--margin", "0", "--json").stdout)
    spared = json.loads(planned(files, "--margin", "0", "--spare", "1", "--json").stdout)
    assert [c["count"] for c in spared["classes"]] == [1, 5]
    assert spared["plan"]["objective"] < whole["plan"]["objective"]
    none_left = planned(files, "--spare", "6")
    assert none_left.exit_code == 1
    assert "within 60 ms" in none_left.stderr


def test_a_plan_for_arrivals_carries_them(files: Path) -> None:
    made = planned(files, "--arrivals", "poisson", "--out", str(files / "plan.json"), "--json")
    assert made.exit_code == 0, made.output
    report = json.loads(made.stdout)
    capacity = sum(p["capacity_fps"] for p in report["plan"]["pipelines"])
    assert 0 < report["plan"]["objective"] * 10 < capacity  # what queueing leaves of it
    tried = run_cli("simulate", "--plan", str(files / "plan.json"), "--load", "0.9", "--seconds", "60", "--json")
    assert json.loads(tried.stdout)["models"][0]["attainment"] >= 0.97
    assert planned(files, "--arrivals", "pareto").exit_code == 2
