"""PPipe's artifact: a made-up one of the same layout, and the real one where it is at hand."""

from __future__ import annotations

import csv
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from framepool.benchmarks import DATA_VARIABLE
from framepool.benchmarks.importing import import_artifact
from framepool.benchmarks.published import KINDS, PublishedData
from framepool.benchmarks.published_plans import check
from framepool.benchmarks.report import write_report
from framepool.benchmarks.scaling import POLICIES, deciding
from framepool.benchmarks.study import Row, Setting, costs, judged, summary, write
from framepool.engine.planning.formats import cluster_from_toml, plan_from_json, profile_from_json
from framepool.engine.planning.planner import PlannerOptions, Sharing, solve

ROOT = Path(__file__).parents[2]


def real_data() -> Path | None:
    """The artifact's data folder, from the environment or beside the checkout."""
    found = os.environ.get(DATA_VARIABLE) or next(
        (p for p in (ROOT.parent / "shared" / "ppipe" / "data",) if p.is_dir()), None
    )
    return Path(found) if found else None


needs_data = pytest.mark.skipif(
    real_data() is None, reason=f"PPipe's artifact is not at hand; set {DATA_VARIABLE} to its data folder"
)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Two made-up models of three blocks on 4 quick and 12 slow GPUs, with plans that anyone can check by hand."""
    data = tmp_path / "data"
    for folder in ("models/block-timing-tf32", *(f"plans/{kind}" for kind in KINDS)):
        (data / folder).mkdir(parents=True)
    (data / "plans" / "maf21").rmdir()
    for model, factor in (("one", 1.0), ("two", 1.5)):
        for gpu, slow in (("Q", 1.0), ("S", 3.0)):
            times = np.outer([2000.0, 3000.0, 5000.0], [1.0, 1.6]) * factor * slow
            np.savetxt(data / "models" / "block-timing-tf32" / f"{model}-{gpu}-1.csv", times, delimiter=",")
        cuts = data / "prepartition_mappings" / model
        cuts.mkdir(parents=True)
        (cuts / "contraction_trans-size_1.csv").write_text("1000000\n500000\n")
    for algorithm in ("bl", "dart-r", "v4"):
        parts = []
        for model, factor, devices in (("one", 1.0, 2), ("two", 1.5, 2)):
            rate = devices * 1e6 / (10_000.0 * factor)
            partition = {"dnn": model, "layers": [0, 3], "gpu": "Q", "mps": 0, "bs": 1, "num_gpu": float(devices)}
            config = {
                "dnn_name": model,
                "gpu_name_arr": ["Q", "S"],
                "num_gpu_per_server_arr": [1, 2],
                "num_mps_levels": [1, 1],
                "max_num_parts": 2,
                "est_xput": 100.0,
                "bw_gbps": 10,
            }
            parts.append(
                {"config": config, "sla": 60_000.0 * factor, "xput": rate, "pipelines": [{"partitions": [partition]}]}
            )
        name = f"one-two_0.6-0.4_Q-S_4-12_bw-gbps-10_sla-multiplier-5_{algorithm}.json"
        (data / "plans" / "maf19" / name).write_text(json.dumps(parts))
    return data


def test_the_layout_is_read(artifact: Path) -> None:
    (case,) = PublishedData(artifact).cases(("maf19",), ("v4",))
    assert case.cluster == "Q-S"
    assert [(c.name, c.count, c.devices_per_link) for c in case.inventory.classes] == [("Q", 4, 1), ("S", 12, 2)]
    assert [(d.model, d.slo_ms, d.rate_fps) for d in case.demands] == [("one", 60.0, 0.6), ("two", 90.0, 0.4)]
    assert case.planned_fps == pytest.approx({"one": 200.0, "two": 400 / 3})
    assert [p.capacity_fps for p in case.published.pipelines] == pytest.approx([200.0, 400 / 3])
    assert case.profiles["one"].edge_bytes == (0, 1_000_000, 500_000, 0)


def test_an_import_can_be_planned_and_simulated_from(artifact: Path, tmp_path: Path) -> None:
    counts = import_artifact(artifact, tmp_path / "out")
    assert (counts.profiles, counts.clusters, counts.plans) == (2, 1, 3)
    (toml,) = (tmp_path / "out" / "clusters" / "maf19").glob("*.toml")
    cluster = cluster_from_toml(toml.read_text(), str(toml))
    files = (tmp_path / "out" / "profiles").glob("*.json")
    profiles = {p.model: p for p in (profile_from_json(file.read_text(), str(file)) for file in files)}
    options = PlannerOptions(sharing=Sharing.POOL, enough=math.inf, tie_break=False, use_spare=False, slo_margin=0.4)
    assert solve(profiles, cluster.inventory, cluster.demands, options).objective > 333.3
    plans = sorted((tmp_path / "out" / "plans" / "maf19").glob("*.json"))
    plan, its_cluster = plan_from_json(plans[-1].read_text(), str(plans[-1]))
    assert its_cluster == cluster
    assert plan.objective == pytest.approx(1000 / 3)


@pytest.mark.parametrize(
    "algorithm", ["np", "ppipe", "reactive", "np-best", "dart-r-best", "ppipe-best", "framepool", "+policy"]
)
def test_a_case_is_judged(artifact: Path, algorithm: str, tmp_path: Path) -> None:
    setting = Setting("maf19", seconds=2.0, grid=0.1, algorithms=(algorithm,))
    rows = judged(artifact, setting, 0, algorithm)
    assert [row.model for row in rows] == ["one", "two"]
    if algorithm in ("np", "ppipe", "reactive", "+policy"):  # two quick GPUs each, with room for 5 services of queueing
        assert all(0.5 <= row.load_factor <= 1.0 for row in rows)
    elif algorithm != "dart-r-best":  # the slow ones come in
        assert all(row.load_factor > 1.2 for row in rows)
    write(rows, setting, tmp_path / "tables")
    kept = json.loads((tmp_path / "tables" / "study.json").read_text())
    assert [row["rate_fps"] for row in kept["rows"]] == [row.rate_fps for row in rows]
    assert len((tmp_path / "tables" / "rows.csv").read_text().splitlines()) == 3


def row(case: str, cluster: str, algorithm: str, model: str, rate: float) -> Row:
    weight = {"m": 1.0, "n": 0.5}[model]
    how = (model, "poisson", 0.0, "1", 0.4)
    return Row("maf19", case, cluster, algorithm, *how, 100.0, rate / 100, rate, rate / weight, "", 0.1, 20.0)


def test_a_summary_is_of_means_over_cases_of_means_over_models() -> None:
    rows = [
        row("c1", "A", "ppipe", "m", 100), row("c1", "A", "ppipe", "n", 50),
        row("c1", "A", "framepool", "m", 120), row("c1", "A", "framepool", "n", 100),
        row("c2", "B", "ppipe", "m", 80), row("c2", "B", "framepool", "m", 80),
    ]  # fmt: skip
    lines = {(line.cluster, line.algorithm): line for line in summary(rows)}
    assert lines["A", "framepool"].ratio == pytest.approx((1.2 + 2.0) / 2)
    assert lines["A", "ppipe"].load_factor == pytest.approx(0.75)
    assert lines["all", "framepool"].ratio == pytest.approx((1.6 + 1.0) / 2)
    assert lines["all", "framepool"].least_ratio == pytest.approx(1.0)
    assert lines["all", "ppipe"].ratio == 1.0
    assert lines["A", "framepool"].together == pytest.approx(120 / 100)  # m binds both: 50 a weight of 0.5 is 100
    assert lines["all", "framepool"].least_together == pytest.approx(1.0)


def test_costs_are_means_over_cases_by_class() -> None:
    busy = [replace(row(case, "A", "np", model, 100), utilisation=f"Q {share} S 0.5", found_s=2.0)
            for case, model, share in (("c1", "m", 0.8), ("c1", "n", 1.0), ("c2", "m", 0.6))]  # fmt: skip
    (cost,) = costs(busy)
    assert cost.throughput_fps == pytest.approx(150.0)
    assert cost.utilisation == pytest.approx({"Q": 0.8, "S": 0.5})
    assert (cost.found_s, cost.request_us) == pytest.approx((3.0, 20.0))


@needs_data
def test_every_published_objective_is_reproduced() -> None:
    assert check(PublishedData(real_data() or Path()), KINDS, None) == 0


@needs_data
def test_the_first_published_plans_are_matched_or_beaten() -> None:
    for case in PublishedData(real_data() or Path()).cases(("maf19",), ("v4",), 4):
        options = PlannerOptions(
            sharing=Sharing.POOL, enough=math.inf, tie_break=False, use_spare=False, max_batch=1024,
            slo_margin=case.slo_margin, max_stages=case.max_stages, time_limit_s=20.0,
        )  # fmt: skip
        plan = solve(case.profiles, case.inventory, case.demands, options, expected_fps=case.expected_fps)
        assert plan.objective >= case.published.objective * (1 - 1e-6)


@needs_data
def test_the_reference_simulation_is_reproduced_on_its_first_cases() -> None:
    """Mean largest load factors of four cases within 0.05 of the reference (the study does all, within 0.02)."""
    data = real_data() or Path()
    if not (data.parent / "reference_simulation.csv").exists():
        pytest.skip("reference_simulation.csv does not lie beside the artifact's data folder")
    wanted = ("maf19", "v4", "true", "poisson", "0.05", "1")
    keys = ("set", "algo", "criterion", "arrivals", "grid", "seed")
    lines = (data.parent / "reference_simulation.csv").read_text().splitlines()
    reference = {
        row["plan"]: float(row["max_load_factor"])
        for row in csv.DictReader(lines)
        if tuple(row[key] for key in keys) == wanted
    }
    setting = Setting("maf19", seconds=4.0, grid=0.05, most=1.0)
    for number, case in enumerate(PublishedData(data).cases(("maf19",), ("v4",), 4)):
        rows = judged(data, setting, number, "ppipe")
        mean = sum(r.load_factor for r in rows) / len(rows)
        assert mean == pytest.approx(reference[case.path.name], abs=0.05)


def test_a_report_holds_the_table_the_plot_and_the_command(tmp_path: Path) -> None:
    rows = [row("c1", "A", "ppipe", "m", 100), row("c1", "A", "framepool", "m", 125)]
    assert write_report(rows, Setting("maf19", algorithms=("ppipe", "framepool")), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<td>framepool<td>1<td>1.250<td>1.250<td>1.250<td>1.250" in page
    assert "framepool bench study maf19 --arrivals poisson" in page
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_every_model_is_imported_with_its_slo(artifact: Path, tmp_path: Path) -> None:
    timing = artifact / "models" / "model-profile-tf32" / "one" / "L4-1" / "1"
    timing.mkdir(parents=True)
    (timing / "one.json").write_text(json.dumps([{"computeMs": 7.0}, {"computeMs": 9.0}]))
    import_artifact(artifact, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "slos.json").read_text()) == {"one": 40.0}
    profile = profile_from_json((tmp_path / "out" / "profiles" / "two.json").read_text(), "two.json")
    assert {(b.device_class, b.share) for b in profile.blocks} == {("Q", 1), ("S", 1)}


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_are_timed_on_clusters_of_any_size(policy: str) -> None:
    rows = [deciding(policy, workers, requests=300) for workers in (100, 200)]
    assert [row.workers for row in rows] == [100, 200]
    assert all(0 < row.mean_us <= row.longest_us and 0 < row.p99_us <= row.longest_us for row in rows)
    assert all(row.events > 600 for row in rows)  # an arrival and at least one report each
