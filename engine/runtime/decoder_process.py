"""The decoder process: several streams on threads, each filling frame slots of its feed's arena.

    engine ==orders==> loop (main thread) --> streams.DecoderWorker --> a thread a stream
       ^==== frames, states, straight from the stream threads =================|

What a broken file does to a decoder ends here: the engine starts another and streams go on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import av
import cv2
import msgspec
import numpy as np
import setproctitle
from numpy.typing import NDArray

from framepool.engine.runtime import messages as m
from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.child import ORPHANED_EXIT_CODE, enter_child
from framepool.engine.runtime.transport import Node
from framepool.models.letterbox import Preprocess
from framepool.models.spec import Resize
from framepool.streams.errors import SourceError
from framepool.streams.reports import FrameNotice, StreamReport, StreamTask
from framepool.streams.session import failed_report
from framepool.streams.source_url import parse_source
from framepool.streams.worker import DecoderWorker

IDLE_WAIT_S = 1.0
LINGER_S = 0.5
STOP_DEADLINE_S = 2.0


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
    """The `FrameSink` of this process: buffers in shared memory, reports to the engine by `tell` (from any thread)."""

    def __init__(self, tell: Callable[[m.Report], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._feeds: dict[int, _Slots] = {}

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


class DecoderProcess:
    """The loop: orders in, reports out."""

    def __init__(self, config: DecoderConfig) -> None:
        self._config = config
        self._node = Node(config.child_id)
        self._node.dial(m.ENGINE, config.engine_endpoint)
        self._sink = SlotSink(self._report)
        self._worker = DecoderWorker(self._sink)
        self._stopping = False

    def serve(self) -> None:
        """Runs until told to stop."""
        self._report(m.ChildReady(self._config.child_id, "", {}, ()))
        while not self._stopping:
            for _, data in self._node.wait(IDLE_WAIT_S):
                self._obey(m.decode_order.decode(data))
        self._worker.stop(STOP_DEADLINE_S)
        self._node.close(LINGER_S)

    def _report(self, report: m.Report) -> None:
        """Tells the engine. A report that is not taken would leave a slot with nobody: then this process ends at once,
        and the engine, which takes back what it held, starts another."""
        if not self._node.send(m.ENGINE, m.encoder.encode(report)):
            os._exit(ORPHANED_EXIT_CODE)

    def _obey(self, order: m.Order) -> None:
        match order:
            case m.GrantSlots():
                self._worker.grant(order.feed_id, self._sink.grant(order.feed_id, order.slots))
            case m.AddFeed():
                self._add(order)
            case m.RemoveFeed():
                self._worker.remove(order.feed_id)
            case m.Stop():
                self._stopping = True

    def _add(self, order: m.AddFeed) -> None:
        try:
            source = parse_source(order.source, order.username, order.password)
            self._sink.open(order)
        except (SourceError, OSError) as exc:
            self._sink.state(failed_report(order.feed_id, order.stream, exc))
            self._report(m.FeedClosed(order.feed_id))
            return
        self._worker.add(
            StreamTask(
                stream_id=order.feed_id,
                name=order.stream,
                source=source,
                target_fps=order.target_fps,
                shape=(order.model_height_px, order.model_width_px, 3),
                preprocess=Preprocess(Resize(order.resize), order.pad_value),
                offline=order.offline,
                loop=order.loop,
                first_seq=order.first_seq,
                resume_media_ns=order.resume_media_ns,
                phase_ns=order.phase_ns,
            )
        )


def main() -> int:
    """Process entry: configuration on standard input, then serve."""
    config = msgspec.msgpack.decode(enter_child("framepool: decoder"), type=DecoderConfig)
    setproctitle.setproctitle(config.title)
    cv2.setNumThreads(1)
    av.logging.set_level(None)
    DecoderProcess(config).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
