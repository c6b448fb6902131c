"""The engine's data thread: one loop that hears every child, drives the scheduler and sends orders.

    children ==node==> node --> FrameFlow (frames, batches, scheduler) --> node ==> children
    other threads --call/post--> inbox --^                            \\--> publish (never blocks)

It is the sole owner of streams, feeds, frames, batches and their slots; every other thread of the engine talks to it
through `call` (waits, bounded) or `post`. It never waits for anything but its node.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import structlog

from framepool.engine.control import FrameDetections, StreamConfig, StreamState
from framepool.engine.errors import DeadlineError, EngineStoppedError
from framepool.engine.runtime import messages as m
from framepool.engine.runtime.activations import ActivationPool
from framepool.engine.runtime.arena import Arena
from framepool.engine.runtime.event_log import EventLog
from framepool.engine.runtime.feeds import DecoderLink, Feed, FeedSource, Stream, Tally, WorkerLink
from framepool.engine.runtime.frame_flow import FlowHooks, FrameFlow
from framepool.engine.runtime.latency import RecentSums
from framepool.engine.runtime.transport import Node
from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.events import PlanActivated
from framepool.models.spec import ModelSpec

log = structlog.get_logger("framepool.data")

T = TypeVar("T")

HOUSEKEEPING_NS = 500_000_000
IDLE_WAIT_S = 0.25
ENDED_STATES = frozenset({StreamState.FINISHED, StreamState.FINISHED_WITH_ERRORS, StreamState.FAILED})


@dataclass(frozen=True, slots=True)
class PlaneHooks:
    """Whom the data plane tells what. All are called on its thread and must not block."""

    publish: Callable[[FrameDetections], None]
    next_cursor: Callable[[], int]
    child_ready: Callable[[m.ChildReady], None]
    child_refused: Callable[[m.ChildRefused], None]
    child_hung: Callable[[str], None]
    stream_state: Callable[[int, StreamState], None]
    """A stream's new state; one that ended is told of once its last frame is through."""


