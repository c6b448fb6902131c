"""The decoder process: several streams on threads, each filling frame slots of its feed's arena.

    engine ROUTER <==DEALER==> loop (main thread) --> streams.DecoderWorker --> a thread a stream
                                     ^--- outbox (queue) <--- frames, states from the stream threads

ZeroMQ sockets belong to the main thread; stream threads hand their reports over through a queue and a bell. What a
broken file does to a decoder ends here: the engine starts another and streams go on.
"""

from __future__ import annotations

import collections
import socket
import sys
import threading
import time
from collections.abc import Callable

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray

from framepool.engine.runtime import messages as m
from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.child import enter_child
from framepool.engine.runtime.transport import dealer
from framepool.models.letterbox import apply, plan_transform
from framepool.models.spec import Resize
from framepool.streams.worker import DecoderWorker, FrameNotice, StreamReport, StreamTask

POLL_MS = 1000
REPORT_SEND_TIMEOUT_MS = 2000
STOP_DEADLINE_S = 2.0

Preprocess = Callable[[NDArray[np.uint8], NDArray[np.uint8]], tuple[float, ...]]


class DecoderConfig(msgspec.Struct, frozen=True):
    """What a decoder process is told at its start; streams come as orders."""

    child_id: str
    title: str
    engine_endpoint: str


class _Slots:
    """A feed's arena as its stream thread writes it: slot number -> generation it was granted for."""

    def __init__(self, order: m.AddFeed) -> None:
        self.arena = Arena.attach(ArenaSpec(order.arena.name, order.arena.slots, order.arena.slot_bytes))
        self.shape = (order.model_height_px, order.model_width_px, 3)
        self.generations: dict[int, int] = {}


class SlotSink:
    """The `FrameSink` of this process: buffers in shared memory, reports into the outbox."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._feeds: dict[int, _Slots] = {}
        self.outbox: collections.deque[m.Report] = collections.deque()

    def open(self, order: m.AddFeed) -> None:
        slots = _Slots(order)
        with self._lock:
            self._feeds[order.feed_id] = slots

    def grant(self, feed_id: int, slots: tuple[tuple[int, int], ...]) -> list[int]:
        """Notes the generations; returns the slot numbers (none for a feed that is gone)."""
        with self._lock:
            feed = self._feeds.get(feed_id)
            if feed is None:
                return []
            feed.generations.update(slots)
        return [slot for slot, _ in slots]

    def close(self, feed_id: int) -> None:
        with self._lock:
            known = self._feeds.pop(feed_id, None)
        if known is not None:
            self._tell(m.FeedClosed(feed_id))

    # FrameSink, from stream threads

    def buffer(self, stream_id: int, slot: int) -> NDArray[np.uint8]:
        """The slot's picture, uint8 [H, W, 3], stamped with the generation it was granted for."""
        feed = self._feeds[stream_id]
        feed.arena.stamp(slot, feed.generations[slot])
        size = feed.shape[0] * feed.shape[1] * 3
        return feed.arena.payload(slot)[:size].reshape(feed.shape)

    def frame(self, notice: FrameNotice) -> None:
        feed = self._feeds.get(notice.stream_id)
        if feed is None:
            return
        self._tell(
            m.FrameReady(
                notice.stream_id,
                notice.seq,
                notice.slot,
                feed.generations[notice.slot],
                notice.capture_ns,
                notice.decoded_ns,
                notice.capture_unix_ns,
                notice.media_time_ns,
                notice.width_px,
                notice.height_px,
                notice.transform,
            )
        )

    def dropped(self, stream_id: int, seq: int, capture_ns: int, reason: str) -> None:
        self._tell(m.FrameLost(stream_id, seq, capture_ns, reason))

    def room_wanted(self, stream_id: int) -> None:
        self._tell(m.RoomRequest(stream_id))

    def state(self, report: StreamReport) -> None:
        self._tell(
            m.FeedReport(
                report.stream_id,
                report.state.value,
                report.error_code,
                report.error,
                report.width_px,
                report.height_px,
                report.codec,
                report.measured_fps,
                report.new_decode_errors,
                report.new_reconnects,
            )
        )

    def ended(self, stream_id: int) -> None:
        self.close(stream_id)

    def _tell(self, report: m.Report) -> None:
        self.outbox.append(report)
        self._ring()


def make_preprocess(task: StreamTask) -> Preprocess:
    """Letterbox or stretch into the model's input, as the task says."""
    resize = Resize(task.resize)
    width_px, height_px, pad = task.model_width_px, task.model_height_px, task.pad_value

    def preprocess(rgb: NDArray[np.uint8], out: NDArray[np.uint8]) -> tuple[float, ...]:
        transform = plan_transform(rgb.shape[1], rgb.shape[0], width_px, height_px, resize)
        apply(rgb, out, transform, pad)
        return transform.to_tuple()

    return preprocess
