"""`framepool streams`: what is asked of the engine, what is printed, and how trouble ends the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_rig import Run
from fake_control import FakeControl, model_info

from framepool.engine.control import StreamChanges, StreamState
from framepool.engine.errors import CapacityError
from framepool.engine.scheduling.events import ServiceClass

ADD = ("streams", "add", "rtsp://cam/x", "--name", "gate", "--slo", "150ms", "--fps", "10", "--model", "nanodet")


def test_add_registers_what_was_asked_and_says_how_it_stands(run: Run, control: FakeControl) -> None:
    result = run(*ADD, "--class", "person", "--class", "bicycle", "--min-score", "0.5", "--metadata", "floor=2")
    assert result.exit_code == 0, result.output
    assert result.stdout == "gate: running, 768x576 h264, 10 fps, SLO 150ms\n"
    config = control.configs[0]
    assert (config.name, config.source, config.model) == ("gate", "rtsp://cam/x", "nanodet")
    assert (config.slo_ms, config.target_fps, config.min_score) == (150.0, 10.0, 0.5)
    assert (config.labels, dict(config.metadata)) == (("person", "bicycle"), {"floor": "2"})
    assert (config.service_class, config.loop, config.enabled) == (ServiceClass.LIVE, False, True)


def test_flags_reach_the_engine(run: Run, control: FakeControl) -> None:
    assert run(*ADD, "--offline", "--loop", "--disabled").exit_code == 0
    config = control.configs[0]
    assert (config.service_class, config.loop, config.enabled) == (ServiceClass.OFFLINE, True, False)


def test_f6_a_password_in_the_url_travels_apart_from_it(run: Run, control: FakeControl) -> None:
    result = run("streams", "add", "rtsp://viewer:s3cret@cam/x", *ADD[3:])
    config = control.configs[0]
    assert (config.source, config.username, config.password) == ("rtsp://cam/x", "viewer", "s3cret")
    assert "s3cret" not in result.output


def test_a_password_comes_from_a_file_a_prompt_or_the_environment(
    run: Run, control: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pw").write_text("from-file\nignored\n")
    assert run(*ADD, "--username", "v", "--password-file", str(tmp_path / "pw")).exit_code == 0
    asked = run(*ADD[:4], "b", *ADD[5:], "--ask-password", input="typed\n")
    assert asked.exit_code == 0
    assert "typed" not in asked.output
    monkeypatch.setenv("FRAMEPOOL_STREAM_PASSWORD", "from-env")
    assert run(*ADD[:4], "c", *ADD[5:]).exit_code == 0
    assert [config.password for config in control.configs] == ["from-file", "typed", "from-env"]


def test_a_file_is_named_by_its_full_path(
    run: Run, control: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has another working directory than whoever adds the stream."""
    (tmp_path / "clip.mp4").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert run("streams", "add", "clip.mp4", *ADD[3:]).exit_code == 0
    assert control.configs[0].source == str(tmp_path / "clip.mp4")


def test_a_source_in_trouble_says_its_cause(run: Run, control: FakeControl) -> None:
    control.first_state = StreamState.RECONNECTING
    control.first_error = ("source rtsp://cam/x: nobody listens there", "refused")
    assert run(*ADD).stdout == "gate: reconnecting: source rtsp://cam/x: nobody listens there (refused)\n"


def test_a_stream_that_goes_on_connecting_is_waited_for_only_so_long(run: Run, control: FakeControl) -> None:
    control.first_state = StreamState.CONNECTING
    result = run(*ADD, "--wait", "300ms")
    assert result.exit_code == 0
    assert result.stdout.startswith("gate: connecting")
    assert control.calls.count("get_stream") >= 1


def test_a_model_that_must_be_measured_first_is_said_to_be(run: Run, control: FakeControl) -> None:
    control.models["nanodet"] = model_info(latency_ms={})
    assert "nanodet is measured on these devices first" in run(*ADD).stderr
    control.models["nanodet"] = model_info()
    assert run(*ADD[:4], "other", *ADD[5:]).stderr == ""


