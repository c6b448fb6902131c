"""Slots of one stream: each picture is published or dropped once, none lies where another does."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from framepool.streams.port import SlotPort
from framepool.streams.reports import FrameNotice, StreamReport

NOTICE = FrameNotice(1, 0, -1, 0, 0, 0, 0, 2, 2, ())


class Board:
    """What is in the slots now; a slot that is written while it is published is a fault."""

    def __init__(self) -> None:
        self.memory = {slot: np.zeros((1, 1, 3), np.uint8) for slot in range(4)}
        self.published: dict[int, int] = {}
        self.seen: list[int] = []
        self.dropped_: list[int] = []
        self.rooms = 0

    def buffer(self, stream_id: int, slot: int) -> NDArray[np.uint8]:
        assert slot not in self.published, "a slot is written that is still read"
        return self.memory[slot]

    def frame(self, notice: FrameNotice) -> None:
        assert self.memory[notice.slot][0, 0, 0] == notice.seq % 251
        self.published[notice.slot] = notice.seq
        self.seen.append(notice.seq)

    def dropped(self, stream_id: int, seq: int, capture_ns: int, reason: str) -> None:
        assert reason == "overload"
        self.dropped_.append(seq)

    def room_wanted(self, stream_id: int) -> None:
        self.rooms += 1

    def state(self, report: StreamReport) -> None: ...

    def ended(self, stream_id: int) -> None: ...


def deliver(port: SlotPort, seq: int) -> None:
    out = port.take(0.0)
    assert out is not None
    out[:] = seq % 251
    port.deliver(replace(NOTICE, seq=seq), out)


@settings(max_examples=200)
@given(st.lists(st.one_of(st.just("deliver"), st.integers(0, 3)), max_size=60))
def test_every_picture_ends_once_and_the_newest_waits(steps: list[str | int]) -> None:
    board = Board()
    port = SlotPort(1, board, (1, 1, 3), waits=False)
    granted: set[int] = set()
    seq = 0
    for step in steps:
        if step == "deliver":
            deliver(port, seq)
            seq += 1
        elif step in board.published:
            del board.published[step]  # its frame ended: the slot comes back
            port.grant([step])
        elif step not in granted:
            granted.add(int(step))
            port.grant([int(step)])
        ended = board.seen + board.dropped_
        assert len(set(ended)) == len(ended)
        waiting = set(range(seq)) - set(ended)
        assert waiting <= {seq - 1}
        assert board.seen == sorted(board.seen)
        assert not waiting or len(board.published) == len(granted)
    port.flush(0.0)
    assert sorted(board.seen + board.dropped_) == list(range(seq))


def test_a_closed_port_says_nothing_more() -> None:
    board = Board()
    port = SlotPort(1, board, (1, 1, 3), waits=False)
    deliver(port, 0)
    port.close()
    port.grant([0])
    assert port.take(0.0) is None
    port.deliver(replace(NOTICE, seq=1), np.zeros((1, 1, 3), np.uint8))
    assert (board.seen, board.dropped_) == ([], [])


def test_offline_waits_for_a_slot_and_is_let_go_when_closed() -> None:
    board = Board()
    port = SlotPort(1, board, (1, 1, 3), waits=True)
    assert port.take(0.01) is None
    threading.Timer(0.05, port.grant, [[2]]).start()
    assert port.take(5.0) is board.memory[2]
    port.deliver(replace(NOTICE, seq=0), board.memory[2])
    assert board.seen == [0]
    begin_s = time.monotonic()
    threading.Timer(0.05, port.close).start()
    assert port.take(5.0) is None
    assert time.monotonic() - begin_s < 4


def test_the_last_picture_gets_a_last_chance() -> None:
    board = Board()
    port = SlotPort(1, board, (1, 1, 3), waits=False)
    deliver(port, 0)
    threading.Timer(0.05, port.grant, [[1]]).start()
    port.flush(5.0)
    assert (board.seen, board.dropped_) == ([0], [])
