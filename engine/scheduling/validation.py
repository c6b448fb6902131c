"""The invariants of a scheduler's state, checked one by one. For tests and for finding bugs; linear in what is open."""

from __future__ import annotations

from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.routes import Lane
from framepool.engine.scheduling.state import SchedulerState
from framepool.engine.scheduling.waiting import WaitingCounts, WaitingQueue


class InvariantError(RuntimeError):
    """The scheduler's own bug: its books do not agree. Says what and where."""


def validate_state(scheduler: Scheduler) -> None:
    """Raises InvariantError unless every frame is in exactly one place and all counts, queues and bookings agree."""
    state = scheduler.state
    _check_ledger(state)
    for lane in state.lanes.values():
        _check_lane(state, lane)
    _check_batches(state)
    _check_workers(state)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)


def _check_ledger(state: SchedulerState) -> None:
    ledger = state.ledger
    open_frames = len(ledger.entries)
    ended = ledger.completed + ledger.dropped_total
    _require(ledger.ingested == ended + open_frames, f"{ledger.ingested} ingested, {ended} ended, {open_frames} open")
    of_streams = {frame_id for frames in state.ledger.streams.values() for frame_id in frames}
    _require(of_streams == set(ledger.entries), "the index by stream differs from the index by frame")
    _require(all(ledger.streams.values()), "a stream without open frames is still indexed")
    for entry in ledger.entries.values():
        where = f"frame {entry.id}"
        _require((entry.queue is None) != (entry.batch is None), f"{where} must wait or be in flight, and not both")
        if entry.batch is not None:
            _require(state.batches.get(entry.batch.id) is entry.batch, f"{where} is in flight with a batch that ended")
            _require(entry in entry.batch.entries, f"{where} is in flight with a batch that does not hold it")
        else:
            lane = state.lanes.get(entry.model)
            _require(lane is not None and entry.queue in _queues(lane), f"{where} waits in a queue nobody serves")


def _queues(lane: Lane) -> list[WaitingQueue]:
    return [lane.live, lane.offline, *(queue for route in lane.routes for queue in route.queues)]


def _check_lane(state: SchedulerState, lane: Lane) -> None:
    counted: dict[int, int] = {}
    for queue in _queues(lane):
        _require(queue.items == sorted(queue.items, key=lambda item: item[:2]), f"a queue of {lane.model} is unordered")
        for key_ns, frame_id, entry in queue.items:
            _require(entry.queue is queue, f"frame {frame_id} is queued where it does not know")
            _require(state.ledger.entries.get(frame_id) is entry, f"frame {frame_id} waits but has ended")
            _require((entry.key_ns, entry.id) == (key_ns, frame_id), f"frame {frame_id} is queued under another key")
            _require(entry.live == (queue is not lane.offline), f"frame {frame_id} waits in the other class's queue")
            if entry.live:
                counted[entry.stream_id] = counted.get(entry.stream_id, 0) + 1
    _check_counts(lane.counts, counted, lane.model)
    for route in lane.routes:
        sent = sum(batch.route is route for batch in state.batches.values())
        _require(route.inflight == sent, f"pipeline {route.id} counts {route.inflight} batches in flight, not {sent}")
        for pool in route.pools:
            order = sorted((worker.busy_ns, worker.index) for worker in pool.workers if worker.up)
            _require(pool.order == order, f"stage {pool.stage} of {route.id} has its workers out of order")


def _check_counts(counts: WaitingCounts, counted: dict[int, int], model: str) -> None:
    _require(counts.by_stream == counted, f"waiting frames of {model} are counted {counts.by_stream}, not {counted}")
    _require(counts.total == sum(counted.values()), f"{counts.total} frames of {model} counted as waiting")


def _check_batches(state: SchedulerState) -> None:
    both = state.batches.keys() & state.abandoned.keys()
    _require(not both, f"batches {sorted(both)} are in flight and abandoned")
    for batch_id, batch in state.batches.items():
        _require(batch.until == len(batch.hops), f"batch {batch_id} is in flight but will run {batch.until} hops only")
    for batch_id, batch in state.abandoned.items():
        _require(not batch.members(), f"batch {batch_id} is abandoned but has frames")
    for batch_id, batch in (state.batches | state.abandoned).items():
        _require(batch.id == batch_id, f"batch {batch.id} is filed under {batch_id}")
        _require(0 <= batch.done < batch.until, f"batch {batch_id} has done {batch.done} of {batch.until} hops")
        for hop, worker in zip(batch.hops, batch.workers, strict=True):
            _require(hop.worker_id == worker.id, f"batch {batch_id} was sent to {hop.worker_id}, booked on {worker.id}")
            _require(
                hop.earliest_ns <= hop.start_ns <= hop.end_ns, f"batch {batch_id} has a hop that ends before it starts"
            )
            _require(hop.start_ns <= hop.latest_ns, f"batch {batch_id} has a hop that must be refused")
        for worker in batch.workers[batch.done : batch.until]:
            _require(batch_id in worker.bookings, f"batch {batch_id} is not booked on {worker.id}")
        for worker in batch.workers[: batch.done] + batch.workers[batch.until :]:
            _require(batch_id not in worker.bookings, f"batch {batch_id} has left {worker.id} but is booked there")


def _check_workers(state: SchedulerState) -> None:
    for worker in state.workers.values():
        _require(worker.up or not worker.bookings, f"worker {worker.id} is down and booked")
        strange = worker.bookings.keys() - state.batches.keys() - state.abandoned.keys()
        _require(not strange, f"worker {worker.id} is booked for batches {sorted(strange)}, which nobody knows")
        if worker.pool is not None:
            _require(worker.pool.workers[worker.index] is worker, f"worker {worker.id} is not where its pool keeps it")
        end_ns = max((b.start_ns + b.duration_ns for b in worker.bookings.values()), default=worker.busy_ns)
        _require(worker.busy_ns >= end_ns, f"worker {worker.id} is free at {worker.busy_ns}, booked until {end_ns}")