class DataPlane:
    """See the module docstring. `start` and `stop` once each."""

    def __init__(
        self, endpoint: str, scheduler: Scheduler, hooks: PlaneHooks, event_log: EventLog | None = None
    ) -> None:
        self.endpoint = endpoint
        self._hooks = hooks
        self._event_log = event_log
        self._node = Node(m.ENGINE, endpoint)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._flow = FrameFlow(
            scheduler,
            FlowHooks(
                time.monotonic_ns, self._send, hooks.next_cursor, hooks.publish, self._unreachable, self._stream_idle
            ),
            event_log,
        )
        self._streams: dict[int, Stream] = {}
        self._feeds: dict[int, Feed] = {}
        self._decoders: dict[str, DecoderLink] = {}
        self._removed = Tally()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="framepool-data", daemon=True)

    # From other threads

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, removes arenas and closes the sockets. Children must have been stopped before."""
        if not self._thread.is_alive():
            return
        self.post(self._finish)
        self._thread.join(10)

    def post(self, action: Callable[[], None]) -> None:
        """Runs `action` on the data thread, some time soon."""
        self._inbox.put(action)
        try:
            self._node.ring()
        except OSError as exc:
            raise EngineStoppedError("the engine has stopped") from exc

    def call(self, action: Callable[[], T], timeout_s: float = 5.0) -> T:
        """Runs `action` on the data thread and returns its result; DeadlineError when it takes longer."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as exc:
                future.set_exception(exc)

        self.post(run)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as exc:
            raise DeadlineError(f"the engine's data plane did not answer within {timeout_s:g} s; try again") from exc

    # The loop

    def _run(self) -> None:
        next_housekeeping_ns = 0
        while not self._stopping:
            reports = self._node.wait(self._wait_s())
            try:
                self._take_calls()
                for sender, report in reports:
                    self._take_report(sender, report)
                now_ns = time.monotonic_ns()
                if self._flow.wake_ns <= now_ns:
                    self._flow.tick()
                if next_housekeeping_ns <= now_ns:
                    next_housekeeping_ns = now_ns + HOUSEKEEPING_NS
                    for link in self._flow.expire():
                        log.error("a worker hangs", worker=link.worker_id)
                        link.waiting.clear()
                        self._hooks.child_hung(link.child_id)
            except Exception:  # a fault in one call must not end the engine
                log.exception("fault in the data plane")
        self._close()

    def _wait_s(self) -> float:
        return max(0.0, min(IDLE_WAIT_S, (self._flow.wake_ns - time.monotonic_ns()) / 1e9))

    def _take_calls(self) -> None:
        while True:
            try:
                action = self._inbox.get_nowait()
            except queue.Empty:
                return
            action()

    def _take_report(self, sender: str, data: bytes) -> None:
        try:
            self._take_in(sender, m.decode_report.decode(data))
        except msgspec.MsgspecError as exc:
            log.error("a child sent what can't be read", child=sender, cause=str(exc))
        except Exception:  # a fault in one message must not end the engine
            log.exception("fault in the data plane", child=sender)

    def _take_in(self, sender: str, report: m.Report) -> None:
        match report:
            case m.StageReport():
                self._flow.stage_report(report)
            case m.FrameReady():
                if (feed := self._feed_of(sender, report.feed_id)) is not None:
                    self._flow.frame_ready(feed, report)
            case m.FrameLost():
                if (feed := self._feed_of(sender, report.feed_id)) is not None:
                    self._flow.frame_lost(feed, report)
            case m.RoomRequest():
                if (feed := self._feed_of(sender, report.feed_id)) is not None:
                    self._flow.room_wanted(feed.stream)
            case m.FeedReport():
                self._feed_state(sender, report)
            case m.FeedClosed():
                self._feed_closed(sender, report.feed_id)
            case m.StageRefusal():
                self._flow.stage_refusal(report)
            case m.StageFailure():
                self._flow.stage_failure(report)
            case m.ChildReady():
                self._hooks.child_ready(report)
            case m.ChildRefused():
                self._hooks.child_refused(report)

    def _send(self, child_id: str, order: m.Order) -> bool:
        if self._node.send(child_id, m.encoder.encode(order)):
            return True
        log.warning("a child can't be reached", child=child_id)
        return False

    def _unreachable(self, link: WorkerLink) -> None:
        self._hooks.child_hung(link.child_id)

    def _finish(self) -> None:
        self._stopping = True

    def _close(self) -> None:
        for pool in self._flow.pools.values():
            pool.close()
        for feed in self._feeds.values():
            feed.arena.unlink()
        if self._event_log is not None:
            self._event_log.close()
        self._node.close()

    # Workers and plans (data thread)

    def worker_up(self, worker_id: str, child_id: str, endpoint: str) -> None:
        self._flow.worker_up(WorkerLink(worker_id, child_id, endpoint, RecentSums(1, time.monotonic_ns())))

    def worker_lost(self, worker_id: str, child_id: str) -> None:
        link = self._flow.workers.get(worker_id)
        if link is not None and link.child_id == child_id:
            self._flow.worker_lost(worker_id)

    def tell_stop(self, child_id: str) -> None:
        """Tells a child to finish what it has and end."""
        self._send(child_id, m.Stop())

    def activate(self, event: PlanActivated, pools: Mapping[tuple[str, int], ActivationPool]) -> None:
        self._flow.activate(event, pools)

    def activation_gone(self, arena_name: str) -> None:
        self._flow.arena_gone(arena_name)

    def utilization(self) -> dict[str, float]:
        """Busy share of each running worker over the last 10 s."""
        now_ns = time.monotonic_ns()
        shares = {}
        for worker_id, link in self._flow.workers.items():
            (busy_ns,), seconds = link.busy.read(now_ns)
            shares[worker_id] = min(1.0, busy_ns / 1e9 / seconds)
        return shares

    # Streams and feeds (data thread)

    def add_stream(self, stream_id: int, config: StreamConfig, spec: ModelSpec, next_seq: int) -> Stream:
        stream = Stream(stream_id, config, spec, next_seq, time.monotonic_ns())
        self._streams[stream_id] = stream
        return stream

    def open_feed(self, feed_id: int, stream_id: int, source: FeedSource, arena: Arena, decoder_id: str) -> None:
        """Begins decoding into `arena`; a feed the stream had before is closed."""
        stream = self._streams[stream_id]
        self._close_feed(stream)
        stream.state, stream.error, stream.error_code = StreamState.CONNECTING, "", ""
        feed = Feed(feed_id, stream, source, arena)
        stream.feed = self._feeds[feed_id] = feed
        decoder = self._decoders.setdefault(decoder_id, DecoderLink(decoder_id))
        decoder.feeds[feed_id] = feed
        if decoder.child_id:
            self._begin(feed, decoder)

    def _begin(self, feed: Feed, decoder: DecoderLink) -> None:
        stream, spec, source = feed.stream, feed.stream.spec, feed.source
        feed.decoder = decoder.child_id
        order = m.AddFeed(
            feed.id,
            stream.config.name,
            source.source,
            source.username,
            source.password,
            spec.input.width_px,
            spec.input.height_px,
            spec.input.resize.value,
            spec.input.pad_value,
            source.target_fps,
            source.offline,
            source.loop,
            stream.next_seq,
            stream.media_ns,
            source.phase_ns,
            feed.ref,
        )
        self._send(decoder.child_id, order)
        self._send(decoder.child_id, m.GrantSlots(feed.id, tuple(feed.grant_all())))

    def _close_feed(self, stream: Stream) -> None:
        feed, stream.feed = stream.feed, None
        if feed is None:
            return
        feed.closing = True
        if feed.decoder:
            self._send(feed.decoder, m.RemoveFeed(feed.id))
        else:
            self._forget_feed(feed)

    def _forget_feed(self, feed: Feed) -> None:
        """The decoder writes the arena no more."""
        feed.decoder = ""
        feed.take_back_granted()
        for decoder in self._decoders.values():
            decoder.feeds.pop(feed.id, None)
        self._feeds.pop(feed.id, None)
        self._flow.close_if_unused(feed)

    def change_stream(self, stream_id: int, config: StreamConfig, spec: ModelSpec) -> None:
        """New settings for the frames to come; decoding goes on (see `open_feed` for what needs a new feed)."""
        self._streams[stream_id].reconfigure(config, spec)

    def disable_stream(self, stream_id: int) -> None:
        stream = self._streams[stream_id]
        self._close_feed(stream)
        stream.state = StreamState.DISABLED

    def remove_stream(self, stream_id: int) -> int:
        """Ends the stream and its frames; returns the number its next frame would have had."""
        stream = self._streams.pop(stream_id)
        self._close_feed(stream)
        self._flow.remove_stream(stream)
        self._removed.add(stream.tally)
        return stream.next_seq

    def stop_decoding(self) -> None:
        """No new frames from now on; those under way go on. The streams stay."""
        for stream in self._streams.values():
            self._close_feed(stream)

    @property
    def open_frames(self) -> int:
        return len(self._flow.frames)

    def end_open_frames(self) -> None:
        """Gives up what is still under way, counted as dropped."""
        for stream in self._streams.values():
            self._flow.remove_stream(stream)

    def streams(self) -> dict[int, Stream]:
        """The live records; read them on the data thread only."""
        return self._streams

    def totals(self) -> Tally:
        total = Tally()
        total.add(self._removed)
        for stream in self._streams.values():
            total.add(stream.tally)
        return total

    # Decoders (data thread)

    def decoder_up(self, decoder_id: str, child_id: str) -> None:
        decoder = self._decoders.setdefault(decoder_id, DecoderLink(decoder_id))
        decoder.child_id = child_id
        for feed in decoder.feeds.values():
            self._begin(feed, decoder)

    def decoder_lost(self, decoder_id: str, child_id: str) -> None:
        """Its feeds wait for it to come back; what it had been granted is free again."""
        decoder = self._decoders.get(decoder_id)
        if decoder is None or decoder.child_id != child_id:
            return
        decoder.child_id = ""
        for feed in list(decoder.feeds.values()):
            feed.decoder = ""
            feed.take_back_granted()
            if feed.closing:
                self._forget_feed(feed)
            elif feed.stream.state not in ENDED_STATES:
                feed.stream.state = StreamState.RECONNECTING
                feed.stream.error = "the decoder process ended and is being restarted"
                feed.stream.error_code = "decoder-lost"

    def _feed_of(self, sender: str, feed_id: int) -> Feed | None:
        """The feed a report is about, unless it is closing or comes from a decoder that was given up."""
        feed = self._feeds.get(feed_id)
        if feed is None or feed.closing or feed.decoder != sender:
            return None
        return feed

    def _feed_state(self, sender: str, report: m.FeedReport) -> None:
        feed = self._feed_of(sender, report.feed_id)
        if feed is None:
            return
        stream = feed.stream
        before, stream.state = stream.state, StreamState(report.state)
        stream.error, stream.error_code = report.error, report.error_code
        stream.codec = report.codec or stream.codec
        if report.width_px:
            stream.width_px, stream.height_px = report.width_px, report.height_px
        stream.measured_fps = report.measured_fps
        stream.tally.decode_errors += report.new_decode_errors
        stream.tally.reconnects += report.new_reconnects
        if stream.state != before:
            log.info("stream state", stream=stream.config.name, state=stream.state.value, cause=report.error)
            if stream.state not in ENDED_STATES or not stream.frames:
                self._hooks.stream_state(stream.id, stream.state)

    def _stream_idle(self, stream: Stream) -> None:
        """Its last open frame ended: a stream that has ended asks for nothing from now on, not sooner."""
        if stream.state in ENDED_STATES and not stream.removed:
            self._hooks.stream_state(stream.id, stream.state)

    def _feed_closed(self, sender: str, feed_id: int) -> None:
        """The decoder's thread for the feed is gone: after RemoveFeed, or because the source ended."""
        feed = self._feeds.get(feed_id)
        if feed is None or feed.decoder != sender:
            return
        if feed.closing:
            self._forget_feed(feed)
            return
        feed.closing = True
        if feed.stream.feed is feed:
            feed.stream.feed = None
        self._forget_feed(feed)


def without_password(config: StreamConfig) -> StreamConfig:
    """The configuration as it may be shown."""
    return replace(config, password="")