def test_what_does_not_fit_is_refused_with_what_would(run: Run, control: FakeControl) -> None:
    control.raises["register_stream"] = CapacityError("too much", field="target_fps", best_slo_ms=80.0, best_fps=12.5)
    result = run(*ADD)
    assert result.exit_code == 1
    assert result.stderr == "framepool: too much (would fit: --slo 80ms or --fps 12.5)\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slo", "150"), "write a number and its unit"),
        (("--slo", "soon"), "write a number and its unit"),
        (("--fps", "many"), "--fps"),
        (("--metadata", "nonsense"), "'nonsense' is not key=value"),
        (("--password-file", "/nonexistent/pw"), "/nonexistent/pw can't be read"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    run: Run, control: FakeControl, arguments: tuple[str, str], words: str
) -> None:
    result = run(*ADD, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert "register_stream" not in control.calls


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--slo", "0"), "slo_ms"),
        (("--fps", "0"), "target_fps"),
        (("--fps", "-1"), "target_fps"),
        (("--fps", "1e9"), "target_fps"),
        (("--fps", "nan"), "target_fps"),
        (("--name", "a/b"), "name"),
        (("--name", "x" * 10_000), "name"),
        (("--min-score", "2"), "min_score"),
    ],
)
def test_a_value_the_engine_refuses_names_its_field(
    run: Run, control: FakeControl, arguments: tuple[str, str], field: str
) -> None:
    result = run(*ADD, *arguments)
    assert result.exit_code == 1
    assert field.split("_")[0] in result.stderr
    assert result.stderr.startswith("framepool: ")
    assert len(result.stderr) < 1000
    assert "register_stream" not in control.calls


def test_list_get_and_rm(run: Run, control: FakeControl) -> None:
    assert run("streams", "list").stdout == "no streams; add one with `framepool streams add`\n"
    run(*ADD)
    lines = run("streams", "list").stdout.splitlines()
    assert lines[0].split()[:4] == ["NAME", "STATE", "MODEL", "SLO"]
    assert lines[1].split() == ["gate", "running", "nanodet", "150ms", "10", "66.6%", "10", "6", "2", "rtsp://cam/x"]
    got = run("streams", "get", "gate").stdout
    assert "completed      7 (6 in time)\n" in got
    assert "dropped        2 (2 stale)\n" in got
    assert run("streams", "rm", "gate").stdout == "gate: removed\n"
    gone = run("streams", "get", "gate")
    assert (gone.exit_code, gone.stderr) == (1, "framepool: there is no stream gate\n")


def test_json_holds_counters_and_no_credentials(run: Run) -> None:
    run(*ADD, "--username", "viewer")
    found = json.loads(run("streams", "list", "--json").stdout)
    assert found[0]["counters"]["ingested"] == 10
    assert found[0]["dropped"] == 2
    assert found[0]["attainment"] == pytest.approx(6 / 9)
    assert "username" not in found[0]["config"]
    assert "password" not in found[0]["config"]
    assert json.loads(run("streams", "get", "gate", "--json").stdout) == found[0]


def test_update_changes_only_what_is_named(run: Run, control: FakeControl) -> None:
    run(*ADD)
    result = run("streams", "update", "gate", "--slo", "300ms", "--disable")
    assert result.exit_code == 0, result.output
    assert control.changes == [StreamChanges(slo_ms=300.0, enabled=False)]
    run("streams", "update", "gate", "--all-classes")
    assert control.changes[-1] == StreamChanges(labels=())
    run("streams", "update", "gate", "--source", "rtsp://u:p@cam2/y")
    assert control.changes[-1] == StreamChanges(source="rtsp://cam2/y", username="u", password="p")
    assert run("streams", "update", "gate").exit_code == 2
    assert run("streams", "update", "gate", "--class", "x", "--all-classes").exit_code == 2
