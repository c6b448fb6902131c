"""The way of frames through the engine: from a filled slot, by the scheduler's commands, to published detections.

    decoder: FrameReady -> frame table -> scheduler -> Dispatch -> worker ... StageReport
                                                    -> Drop -> counted          |
                           publish <- Complete <- scheduler <-------------------+

Single-threaded and without waits: the data plane calls it from its thread, one report at a time, and it sends through
what it was given. It alone owns frames, batches and their slots, and counts each frame exactly once: `ingested` when
its decoder reports it, `completed` or `dropped` when the scheduler ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from framepool.engine.control import FrameDetections
from framepool.engine.planning.plan import Pipeline
from framepool.engine.runtime import messages as m
from framepool.engine.runtime.activations import ActivationPool
from framepool.engine.runtime.batch_book import BatchBook
from framepool.engine.runtime.event_log import EventLog
from framepool.engine.runtime.feeds import ENDED, IN_TIME, INGESTED, Feed, LiveBatch, LiveFrame, Stream, WorkerLink
from framepool.engine.runtime.publishing import build_detections
from framepool.engine.scheduling import events as ev
from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, WakeAt
from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.options import FAR_FUTURE_NS

log = structlog.get_logger("framepool.frames")


@dataclass(frozen=True, slots=True)
class FlowHooks:
    """What the flow asks of its surroundings. `send` tells whether the child could be reached; `stream_idle` hears of
    each stream whose last open frame ended."""

    clock_ns: Callable[[], int]
    send: Callable[[str, m.Order], bool]
    next_cursor: Callable[[], int]
    publish: Callable[[FrameDetections], None]
    worker_unreachable: Callable[[WorkerLink], None]
    stream_idle: Callable[[Stream], None]


class FrameFlow:
    """See the module docstring."""

    def __init__(self, scheduler: Scheduler, hooks: FlowHooks, event_log: EventLog | None = None) -> None:
        self._scheduler = scheduler
        self._hooks = hooks
        self._event_log = event_log
        self.frames: dict[int, LiveFrame] = {}
        self.workers: dict[str, WorkerLink] = {}
        self.batches = BatchBook(self.workers, self._unuse)
        self.pools: dict[tuple[str, int], ActivationPool] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self.wake_ns = FAR_FUTURE_NS
        self._next_frame_id = 1
        self._results: Mapping[int, m.FrameResult] = {}
        self._later: deque[ev.Event] = deque()
        self._telling = False
        self._grants: dict[int, tuple[Feed, list[tuple[int, int]]]] = {}

    # What decoders report

    def frame_ready(self, feed: Feed, report: m.FrameReady) -> None:
        """A frame lies in its slot: it exists from now on."""
        lease = feed.granted.get(report.slot)
        if lease is None or lease.generation != report.generation:
            log.warning("a frame came in a slot that was not granted", feed=feed.id, slot=report.slot)
            return
        del feed.granted[report.slot]
        now_ns = self._hooks.clock_ns()
        stream = feed.stream
        frame = LiveFrame(
            self._next_frame_id,
            feed,
            lease,
            report.seq,
            capture_ns=report.capture_ns,
            capture_unix_ns=report.capture_unix_ns,
            decoded_ns=report.decoded_ns,
            arrived_ns=now_ns,
            media_time_ns=report.media_time_ns,
            size_px=(report.width_px, report.height_px),
            transform=report.transform,
        )
        self._next_frame_id += 1
        feed.users += 1
        self.frames[frame.id] = stream.frames[frame.id] = frame
        stream.width_px, stream.height_px = report.width_px, report.height_px
        stream.media_ns = report.media_time_ns
        self._count_ingested(stream, report.seq, now_ns)
        service_class = stream.config.service_class
        deadline_ns = report.capture_ns + stream.slo_ns
        self.tell(
            ev.FrameArrived(
                ev.Frame(frame.id, stream.id, stream.config.model, report.capture_ns, deadline_ns, service_class)
            )
        )

    def frame_lost(self, feed: Feed, report: m.FrameLost) -> None:
        """A frame was ingested and given up inside its decoder: it never gets a slot, but it counts."""
        now_ns = self._hooks.clock_ns()
        self._count_ingested(feed.stream, report.seq, now_ns)
        self._count_drop(feed.stream, ev.DropReason(report.reason), now_ns)

    def _count_ingested(self, stream: Stream, seq: int, now_ns: int) -> None:
        stream.next_seq = max(stream.next_seq, seq + 1)
        stream.tally.ingested += 1
        stream.recent.add(now_ns, INGESTED, 1)

    @staticmethod
    def _count_drop(stream: Stream, reason: ev.DropReason, now_ns: int) -> None:
        stream.tally.dropped[reason] = stream.tally.dropped.get(reason, 0) + 1
        stream.recent.add(now_ns, ENDED, 1)

    # What stage workers report

    def stage_report(self, report: m.StageReport) -> None:
        link = self.workers.get(report.worker_id)
        if link is not None:
            link.busy.add(report.end_ns, 0, report.end_ns - report.start_ns)
        self.batches.reported(report.worker_id, report.batch_id)
        batch = self.batches.get(report.batch_id)
        if batch is not None:
            self._take_in_times(batch, report)
        self._results = {result.frame_id: result for result in report.results}
        self.tell(
            ev.StageFinished(
                report.batch_id, report.stage, report.worker_id, report.start_ns, report.end_ns, report.failed_frames
            )
        )
        self._results = {}
        if report.failure and batch is not None:
            following = batch.stages.index(report.stage) + 1
            self._refused(report.batch_id, batch.stages[following], batch.workers[following], ev.RefusalReason.NO_INPUT)
        if batch is not None:
            self.batches.settle(report.batch_id, batch.stages.index(report.stage), ended=bool(report.failure))

    def stage_refusal(self, report: m.StageRefusal) -> None:
        self.batches.reported(report.worker_id, report.batch_id)
        self._refused(report.batch_id, report.stage, report.worker_id, ev.RefusalReason(report.reason))
        self.batches.settle_from(report.batch_id, report.stage)

    def stage_failure(self, report: m.StageFailure) -> None:
        self.batches.reported(report.worker_id, report.batch_id)
        log.error("a batch failed", worker=report.worker_id, batch=report.batch_id, cause=report.message)
        self.tell(ev.StageFailed(report.batch_id, report.stage, report.worker_id, report.message))
        self.batches.settle_from(report.batch_id, report.stage)

    def _refused(self, batch_id: int, stage: int, worker_id: str, reason: ev.RefusalReason) -> None:
        self.tell(ev.StageRefused(batch_id, stage, worker_id, reason))

    def _take_in_times(self, batch: LiveBatch, report: m.StageReport) -> None:
        """Adds what the hop took to its frames, and leaves with them the activations that a later dispatch reads."""
        hop = batch.stages.index(report.stage)
        transfer_ns = report.received_ns - report.sent_ns + report.input_ns - report.start_ns
        inference_ns = report.end_ns - report.input_ns
        last = hop + 1 == len(batch.stages)
        output = batch.outputs[hop]
        for frame_id, (row, frame) in batch.frames.items():
            if frame.batch_id != report.batch_id or frame_id not in self.frames:
                continue
            frame.transfer_ns += transfer_ns
            frame.inference_ns += inference_ns
            frame.head_done_ns = report.end_ns
            if last and output is not None:
                self._let_go_of_activation(frame)
                output.hold()
                frame.activation, frame.activation_row = output, row

    # Workers and plans

    def worker_up(self, link: WorkerLink) -> None:
        self.workers[link.worker_id] = link
        self.tell(ev.WorkerUp(link.worker_id))

    def worker_lost(self, worker_id: str) -> None:
        """The worker died: what it held is given back, and nothing of it is waited for."""
        if self.workers.pop(worker_id, None) is None:
            return
        self.tell(ev.WorkerLost(worker_id))
        self.batches.worker_gone(worker_id)

    def activate(self, event: ev.PlanActivated, pools: Mapping[tuple[str, int], ActivationPool]) -> None:
        """Routes by a new plan. `pools` has an activation pool for (pipeline id, stage) of every inner stage."""
        self._pipelines = {pipeline.id: pipeline for pipeline in event.plan.pipelines}
        gone = {id(pool): pool for pool in self.pools.values()}
        for pool in pools.values():
            gone.pop(id(pool), None)
        self.pools = dict(pools)
        for pool in gone.values():
            pool.close()
        self.tell(event)

    def remove_stream(self, stream: Stream) -> None:
        """Ends every frame of the stream."""
        stream.removed = True
        self.tell(ev.StreamRemoved(stream.id))

    def room_wanted(self, stream: Stream) -> None:
        self.tell(ev.RoomWanted(stream.id))

    def tick(self) -> None:
        self.wake_ns = FAR_FUTURE_NS
        self.tell(ev.Tick())

    # The scheduler's door

    def tell(self, event: ev.Event) -> None:
        """Hands an event to the scheduler and does what it commands. Events that come of doing so wait their turn."""
        self._later.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._later:
                self._handle(self._later.popleft())
        finally:
            self._telling = False
        self._send_grants()

    def _handle(self, event: ev.Event) -> None:
        now_ns = self._hooks.clock_ns()
        commands = self._scheduler.handle(event, now_ns)
        if self._event_log is not None:
            self._event_log.write(now_ns, event, commands)
        for command in commands:
            self._obey(command, now_ns)

    def _obey(self, command: Command, now_ns: int) -> None:
        match command:
            case Dispatch():
                self._dispatch(command)
            case Complete():
                self._complete(command, now_ns)
            case Drop():
                frame = self.frames[command.frame_id]
                self._count_drop(frame.feed.stream, command.reason, now_ns)
                self._end(frame)
            case WakeAt():
                self.wake_ns = command.at_ns

    def _complete(self, command: Complete, now_ns: int) -> None:
        frame = self.frames[command.frame_id]
        stream = frame.feed.stream
        stream.tally.completed += 1
        stream.recent.add(now_ns, ENDED, 1)
        if command.in_time:
            stream.tally.in_time += 1
            stream.recent.add(now_ns, IN_TIME, 1)
        stream.latency.add(
            now_ns - frame.capture_ns,
            frame.decoded_ns - frame.capture_ns,
            frame.transfer_ns,
            frame.inference_ns,
            now_ns - frame.head_done_ns,
            now_ns,
        )
        result = self._results[frame.id]
        found = build_detections(frame, result, self._hooks.next_cursor(), now_ns, command.in_time)
        self._end(frame)
        self._hooks.publish(found)

    def _end(self, frame: LiveFrame) -> None:
        """The frame is over: its slot goes back to its decoder."""
        feed = frame.feed
        del self.frames[frame.id]
        del feed.stream.frames[frame.id]
        self._let_go_of_activation(frame)
        feed.book.release(frame.lease)
        slots_in_hand = len(feed.granted) > feed.book.capacity // 2  # its decoder need not be woken
        if feed.decoder and not feed.closing and not slots_in_hand:
            self._grants.setdefault(feed.id, (feed, []))[1].extend(feed.grant_all())
        self._unuse(feed)
        if not feed.stream.frames:
            self._hooks.stream_idle(feed.stream)

    @staticmethod
    def _let_go_of_activation(frame: LiveFrame) -> None:
        if frame.activation is not None:
            frame.activation.drop()
            frame.activation = None

    def _send_grants(self) -> None:
        for feed, slots in self._grants.values():
            if slots and feed.decoder:
                self._hooks.send(feed.decoder, m.GrantSlots(feed.id, tuple(slots)))
        self._grants.clear()

    # Batches

    def _dispatch(self, command: Dispatch) -> None:
        frames = [self.frames[frame_id] for frame_id in command.frames]
        pipeline = self._pipelines[command.pipeline_id]
        fresh = command.hops[0].stage == 0
        for frame in frames:
            frame.batch_id = command.batch_id
            if fresh:
                self._let_go_of_activation(frame)
                frame.restart_parts()
        order = self.batches.open(command, pipeline, frames, self.pools, self._hooks.clock_ns())
        first = self.workers.get(command.hops[0].worker_id)
        if order is None or first is None:
            self._give_back(command, ev.RefusalReason.NO_INPUT)
            return
        if not self._hooks.send(first.child_id, order):
            self._hooks.worker_unreachable(first)
            self.worker_lost(first.worker_id)

    def _give_back(self, command: Dispatch, reason: ev.RefusalReason) -> None:
        """Tells the scheduler that a batch could not be sent at all."""
        hop = command.hops[0]
        self.tell(ev.StageRefused(command.batch_id, hop.stage, hop.worker_id, reason))

    def expire(self) -> list[WorkerLink]:
        """Frees batches whose hand-over was lost; returns workers that seem to hang."""
        now_ns = self._hooks.clock_ns()
        self.batches.expire(now_ns)
        return [link for link in self.workers.values() if link.waiting and min(link.waiting.values()) < now_ns]

    def _unuse(self, feed: Feed) -> None:
        feed.users -= 1
        self.close_if_unused(feed)

    def close_if_unused(self, feed: Feed) -> None:
        """Removes a closing feed's arena once its decoder has let go and nobody reads it."""
        if feed.closing and not feed.decoder and not feed.users and feed.open:
            feed.open = False
            feed.arena.unlink()
            self.arena_gone(feed.arena.spec.name)

    def arena_gone(self, name: str) -> None:
        """Workers drop their mapping of it."""
        for link in self.workers.values():
            self._hooks.send(link.child_id, m.ArenaGone(name))
