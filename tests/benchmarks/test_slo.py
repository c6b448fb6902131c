"""The SLO harness: loads as cameras, the search among noisy runs, options, reports; and one real measurement."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from framepool.benchmarks import MeasurementError
from framepool.benchmarks.slo.bare import Bare
from framepool.benchmarks.slo.offer import stream_rates
from framepool.benchmarks.slo.report import Measurement, summary, write
from framepool.benchmarks.slo.run import Cameras, Run, Window
from framepool.benchmarks.slo.search import Search, wilson
from framepool.benchmarks.slo.under_test import device_sections, own_settings
from framepool.engine.cli.app import app
from framepool.engine.config import make_config


@given(st.floats(0.5, 2000), st.floats(0.5, 60))
def test_cameras_add_up_to_the_load(load_fps: float, fps: float) -> None:
    rates = stream_rates(load_fps, fps)
    assert sum(rates) == pytest.approx(load_fps)
    assert all(0 < rate <= fps * 1.06 for rate in rates)


def test_a_load_is_whole_cameras_and_one_of_the_rest() -> None:
    assert stream_rates(25, 10) == (10, 10, 5)
    assert stream_rates(30, 10) == (10, 10, 10)
    assert stream_rates(4, 10) == (4,)
    assert stream_rates(20.2, 10) == (10.1, 10.1)


@pytest.mark.parametrize(("load_fps", "fps"), [(0, 10), (10, 0), (float("nan"), 10), (float("inf"), 10)])
def test_no_load_can_not_be_offered(load_fps: float, fps: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        stream_rates(load_fps, fps)


def test_wilson_against_known_bounds() -> None:
    low, high = wilson(81, 263, 1.96)  # the example of Newcombe (1998), Statistics in Medicine 17
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 0) == (0.0, 1.0)


@dataclass
class _Out:
    in_time: int
    ended: int
    valid: bool = True


def test_the_search_finds_the_edge_and_spends_runs_near_it() -> None:
    rng = random.Random(1)

    def run(step: int) -> _Out:
        share = 1.0 if step <= 40 else 0.985 if step <= 42 else 0.6
        return _Out(sum(rng.random() < share for _ in range(1500)), 1500)

    search = Search(run, 0.99)
    assert search.largest(30, 120) == 40
    assert len(search.runs[40]) == 3  # confirmed
    assert all(len(made) == 1 for step, made in search.runs.items() if step > 45)


def test_a_load_that_was_not_really_offered_does_not_hold() -> None:
    search = Search(lambda step: _Out(100, 100, valid=step < 7), 0.99)
    assert search.largest(20, 50) == 6


def test_nothing_holds() -> None:
    assert Search(lambda step: _Out(0, 100), 0.99).largest(5, 50) == 0


def test_a_lucky_run_is_found_out() -> None:
    calls: dict[int, int] = {}

    def run(step: int) -> _Out:
        calls[step] = calls.get(step, 0) + 1
        return _Out(1000 if step < 10 or (step == 10 and calls[step] == 1) else 900, 1000)

    assert Search(run, 0.99).largest(10, 10) == 9


def test_devices_as_options() -> None:
    sections = device_sections(["openvino-bf16@0", "onnxruntime-fp32@2-4+7", "50*emulated:openvino-bf16:x2.5"])
    assert sections[0] == {"class": "openvino-bf16", "backend": "openvino", "precision": "bf16", "cores": [0]}
    assert sections[1]["cores"] == [2, 3, 4, 7]
    assert sections[2]["class"] == "emulated-openvino-bf16-x2.5"
    assert (sections[2]["count"], sections[2]["scale"]) == (50, 2.5)
    with pytest.raises(MeasurementError, match="'tpu-int4'"):
        device_sections(["tpu-int4"])
    with pytest.raises(MeasurementError, match="cores are written"):
        device_sections(["openvino-bf16@1-"])


def test_settings_of_the_own_engine(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text('[planner]\nmax_batch = 2\n[sources]\nfile_roots = ["/srv"]\n')
    settings = own_settings(
        policy="framepool", plan="np", devices=["openvino-fp32@0"], base=base, source="/data/clips/a.mp4",
        slo_margin=0.1,
    )  # fmt: skip
    config = make_config(settings)
    assert (config.planner.max_stages, config.planner.max_batch, config.planner.slo_margin) == (1, 2, 0.1)
    assert config.planner.admit_all
    assert config.scheduler.policy == "framepool"
    assert [str(root) for root in config.sources.file_roots] == ["/srv", "/data/clips"]


def _measurement() -> Measurement:
    run = Run(60.0, 6, 10.0, offered=600, ingested=598, ended=600, in_time=597, dropped={"stale": 3})
    return Measurement(
        cameras=Cameras("nanodet", "clip.mp4", 250, 10),
        window=Window(10, 2),
        attainment=0.99,
        best_fps=60.0,
        best=(run, replace(run, in_time=596), replace(run, in_time=600)),
        runs=(run, replace(run, load_fps=80.0, refused="no room")),
        scenarios=(replace(run, scenario="kill", note="recovered after 1.0 s"),),
        bare=Bare({"a": 60.0, "b": 40.0}, decode_s=0.005, cores=2),
        policy="ppipe",
        plan="framepool",
        seed=1,
        emulated=(),
        simulated_fps=63.0,
        facts={"cpu": "x & y"},
        command="framepool bench slo",
    )


def test_the_report_says_what_was_found(tmp_path: Path) -> None:
    found = _measurement()
    assert found.goodput_fps == pytest.approx(59.7)
    assert found.best_attainment == pytest.approx((597 + 596 + 600) / 1800)
    assert found.efficiency == pytest.approx(59.7 / 80.0)  # 1 / (1/100 + 0.005/2)
    write(found, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "x &amp; y" in page
    assert "recovered after 1.0 s" in page
    kept = json.loads((tmp_path / "report.json").read_text())
    assert kept["efficiency"] == pytest.approx(59.7 / 80.0)
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [row["refused"] for row in rows] == ["", "no room", ""]
    assert rows[0]["dropped"] == "stale:3"
    assert any("0.75 of that" in line for line in summary(found))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--require", "speed=3"], "--require 'speed=3'"),
        (["--scenario", "flood"], "scenario 'flood'"),
        (["--devices", "abacus@0"], "device 'abacus@0'"),
        (["--bare", "--target", "localhost:1"], "--bare"),
    ],
)
def test_wrong_options_are_named(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "slo", *options])
    assert result.exit_code != 0
    assert said in result.output.replace("\n", " ").replace("│", "").replace("  ", " ")


def test_one_load_measured_for_real(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["bench", "slo", "--load", "4", "--fps", "2", "--slo", "2s", "--seconds", "2s", "--warm-up", "500ms",
         "--runs", "1", "--require", "goodput=1000", "--out", str(tmp_path)],
    )  # fmt: skip
    assert result.exit_code == 1
    assert "goodput" in result.output
    kept = json.loads((tmp_path / "report.json").read_text())
    run = kept["runs"][0]
    assert run["streams"] == 2
    assert 4 <= run["ingested"] <= 14
    assert 0 < run["in_time"] <= run["ended"]
    assert run["latency"]["total"]["p50_ms"] > 0
    assert run["cpu_ms_per_frame"]["stage worker"] > 0
