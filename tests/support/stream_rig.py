"""Runs streams against a sink in memory and tells what came of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framepool.streams.backoff import BackoffSettings
from framepool.streams.reader import ReaderSettings
from framepool.streams.reports import DecodeState, FrameNotice, StreamReport, StreamTask
from framepool.streams.session import SessionSettings
from framepool.streams.source_url import SourceSpec, parse_source
from framepool.streams.worker import DecoderWorker

QUICK = SessionSettings(
    ReaderSettings(open_s=2.0, read_s=2.0, probe_s=0.5),
    BackoffSettings(first_s=0.05, longest_s=0.2, auth_s=1.0),
    stall_s=0.7,
)


class Sink:
    """A `FrameSink` that keeps everything; slots come back at once unless `hold`."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self.buffers: dict[int, NDArray[np.uint8]] = {}
        self.frames: list[FrameNotice] = []
        self.pictures: list[NDArray[np.uint8]] = []
        self.drops: list[tuple[int, str]] = []
        self.reports: list[StreamReport] = []
        self.rooms = 0
        self.done = threading.Event()
        self.hold = False
        self.keep = True
        self.worker: DecoderWorker | None = None

    def buffer(self, stream_id: int, slot: int) -> NDArray[np.uint8]:
        return self.buffers.setdefault(slot, np.zeros(self.shape, np.uint8))

    def frame(self, notice: FrameNotice) -> None:
        self.frames.append(notice)
        if self.keep:
            self.pictures.append(self.buffers[notice.slot].copy())
        if not self.hold and self.worker is not None:
            threading.Thread(target=self.worker.grant, args=(notice.stream_id, [notice.slot])).start()

    def dropped(self, stream_id: int, seq: int, capture_ns: int, reason: str) -> None:
        self.drops.append((seq, reason))

    def room_wanted(self, stream_id: int) -> None:
        self.rooms += 1

    def state(self, report: StreamReport) -> None:
        self.reports.append(report)

    def ended(self, stream_id: int) -> None:
        self.done.set()

    @property
    def states(self) -> list[DecodeState]:
        """States in order, repeats left out."""
        found: list[DecodeState] = []
        for report in self.reports:
            if not found or found[-1] is not report.state:
                found.append(report.state)
        return found

    @property
    def levels(self) -> list[int]:
        """Which picture each frame shows (see media.picture)."""
        return [round(float(p[-1, -1].mean()) / 5) for p in self.pictures]


def copy_in(rgb: NDArray[np.uint8], out: NDArray[np.uint8]) -> tuple[float, ...]:
    """Preprocessing of these tests: crops or pads, and says the picture's size."""
    height, width = min(rgb.shape[0], out.shape[0]), min(rgb.shape[1], out.shape[1])
    out[:] = 0
    out[:height, :width] = rgb[:height, :width]
    return (float(rgb.shape[1]), float(rgb.shape[0]))


@contextmanager
def stream(
    source: SourceSpec | Path | str, *, slots: int = 8, shape: tuple[int, int, int] = (48, 64, 3),
    settings: SessionSettings = QUICK, **changes: Any
) -> Iterator[Sink]:  # fmt: skip
    """A running stream; ended at the end."""
    spec = source if isinstance(source, SourceSpec) else parse_source(str(source))
    sink = Sink(shape)
    worker = DecoderWorker(sink, settings)
    sink.worker = worker
    values: dict[str, Any] = {"target_fps": 1000.0, "preprocess": copy_in, **changes}
    worker.add(StreamTask(stream_id=1, name="test", source=spec, shape=shape, **values))
    worker.grant(1, list(range(slots)))
    try:
        yield sink
    finally:
        assert worker.stop(5.0)


def play(source: SourceSpec | Path | str, timeout_s: float = 15.0, **changes: Any) -> Sink:
    """Plays to the end, offline (as fast as it goes) unless told otherwise."""
    with stream(source, **{"offline": True, **changes}) as sink:
        assert sink.done.wait(timeout_s), sink.reports
        time.sleep(0.02)
    return sink
