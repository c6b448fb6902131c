"""`framepool detections`."""

from __future__ import annotations

import json
import time

import pytest
from cli_rig import Run
from fake_control import FakeControl, frame


def test_query_prints_a_line_a_detection(run: Run, control: FakeControl) -> None:
    control.stored = [frame(1, "gate", "person", "car"), frame(2, "yard")]
    lines = run("detections", "query", "--stream", "gate").stdout.splitlines()
    assert lines[0].split() == ["TIME", "STREAM", "FRAME", "CLASS", "SCORE", "X1", "Y1", "X2", "Y2"]
    assert [line.split()[2:] for line in lines[1:]] == [
        ["gate", "0", "person", "0.75", "1", "2", "30", "40"],
        ["gate", "0", "car", "0.75", "1", "2", "30", "40"],
    ]
    assert lines[1].startswith("2023-11-14 22:13:20.223Z")


def test_query_asks_for_what_was_said(run: Run, control: FakeControl) -> None:
    before_ns = time.time_ns()
    result = run(
        "detections", "query", "--stream", "a", "--stream", "b", "--class", "person", "--min-score", "0.5",
        "--since", "5m", "--until", "2030-01-02T03:04:05Z",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    asked = control.queries[0]
    assert (asked.streams, asked.labels, asked.min_score) == (("a", "b"), ("person",), 0.5)
    assert asked.start_unix_ns is not None
    assert 0 <= asked.start_unix_ns - (before_ns - 300 * 10**9) < 60 * 10**9
    assert asked.end_unix_ns == 1893553445 * 10**9


def test_query_pages_through_everything_and_says_where_it_stopped(run: Run, control: FakeControl) -> None:
    control.stored = [frame(n) for n in range(1, 2502)]
    everything = run("detections", "query", "--limit", "0", "--json")
    assert [item["cursor"] for item in json.loads(everything.stdout)] == list(range(1, 2502))
    some = run("detections", "query", "--limit", "3", "--json")
    assert [item["cursor"] for item in json.loads(some.stdout)] == [1, 2, 3]
    assert some.stderr == "there are more than 3 frames; see --limit and --since\n"
    assert run("detections", "query", "--limit", "2501").stderr == ""


def test_a_wrong_time_is_a_usage_error(run: Run) -> None:
    result = run("detections", "query", "--since", "yesterday")
    assert result.exit_code == 2
    assert "'yesterday' is no time" in " ".join(result.stderr.split())


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_prints_what_comes_and_resumes(run: Run, control: FakeControl, as_json: bool) -> None:
    control.stored = [frame(n) for n in range(1, 6)]
    flags = ["--json"] if as_json else []
    result = run("detections", "watch", "--resume", "2", "--count", "3", *flags)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    if as_json:
        assert [json.loads(line)["cursor"] for line in lines] == [3, 4, 5]
    else:
        assert lines[0] == "2023-11-14 22:13:20.423Z  gate  41ms  person 0.75 [1 2 30 40]"


def test_a_watcher_is_told_what_it_missed(run: Run, control: FakeControl) -> None:
    control.subscription_capacity = 2
    control.stored = [frame(n) for n in range(1, 6)]
    result = run("detections", "watch", "--resume", "0", "--count", "2", "--json")
    assert [json.loads(line)["cursor"] for line in result.stdout.splitlines()] == [4, 5]
    assert result.stderr == "3 frames were skipped: this watcher was too slow\n"
