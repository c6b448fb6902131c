"""The simulation: a discrete-event driver that obeys a scheduler's commands on virtual time.

    arrivals, script --> [heap: time, priority, sequence] --events--> Scheduler --commands--> workers, links --> heap

Duty: do to the commands what the live runtime does: run batches on workers in reserved order, refuse those outside
their window, hand results from worker to worker over links, report. Same seed, same trace. It decides nothing, and
checks that each frame ends exactly once. At equal times: what ends, then what comes and goes, then arrivals, then
ticks.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from framepool.engine.outcomes import OutcomeCounts
from framepool.engine.scheduling.commands import Command, Complete, Dispatch, Drop, Hop, WakeAt
from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.events import (
    DropReason,
    Event,
    Frame,
    FrameArrived,
    PlanActivated,
    RefusalReason,
    RoomWanted,
    ServiceClass,
    StageFinished,
    StageRefused,
    Tick,
    WorkerLost,
    WorkerUp,
)
from framepool.engine.scheduling.options import FAR_FUTURE_NS
from framepool.engine.simulation.arrivals import Arrival
from framepool.engine.simulation.result import FrameRow, SimulationResult, StageRow
from framepool.engine.simulation.service import Exact, ServiceModel
from framepool.engine.simulation.workers import Job, SimLinks, SimWorker

_DONE, _READY, _REPORT, _SCRIPT, _ARRIVAL, _TICK = range(6)


@dataclass(frozen=True, slots=True)
class OfflineFile:
    """A file analysed in full: `frames` frames, at most `in_flight` of them ingested at a time, from `start_ns` on."""

    stream_id: int
    model: str
    frames: int
    in_flight: int = 8
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """`report_delay_ns`: from a stage's end to the scheduler. `slots_per_stream`: frames a live stream may have open
    (0: no limit); beyond them the oldest waiting one is asked to give way, else the new one is skipped.
    `keep_rows`: keep a row a frame and a row a stage. `most_missed`: the run ends once more frames than that have
    ended and were not in time."""

    seed: int = 0
    service: ServiceModel = field(default_factory=Exact)
    report_delay_ns: int = 0
    slots_per_stream: int = 0
    keep_rows: bool = False
    most_missed: int | None = None


class _Tally:
    """Counts of one stream while it runs."""

    __slots__ = ("completed", "dropped", "in_time", "ingested", "open")

    def __init__(self) -> None:
        self.ingested = self.completed = self.in_time = self.open = 0
        self.dropped: dict[DropReason, int] = {}


class Simulation:
    """One run. `plan` is activated at time 0 with all its workers up (or as `script` has it, with `workers_up` False).

    `observe` is called after each event with (now_ns, event, commands): tests validate there, recorders record.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        plan: PlanActivated,
        options: SimulationOptions | None = None,
        *,
        workers_up: bool = True,
        observe: Callable[[int, Event, list[Command]], None] | None = None,
    ) -> None:
        self.options = options or SimulationOptions()
        self.now_ns = 0
        self._scheduler = scheduler
        self._observe = observe
        self._rng = random.Random(self.options.seed)
        self._heap: list[tuple[int, int, int, Any, int]] = []
        self._sequence = 0
        self._wake_ns = -1
        self._workers: dict[str, SimWorker] = {}
        self._links = SimLinks()
        self._latency_ns: dict[tuple[str, int], list[int]] = {}
        self._transfer_ns: dict[tuple[str, int], int] = {}
        self._left_at: dict[int, str | None] = {}  # frame -> link where a single hop left its activations
        self._open: dict[int, Frame] = {}
        self._tallies: dict[int, _Tally] = {}
        self._skipped: dict[int, int] = {}
        self._files: dict[int, tuple[OfflineFile, Iterator[int]]] = {}
        self._frame_rows: list[FrameRow] = []
        self._stage_rows: list[StageRow] = []
        self._refused = 0
        self._may_miss = FAR_FUTURE_NS if self.options.most_missed is None else self.options.most_missed
        self._install(plan)
        for worker_id in self._workers if workers_up else ():
            self._workers[worker_id].up = True
            self._tell(WorkerUp(worker_id))
        self._tell(plan)

    def run(
        self,
        arrivals: Iterable[Arrival] = (),
        script: Iterable[tuple[int, Event]] = (),
        files: Iterable[OfflineFile] = (),
        *,
        until_ns: int | None = None,
    ) -> SimulationResult:
        """Runs until nothing is left to happen, or up to `until_ns`. Events of `script` reach the scheduler at their
        times; a lost worker also dies here, one that comes up lives, a plan brings its workers."""
        for at_ns, event in script:
            self._push(at_ns, _SCRIPT, event)
        for file in files:
            self._push(file.start_ns, _ARRIVAL, file)
        pending = iter(arrivals)
        arrival = next(pending, None)
        heap = self._heap
        while (heap or arrival is not None) and self._may_miss >= 0:
            if arrival is not None and (not heap or (arrival[0], _ARRIVAL) < (heap[0][0], heap[0][1])):
                if until_ns is not None and arrival[0] > until_ns:
                    break
                self.now_ns = max(self.now_ns, arrival[0])
                self._arrive(arrival[1])
                arrival = next(pending, None)
                continue
            if until_ns is not None and heap[0][0] > until_ns:
                break
            at_ns, kind, _, thing, life = heapq.heappop(heap)
            self.now_ns = at_ns
            if kind == _DONE:
                self._done(thing, life)
            elif kind == _READY:
                self._ready(thing, life)
            elif kind == _TICK:
                if at_ns == self._wake_ns:
                    self._wake_ns = -1
                    self._tell(Tick())
            elif kind == _ARRIVAL:
                if isinstance(thing, OfflineFile):
                    self._open_file(thing)
                else:
                    self._feed(thing)
            elif kind == _REPORT:
                self._tell(thing)
            else:
                self._play(thing)
        return self._result()

    @property
    def worker_ids(self) -> tuple[str, ...]:
        return tuple(self._workers)

    # What comes from outside

    def _arrive(self, frame: Frame) -> None:
        tally = self._tally(frame.stream_id)
        slots = self.options.slots_per_stream
        if slots and tally.open >= slots:
            self._tell(RoomWanted(frame.stream_id))
            if tally.open >= slots:
                self._skipped[frame.stream_id] = self._skipped.get(frame.stream_id, 0) + 1
                return
        self._ingest(frame, tally)

    def _ingest(self, frame: Frame, tally: _Tally) -> None:
        tally.ingested += 1
        tally.open += 1
        self._open[frame.id] = frame
        self._tell(FrameArrived(frame))

    def _open_file(self, file: OfflineFile) -> None:
        first = (file.stream_id + 1) << 40  # ids of its own, away from those of the arrivals
        self._files[file.stream_id] = (file, iter(range(first, first + file.frames)))
        for _ in range(file.in_flight):
            self._feed(file.stream_id)

    def _feed(self, stream_id: int) -> None:
        file, ids = self._files[stream_id]
        frame_id = next(ids, None)
        if frame_id is not None:
            frame = Frame(frame_id, stream_id, file.model, self.now_ns, self.now_ns, ServiceClass.OFFLINE)
            self._ingest(frame, self._tally(stream_id))

    def _play(self, event: Event) -> None:
        if isinstance(event, WorkerLost) and event.worker_id in self._workers:
            self._workers[event.worker_id].die()
        elif isinstance(event, WorkerUp):
            self._workers.setdefault(event.worker_id, SimWorker(event.worker_id)).up = True
        elif isinstance(event, PlanActivated):
            self._install(event)
        self._tell(event)

    def _install(self, event: PlanActivated) -> None:
        for pipeline in event.plan.pipelines:
            leaving_us = 0.0
            for stage in pipeline.stages:
                key = (pipeline.id, stage.index)
                self._latency_ns[key] = [max(1, round(us * 1000.0)) for us in stage.latency_us]
                self._transfer_ns[key] = round(max(leaving_us, stage.in_us) * 1000.0)
                leaving_us = stage.out_us
        for worker_ids in event.workers.values():
            for worker_id in worker_ids:
                worker = self._workers.setdefault(worker_id, SimWorker(worker_id))
                worker.link_id = event.links.get(worker_id)

    # The scheduler's door

    def _tell(self, event: Event) -> None:
        commands = self._scheduler.handle(event, self.now_ns)
        if self._observe is not None:
            self._observe(self.now_ns, event, commands)
        for command in commands:
            if type(command) is Dispatch:
                self._send(command)
            elif type(command) is Complete:
                self._end(command.frame_id, command.in_time, None)
            elif type(command) is Drop:
                self._end(command.frame_id, False, command.reason)
            elif type(command) is WakeAt:
                self._wake_ns = max(command.at_ns, self.now_ns)
                self._push(self._wake_ns, _TICK, None)

    def _end(self, frame_id: int, in_time: bool, dropped: DropReason | None) -> None:
        frame = self._open.pop(frame_id, None)
        if frame is None:
            raise RuntimeError(f"frame {frame_id} ended at {self.now_ns} ns, but it never came or had ended before")
        self._left_at.pop(frame_id, None)
        tally = self._tallies[frame.stream_id]
        tally.open -= 1
        if dropped is None:
            tally.completed += 1
            tally.in_time += in_time
            self._may_miss -= not in_time
        else:
            self._may_miss -= 1
            tally.dropped[dropped] = tally.dropped.get(dropped, 0) + 1
        if self.options.keep_rows:
            self._frame_rows.append(
                FrameRow(
                    frame_id,
                    frame.stream_id,
                    frame.model,
                    frame.capture_ns,
                    frame.deadline_ns,
                    self.now_ns,
                    in_time,
                    dropped,
                )
            )
        if frame.service_class is ServiceClass.OFFLINE and dropped is not DropReason.STREAM_REMOVED:
            self._push(self.now_ns, _ARRIVAL, frame.stream_id)

    # Workers and links

    def _send(self, dispatch: Dispatch) -> None:
        job = Job(dispatch)
        hop = dispatch.hops[0]
        target = self._workers[hop.worker_id]
        moved_ns = self._transfer_ns[dispatch.pipeline_id, hop.stage]
        arrived_ns = self.now_ns
        if moved_ns:
            if hop.stage == 0:
                arrived_ns = self._transferred(None, target, hop, moved_ns * len(dispatch.frames))
            else:
                counts: dict[str | None, int] = {}
                for frame_id in dispatch.frames:
                    source = self._left_at.get(frame_id)
                    counts[source] = counts.get(source, 0) + 1
                for source, count in counts.items():
                    at_ns = self._links.transfer(source, target.link_id, moved_ns * count, self.now_ns)
                    arrived_ns = max(arrived_ns, at_ns)
        self._deliver(job, target, arrived_ns)

    def _transferred(self, source: str | None, target: SimWorker, hop: Hop, moved_ns: int) -> int:
        reserved_ns = hop.input_ns - moved_ns if hop.input_ns else None
        return self._links.transfer(source, target.link_id, moved_ns, self.now_ns, reserved_ns)

    def _deliver(self, job: Job, target: SimWorker, arrived_ns: int) -> None:
        if not target.up:
            return  # lost with the worker, which the scheduler hears of or knows
        if arrived_ns > self.now_ns:
            self._push(arrived_ns, _READY, job, target.life)
        else:
            self._ready(job, target.life)

    def _ready(self, job: Job, life: int) -> None:
        worker = self._workers[job.hop.worker_id]
        if worker.up and worker.life == life:
            worker.add(job)
            if worker.running is None:
                self._start_next(worker)

    def _start_next(self, worker: SimWorker) -> None:
        while worker.ready:
            job = heapq.heappop(worker.ready)[2]
            hop = job.hop
            if self.now_ns > hop.latest_ns:
                self._refused += 1
                refusal = StageRefused(job.dispatch.batch_id, hop.stage, worker.id, RefusalReason.TOO_LATE)
                self._push(self.now_ns + self.options.report_delay_ns, _REPORT, refusal)
                continue
            if self.now_ns < hop.earliest_ns:
                self._push(hop.earliest_ns, _READY, job, worker.life)
                continue
            table = self._latency_ns[job.dispatch.pipeline_id, hop.stage]
            size = len(job.dispatch.frames)
            duration_ns = self.options.service.duration_ns(table[min(size, len(table)) - 1], self._rng)
            job.start_ns = self.now_ns
            worker.running = job
            worker.busy_ns += duration_ns
            self._push(self.now_ns + duration_ns, _DONE, worker, worker.life)
            return

    def _done(self, worker: SimWorker, life: int) -> None:
        job = worker.running
        if job is None or worker.life != life:
            return
        worker.running = None
        dispatch, hop = job.dispatch, job.hop
        if worker.ready:
            self._start_next(worker)
        finished = StageFinished(dispatch.batch_id, hop.stage, worker.id, job.start_ns, self.now_ns)
        if self.options.keep_rows:
            self._stage_rows.append(
                StageRow(
                    dispatch.batch_id,
                    dispatch.pipeline_id,
                    hop.stage,
                    worker.id,
                    dispatch.frames,
                    hop.start_ns,
                    hop.end_ns,
                    job.start_ns,
                    self.now_ns,
                )
            )
        if job.go_on():
            target = self._workers[job.hop.worker_id]
            moved_ns = self._transfer_ns[dispatch.pipeline_id, job.hop.stage] * len(dispatch.frames)
            self._deliver(job, target, self._transferred(worker.link_id, target, job.hop, moved_ns))
        elif (dispatch.pipeline_id, hop.stage + 1) in self._latency_ns:
            for frame_id in dispatch.frames:
                if frame_id in self._open:
                    self._left_at[frame_id] = worker.link_id
        if self.options.report_delay_ns:
            self._push(self.now_ns + self.options.report_delay_ns, _REPORT, finished)
        else:
            self._tell(finished)

    def _push(self, at_ns: int, kind: int, thing: Any, life: int = 0) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, kind, self._sequence, thing, life))

    def _tally(self, stream_id: int) -> _Tally:
        tally = self._tallies.get(stream_id)
        if tally is None:
            tally = self._tallies[stream_id] = _Tally()
        return tally

    def _result(self) -> SimulationResult:
        return SimulationResult(
            streams={
                stream_id: OutcomeCounts(tally.ingested, tally.completed, tally.in_time, dict(tally.dropped))
                for stream_id, tally in self._tallies.items()
            },
            frames=tuple(self._frame_rows),
            stages=tuple(self._stage_rows),
            busy_ns={worker.id: worker.busy_ns for worker in self._workers.values()},
            skipped=dict(self._skipped),
            refused=self._refused,
            end_ns=self.now_ns,
        )
