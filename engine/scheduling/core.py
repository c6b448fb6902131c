"""The scheduler: one door, `handle(event, now_ns) -> commands`. Sans-IO: no clock, no threads, no randomness.

    driver (runtime or simulation) --events--> Scheduler --commands--> driver

Duty: the bookkeeping that all policies share. Each frame ends exactly once; what is reported late, twice or about the
unknown changes nothing; a batch that can't be finished gives its frames back. What to send and when is the policy's
(policy.py); the moves themselves are in state.py.

Where a frame is, and how it leaves:

    arrives -> waiting --Dispatch--> in flight --last stage reported--> Complete
                  ^  \\                |   \\
                  |   Drop            |    Drop (error, stream-removed, worker-lost)
                  +---- lost, refused-+

A batch that lost its worker, was refused or never reported is *abandoned*: its frames return to waiting (their input
is still in its slot), and the policy drops those whose deadline allows no second try. Workers that still run parts of
an abandoned batch stay booked for it until they report or the part before theirs falls away; such reports free the
worker and are otherwise ignored.

Whoever changes what a lane has (frames, free workers) pumps it, and each pump sets when the lane wants to look again,
so nothing waits for an event that may not come. `_armed_ns` is the tick last asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framepool.engine.scheduling.batches import Batch
from framepool.engine.scheduling.commands import Command, WakeAt
from framepool.engine.scheduling.events import (
    DropReason,
    Event,
    FrameArrived,
    PlanActivated,
    RoomWanted,
    StageFailed,
    StageFinished,
    StageRefused,
    StreamRemoved,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.options import FAR_FUTURE_NS, SchedulerOptions
from framepool.engine.scheduling.policy import Policy
from framepool.engine.scheduling.routes import Lane
from framepool.engine.scheduling.shedding import oldest_waiting
from framepool.engine.scheduling.state import SchedulerState
from framepool.engine.scheduling.workers import Worker

LEAST_SCALE, MOST_SCALE = 0.5, 4.0
"""Bounds of the learned ratio of measured to planned latency: beyond them a measurement is no service time."""
RESCALE_STEP = 0.02
"""Smallest change of that ratio worth laying the latency tables again."""


class Scheduler:
    """See the module docstring. Not thread-safe: one owner calls `handle`, with times that never go back."""

    def __init__(self, policy_factory: Callable[[SchedulerState], Policy], options: SchedulerOptions) -> None:
        self.state = SchedulerState(options)
        self._policy = policy_factory(self.state)
        self._armed_ns = FAR_FUTURE_NS
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            FrameArrived: self._frame_arrived,
            RoomWanted: self._room_wanted,
            StreamRemoved: self._stream_removed,
            StageFinished: self._stage_finished,
            StageRefused: self._stage_refused,
            StageFailed: self._stage_failed,
            WorkerUp: self._worker_up,
            WorkerLost: self._worker_lost,
            PlanActivated: self._plan_activated,
            Tick: self._tick,
        }

    def handle(self, event: Event, now_ns: int) -> list[Command]:
        """Takes in what happened and returns what to do, in order. Raises only on a bug of the driver's or its own."""
        out: list[Command] = []
        self.state.out = out
        self._handlers[type(event)](event, now_ns)
        return out

    # Frames

    def _frame_arrived(self, event: FrameArrived, now_ns: int) -> None:
        state = self.state
        entry = state.ledger.admit(event.frame)
        if entry is None:
            return
        lane = state.lane(entry.model)
        if entry.live:
            lane.last_live_ns = now_ns
            if not lane.routes:
                state.drop(entry, DropReason.INFEASIBLE)
                self._pump(lane, now_ns)
                return
        self._enqueue(lane, entry, now_ns)
        self._pump(lane, now_ns)

    def _room_wanted(self, event: RoomWanted, now_ns: int) -> None:
        entry = oldest_waiting(self.state, event.stream_id)
        if entry is not None:
            self.state.drop(entry, DropReason.OVERLOAD)
            self._pump_all({entry.model}, now_ns)

    def _stream_removed(self, event: StreamRemoved, now_ns: int) -> None:
        state = self.state
        entries = list(state.ledger.streams.get(event.stream_id, {}).values())
        for entry in entries:
            state.drop(entry, DropReason.STREAM_REMOVED)
        self._pump_all({entry.model for entry in entries}, now_ns)

    # Batches

    def _stage_finished(self, event: StageFinished, now_ns: int) -> None:
        state = self.state
        batch = state.batches.get(event.batch_id) or state.abandoned.get(event.batch_id)
        hop = None if batch is None else self._open_hop(batch, event.stage, event.worker_id)
        if batch is None or hop is None:
            return
        freed = batch.workers[batch.done : hop + 1]
        self._ran(batch, hop, min(event.start_ns, now_ns), min(event.end_ns, now_ns))
        if state.options.service_learning:
            self._learn(batch, event)
        route = batch.route
        if batch.id in state.abandoned:
            state.curtail(batch, batch.until)
        else:
            for frame_id in event.failed_frames:
                entry = state.ledger.entries.get(frame_id)
                if entry is not None and entry.batch is batch:
                    state.drop(entry, DropReason.ERROR)
            if batch.done == len(batch.hops):
                state.finish(batch)
                if event.stage == route.last_stage:
                    for entry in batch.entries:
                        if entry.batch is batch:
                            state.complete(entry, now_ns)
                else:
                    self._policy.advance(state.lane(route.model), batch, now_ns)
        lane = state.lanes.get(route.model)
        if lane is not None:
            self._pump(lane, now_ns)
        for worker in freed:
            if worker.pool is not None and worker.pool.route.model != route.model:  # the plan moved it meanwhile
                self._pump_all({worker.pool.route.model}, now_ns)

    def _stage_refused(self, event: StageRefused, now_ns: int) -> None:
        ended = self._ended_early(event, now_ns)
        if ended is not None:
            batch, hop = ended
            self._pump_all(self._abandon(batch, hop, now_ns, lost=False), now_ns)

    def _stage_failed(self, event: StageFailed, now_ns: int) -> None:
        ended = self._ended_early(event, now_ns)
        if ended is not None:
            batch, hop = ended
            models = _models_served(batch)
            batch.workers[hop].release(batch.id, now_ns)
            if batch.id in self.state.batches:
                for entry in self.state.abandon(batch, hop):
                    self.state.drop(entry, DropReason.ERROR)
            else:
                self.state.curtail(batch, hop)
            self._pump_all(models, now_ns)

    # Workers and plans

    def _worker_up(self, event: WorkerUp, now_ns: int) -> None:
        worker = self.state.worker(event.worker_id)
        if worker.up:
            return
        worker.come_up(now_ns)
        lane = self._lane_of(worker)
        if lane is not None:
            lane.refresh()
            self._pump(lane, now_ns)

    def _worker_lost(self, event: WorkerLost, now_ns: int) -> None:
        state = self.state
        worker = state.workers.get(event.worker_id)
        if worker is None:
            return
        held = worker.go_down()
        lane = self._lane_of(worker)
        if lane is None:
            del state.workers[worker.id]
        else:
            lane.refresh()
            self._policy.reroute(lane, now_ns)
        models = set() if lane is None else {lane.model}
        for batch_id in held:
            batch = state.batches.get(batch_id) or state.abandoned[batch_id]
            models |= self._abandon(batch, batch.workers.index(worker), now_ns, lost=True)
        self._pump_all(models, now_ns)

    def _plan_activated(self, event: PlanActivated, now_ns: int) -> None:
        state = self.state
        state.adopt(event)
        for lane in list(state.lanes.values()):
            self._policy.reroute(lane, now_ns)
            if not lane.routes:
                for _, _, entry in tuple(lane.live.items):
                    state.drop(entry, DropReason.INFEASIBLE)
        for lane in list(state.lanes.values()):
            self._pump(lane, now_ns)

    def _tick(self, event: Tick, now_ns: int) -> None:
        state = self.state
        self._armed_ns = FAR_FUTURE_NS
        for batches in (state.batches, state.abandoned):
            while batches:
                oldest = next(iter(batches.values()))
                if oldest.report_by_ns > now_ns:
                    break
                self._pump_all(self._abandon(oldest, oldest.done, now_ns, lost=True), now_ns)
        wake_ns = FAR_FUTURE_NS
        for lane in state.lanes.values():
            if lane.wake_ns <= now_ns:
                self._policy.pump(lane, now_ns)
            wake_ns = min(wake_ns, lane.wake_ns)
        self._arm(wake_ns)

    # Shared steps

    def _enqueue(self, lane: Lane, entry: Entry, now_ns: int) -> None:
        if entry.live:
            self._policy.enqueue(lane, entry, now_ns)
        else:
            lane.offline.add(entry)

    def _pump(self, lane: Lane, now_ns: int) -> None:
        if lane.counts.total or lane.offline.items:
            self._policy.pump(lane, now_ns)
        else:
            lane.wake_ns = FAR_FUTURE_NS
        if lane.wake_ns < self._armed_ns or self._armed_ns == FAR_FUTURE_NS:
            self._arm(lane.wake_ns)
        if not lane.routes and not lane.counts.total and not lane.offline.items:
            self.state.lanes.pop(lane.model, None)

    def _pump_all(self, models: set[str], now_ns: int) -> None:
        for model in sorted(models):
            lane = self.state.lanes.get(model)
            if lane is not None:
                self._pump(lane, now_ns)

    def _arm(self, wake_ns: int) -> None:
        """Asks for a tick at `wake_ns`, or when the oldest batch should have been reported, unless one comes sooner."""
        if self._armed_ns == FAR_FUTURE_NS:
            for batches in (self.state.batches, self.state.abandoned):
                if batches:
                    wake_ns = min(wake_ns, next(iter(batches.values())).report_by_ns)
        if wake_ns < self._armed_ns:
            self._armed_ns = wake_ns
            self.state.out.append(WakeAt(wake_ns))

    def _abandon(self, batch: Batch, hop: int, now_ns: int, *, lost: bool) -> set[str]:
        """The batch can't go on from `hop`: its frames wait again, unless they were sent too often.

        Returns the models to be pumped when all that was lost is back.
        """
        state = self.state
        models = _models_served(batch)
        if batch.id in state.abandoned:
            state.curtail(batch, hop)
            return models
        for entry in state.abandon(batch, hop):
            lane = state.lane(entry.model)
            entry.lost = entry.lost or lost
            entry.route, entry.stage = None, 0
            if entry.attempts >= state.options.max_attempts:
                state.drop(entry, DropReason.INFEASIBLE if entry.live else DropReason.ERROR)
            elif entry.live and not lane.routes:
                state.drop(entry, DropReason.INFEASIBLE)
            else:
                self._enqueue(lane, entry, now_ns)
        return models

    def _ran(self, batch: Batch, hop: int, start_ns: int, end_ns: int) -> None:
        """The books of workers after hop `hop` ran: it is over, and what follows gets its input then."""
        for earlier in batch.workers[batch.done : hop]:  # a report overtook theirs: they must have ended by its start
            earlier.release(batch.id, start_ns)
        worker = batch.workers[hop]
        booking = worker.release(batch.id, end_ns)
        batch.done = hop + 1
        if batch.done < batch.until and (booking is None or booking.start_ns + booking.duration_ns != end_ns):
            following = batch.workers[batch.done]
            if following.link is not worker.link:
                end_ns += batch.route.transfer_ns[batch.hops[batch.done].stage] * len(batch.entries)
            following.delay(batch.id, end_ns)

    def _ended_early(self, event: StageRefused | StageFailed, now_ns: int) -> tuple[Batch, int] | None:
        """The batch that was refused or failed, and at which hop; None where nothing is known of it there."""
        state = self.state
        batch = state.batches.get(event.batch_id) or state.abandoned.get(event.batch_id)
        hop = None if batch is None else self._open_hop(batch, event.stage, event.worker_id)
        if batch is None or hop is None:
            return None
        for worker in batch.workers[batch.done : hop]:
            worker.release(batch.id, now_ns)
        batch.done = hop
        return batch, hop

    def _open_hop(self, batch: Batch, stage: int, worker_id: str) -> int | None:
        """Which hop of the batch a report is about; None for one that is done or was never sent to that worker."""
        hop = stage - batch.hops[0].stage
        if batch.done <= hop < batch.until and batch.hops[hop].worker_id == worker_id:
            return hop
        return None

    def _learn(self, batch: Batch, event: StageFinished) -> None:
        """Moves the pool's ratio of measured to planned latency towards this batch's."""
        pool = batch.route.pools[event.stage]
        ratio = (event.end_ns - event.start_ns) / pool.planned_ns[len(batch.entries)]
        ratio = min(max(ratio, LEAST_SCALE), MOST_SCALE)
        pool.measured += (ratio - pool.measured) * self.state.options.service_learning
        if abs(pool.measured - pool.scale) > RESCALE_STEP * pool.scale:
            pool.rescale(pool.measured)
            batch.route.refresh()
            self.state.lane(batch.route.model).refresh()

    def _lane_of(self, worker: Worker) -> Lane | None:
        return None if worker.pool is None else self.state.lanes.get(worker.pool.route.model)


def _models_served(batch: Batch) -> set[str]:
    """The batch's model and those that its workers serve by now."""
    models = {worker.pool.route.model for worker in batch.workers if worker.pool is not None}
    models.add(batch.route.model)
    return models
