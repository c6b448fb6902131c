"""`framepool models`, `devices`, `profile`, `plan`, `stats`, `config`, and how the command ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_rig import Run
from fake_control import FakeControl, model_info

from framepool import __version__
from framepool.engine.api.errors import InternalError
from framepool.engine.errors import FailedPreconditionError


def test_add_sends_the_file_its_spec_and_its_labels(run: Run, control: FakeControl, tmp_path: Path) -> None:
    model = tmp_path / "My Model.v2.onnx"
    model.write_bytes(b"graph")
    model.with_suffix(".toml").write_text('task = "detect"\n')
    (tmp_path / "labels.txt").write_text("cat\n\ndog\n")
    result = run("models", "add", str(model), "--labels", str(tmp_path / "labels.txt"), "--head", "yolov8")
    assert result.exit_code == 0, result.output
    upload = control.uploads[0]
    assert (upload.name, upload.labels, upload.head) == ("my-model-v2", ("cat", "dog"), "yolov8")
    assert upload.spec_toml == 'task = "detect"\n'
    assert result.stdout == "my-model-v2: detect with head yolov8, 416x416, 2 classes, 7 blocks, batch 8\n"


def test_labels_may_be_written_out(run: Run, control: FakeControl, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"graph")
    assert run("models", "add", str(tmp_path / "m.onnx"), "--labels", "a, b,c").exit_code == 0
    assert control.uploads[0].labels == ("a", "b", "c")
    nothing = run("models", "add", str(tmp_path / "m.onnx"), "--labels", ",")
    assert nothing.exit_code == 2
    assert "holds no labels" in nothing.stderr


def test_a_model_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    result = run("models", "add", str(tmp_path / "nope.onnx"))
    assert result.exit_code == 1
    assert f"{tmp_path / 'nope.onnx'} can't be read" in result.stderr


def test_list_show_cuts_and_rm(run: Run, control: FakeControl) -> None:
    control.models["raw"] = model_info("raw", latency_ms={})
    listed = run("models", "list").stdout
    assert "12.5ms cpu-openvino-bf16, 40.2ms cpu-ort-fp32" in listed
    assert "not profiled" in listed
    assert "classes   person, bicycle\n" in run("models", "show", "nanodet").stdout
    cuts = run("models", "cuts", "nanodet").stdout.splitlines()
    assert cuts[1].split() == ["1", "1,384,448", "yes", "stem"]
    assert cuts[2].split() == ["2", "2,422,784", "within", "6e-05", "c3,", "c4"]
    assert run("models", "rm", "raw").stdout == "raw: removed\n"
    control.raises["remove_model"] = FailedPreconditionError("model 'nanodet' is used by stream 'gate'")
    assert run("models", "rm", "nanodet").stderr == "framepool: model 'nanodet' is used by stream 'gate'\n"


def test_export_without_torch_names_the_cure(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run("models", "export", "resnet50", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "framepool[export]" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_devices_says_what_is_emulated(run: Run) -> None:
    lines = run("devices").stdout.splitlines()
    assert lines[1].split() == ["cpu-0", "cpu-ort-fp32", "onnxruntime", "fp32", "up", "50.0%", "0", "AMD", "EPYC", "s0"]
    assert "EMULATED emulated V100" in lines[2]


def test_profile_tells_its_progress_and_then_the_latencies(run: Run, control: FakeControl) -> None:
    result = run("profile", "nanodet", "--force")
    assert result.stderr.splitlines() == [f"nanodet: {n}/3 nanodet batch {n} force=True" for n in (1, 2, 3)]
    assert result.stdout.splitlines()[1].split() == ["nanodet", "cpu-openvino-bf16", "12.50ms"]
    lines = [json.loads(line) for line in run("profile", "--json").stdout.splitlines()]
    assert lines[0] == {"model": "nanodet", "done": 1, "total": 3, "what": "nanodet batch 1 force=False"}
    assert lines[-1]["latency_ms"]["cpu-ort-fp32"] == 40.25


def test_plan_shows_stages_and_how_much_load_fits(run: Run, control: FakeControl) -> None:
    lines = run("plan").stdout.splitlines()
    assert lines[1].split() == ["nanodet/0", "0", "0-6", "cpu-ort-fp32", "cpu-0", "2", "78.5ms", "20.0/s", "25.4/s"]
    assert lines[-1] == "serves 1.25 times the load asked for (no plan more than 1.30; planned in 0.02 s)"
    assert run("plan", "--replan").exit_code == 0
    assert control.calls == ["plan", "replan"]


def test_stats_shows_attainment_and_where_latency_goes(run: Run) -> None:
    run("streams", "add", "rtsp://c/x", "--name", "gate", "--slo", "150ms", "--fps", "10", "--model", "nanodet")
    text = run("stats").stdout
    assert "10 frames, 7 completed (6 in time), 2 dropped, 1 in flight, 66.6% attained" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["gate", "running", "150ms", "99.5%", "66.6%", "9.9/10", "fps", "10", "6", "1", "2", "(2", "stale)"] in rows
    assert ["gate", "41.5/61.2", "3.0/5.0", "-", "-", "-", "-", "-"] in rows
    assert json.loads(run("stats", "--json").stdout)["totals"]["ingested"] == 10


def test_an_engine_that_is_not_there_is_exit_code_3(run: Run) -> None:
    result = run("stats", "--server", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.output


def test_a_fault_of_the_engine_is_one_line(run: Run, control: FakeControl) -> None:
    control.raises["stats"] = ZeroDivisionError("inside")
    result = run("stats")
    assert result.exit_code == 1
    assert "unexpected fault" in result.stderr
    assert "inside" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert issubclass(InternalError, Exception)


def test_config_show_says_where_each_setting_comes_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.toml").write_text("[planner]\nmax_stages = 1\n")
    monkeypatch.setenv("FRAMEPOOL_API__PORT", "1234")
    text = run("config", "show", "--config", str(tmp_path / "f.toml")).stdout
    lines = {line.split(" =")[0]: line for line in text.splitlines() if " = " in line}
    assert "f.toml" in lines["max_stages"]
    assert "FRAMEPOOL_API__PORT" in lines["port"] or "environment" in lines["port"]
    assert lines["policy"].endswith("# default")


def test_version_and_help_need_no_engine() -> None:
    version = subprocess.run(
        [sys.executable, "-m", "framepool.engine.cli", "--version"], capture_output=True, text=True, timeout=60
    )
    assert version.stdout.strip() == f"framepool {__version__}"
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "framepool.engine.cli", "--help"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 0
    loaded = {line.split("|")[-1].strip() for line in shown.stderr.splitlines() if line.startswith("import time:")}
    assert "typer" in loaded
    assert not loaded & {"grpc", "numpy", "onnxruntime", "openvino", "av", "cv2", "torch"}
