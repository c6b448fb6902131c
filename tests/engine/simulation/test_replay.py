"""Event logs: written as JSON lines, read back the same, and replayed to the same commands."""

from __future__ import annotations

import itertools

import pytest

from framepool.engine.scheduling.codec import (
    LogFormatError,
    decode_command,
    decode_event,
    encode_command,
    encode_event,
)
from framepool.engine.scheduling.commands import Drop
from framepool.engine.scheduling.events import (
    DropReason,
    Frame,
    FrameArrived,
    RefusalReason,
    RoomWanted,
    ServiceClass,
    StageFailed,
    StageFinished,
    StageRefused,
    StreamRemoved,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.simulation.arrivals import Source, poisson
from framepool.engine.simulation.handmade import StageSketch, single
from framepool.engine.simulation.replay import decode_entry, encode_entry, encode_header, replay, replay_log
from framepool.engine.simulation.service import LognormalJitter

MS = 1_000_000
PLAN = single([StageSketch(2, 7.0, out_ms=0.3, linked=True), StageSketch(1, 3.0, linked=True)], batch=2)
EVENTS = (
    FrameArrived(Frame(1, 2, "m", 3, 1 << 62, ServiceClass.OFFLINE)),
    RoomWanted(3),
    StreamRemoved(4),
    StageFinished(1, 0, "p/0/0", 5, 6, (7, 8)),
    StageRefused(1, 0, "p/0/0", RefusalReason.NO_INPUT),
    StageFailed(1, 0, "p/0/0", 'bad "tensor" ☃'),
    WorkerUp("w"),
    WorkerLost("w"),
    PLAN,
    Tick(),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_the_log(event):
    line = encode_event(event)
    assert b"\n" not in line
    assert decode_event(line) == event


@pytest.fixture
def recorded(make_simulation, policy):
    """A run with jitter and a lost worker: policy, and what was told and answered."""
    trace: list = []
    simulation = make_simulation(policy, PLAN, trace=trace, service=LognormalJitter(0.3))
    source = Source(0, "m", 60 * MS)
    script = [(200 * MS, WorkerLost("p/0/1")), (400 * MS, WorkerUp("p/0/1")), (700 * MS, StreamRemoved(0))]
    simulation.run(poisson(source, 250, itertools.count(), seed=2, until_ns=1_000 * MS), script)
    return policy, trace


def test_commands_survive_the_log(recorded):
    _, trace = recorded
    commands = [command for _, _, told in trace for command in told]
    assert len({type(command) for command in commands}) == 4
    assert [decode_command(encode_command(command)) for command in commands] == commands


def test_a_recorded_run_replays_to_the_same_commands(recorded):
    policy, trace = recorded
    lines = [encode_header(policy, SchedulerOptions()), *(encode_entry(*entry) for entry in trace)]
    assert replay_log(lines) is None


def test_a_replay_that_differs_says_where(recorded):
    policy, trace = recorded
    entries = [decode_entry(encode_entry(*entry)) for entry in trace]
    at = next(index for index, entry in enumerate(entries) if entry.commands and index > 100)
    forged = type(entries[at])(entries[at].now_ns, entries[at].event, (Drop(1, DropReason.ERROR),))
    mismatch = replay(make_scheduler(policy), [*entries[:at], forged, *entries[at + 1 :]])
    assert mismatch is not None
    assert (mismatch.index, mismatch.replayed) == (at, entries[at].commands)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"is": "Nothing"}', b'{"is": "RoomWanted"}', b'{"is":"PlanActivated"}']
)
def test_a_broken_line_is_an_error_that_says_so(line):
    with pytest.raises(LogFormatError, match="log"):
        decode_event(line)


def test_an_empty_log_and_a_broken_header_are_errors():
    with pytest.raises(LogFormatError, match="empty"):
        replay_log([])
    with pytest.raises(LogFormatError, match="header"):
        replay_log([b"{}"])
    with pytest.raises(LogFormatError, match="line"):
        replay_log([encode_header("ppipe", SchedulerOptions()), b"{}"])
