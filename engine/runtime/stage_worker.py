"""The stage worker process: one stage of one model on one virtual device.

    engine <==node==> (orders in, reports out)   worker <--- orders from the worker before
                                                   |-------> the worker after

Single-threaded: take in all orders that wait, run the one with the earliest reserved start whose window is open, hand
its result on, report. An order that can't start by its `latest_ns` is refused, not run. A worker never frees memory;
it reads and writes the slots that its orders name, after checking their generations.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from framepool import FramepoolError
from framepool.engine.runtime import messages as m
from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.backends.base import Array, LoadedStage
from framepool.engine.runtime.backends.registry import backend_loader
from framepool.engine.runtime.child import enter_child, pin_to_cores
from framepool.engine.runtime.devices import DeviceSettings, StageSettings
from framepool.engine.runtime.layout import SlotLayout
from framepool.engine.runtime.transport import Node
from framepool.engine.scheduling.events import RefusalReason
from framepool.models.detections import Detections
from framepool.models.heads import Head, build_head
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import FRAME_INPUT, ModelSpec

IDLE_WAIT_S = 1.0
LINGER_S = 0.5
MEASURED_RUNS = 5


class WorkerConfig(msgspec.Struct, frozen=True):
    """What a stage worker is told at its start. `spec` is given where this is the model's last stage."""

    child_id: str
    worker_id: str
    title: str
    engine_endpoint: str
    own_endpoint: str
    device: DeviceSettings
    stage: StageSettings
    stage_index: int
    spec: ModelSpec | None
    niceness: int
    measure: bool


def tensor_infos(entries: Sequence[tuple[str, str, tuple[int | None, ...]]]) -> tuple[TensorInfo, ...]:
    """Stage edges as `TensorInfo`s."""
    return tuple(TensorInfo(name, dtype, tuple(shape)) for name, dtype, shape in entries)


class InputGone(Exception):
    """The slot no longer holds what the order was sent for."""


class ArenaMaps:
    """Arenas this process has mapped, by name."""

    def __init__(self) -> None:
        self._arenas: dict[str, Arena] = {}

    def get(self, ref: m.ArenaRef) -> Arena:
        """The mapped arena; raises InputGone when it was unlinked already."""
        arena = self._arenas.get(ref.name)
        if arena is None:
            try:
                arena = Arena.attach(ArenaSpec(ref.name, ref.slots, ref.slot_bytes))
            except FileNotFoundError as exc:
                raise InputGone(ref.name) from exc
            self._arenas[ref.name] = arena
        return arena

    def drop(self, name: str) -> None:
        self._arenas.pop(name, None)


class StageRunner:
    """Runs orders on the loaded stage: gathers inputs, runs the model, decodes with the head."""

    def __init__(self, config: WorkerConfig, loaded: LoadedStage, head: Head | None) -> None:
        self._inputs = tensor_infos(config.stage.inputs)
        self._outputs = tensor_infos(config.stage.outputs)
        self._loaded = loaded
        self._head = head
        self._pictures: Array | None = None
        self.maps = ArenaMaps()

    def warm_up(self, max_batch: int) -> None:
        """Runs batches of 1 and of `max_batch` on zeros, so that the first frame meets a warm model."""
        for batch in {1, max_batch}:
            inputs = self._zeros(batch)
            for _ in range(2):
                self._loaded.run(inputs, {})

    def _zeros(self, batch: int) -> dict[str, Array]:
        return {t.name: np.zeros((batch, *(dim or 1 for dim in t.shape)), dtype=t.dtype) for t in self._inputs}

    def measure_us(self, max_batch: int) -> tuple[float, ...]:
        """Median microseconds of batches of 1 to `max_batch`; those beyond 4 are interpolated between powers of two."""
        sizes = sorted({1, 2, 3, 4, *(2**i for i in range(3, 7)), max_batch} & set(range(1, max_batch + 1)))
        measured = []
        for batch in sizes:
            inputs = self._zeros(batch)
            times = []
            for _ in range(MEASURED_RUNS):
                start_ns = time.monotonic_ns()
                self._loaded.run(inputs, {})
                times.append(time.monotonic_ns() - start_ns)
            measured.append(float(np.median(times)) / 1e3)
        every = range(1, max_batch + 1)
        return tuple(float(us) for us in np.interp(every, sizes, measured))

    def gather(self, order: m.BatchOrder) -> Mapping[str, Array]:
        """The inputs of hops[hop], batch-first and contiguous; raises InputGone."""
        hop = order.hops[order.hop]
        if order.hop > 0:
            before = order.hops[order.hop - 1]
            if before.output_arena is None:
                raise InputGone("no hand-over slot")
            layout = SlotLayout.of(self._inputs, len(order.frames))
            return layout.views(self._read(before.output_arena, before.output_slot, before.output_generation))
        if hop.stage == 0:
            return {FRAME_INPUT: self._gather_pictures(order.frames)}
        return self._gather_rows(order.rows)

    def _gather_pictures(self, frames: Sequence[m.FrameInput]) -> Array:
        shape = tuple(dim or 0 for dim in self._inputs[0].shape)
        size = int(np.prod(shape))
        if len(frames) == 1:
            frame = frames[0]
            return self._read(frame.arena, frame.slot, frame.generation)[:size].reshape(1, *shape)
        if self._pictures is None or len(self._pictures) < len(frames):
            self._pictures = np.empty((len(frames), *shape), dtype=np.uint8)
        batch: Array = self._pictures[: len(frames)]
        for row, frame in enumerate(frames):
            batch[row] = self._read(frame.arena, frame.slot, frame.generation)[:size].reshape(shape)
        return batch

    def _gather_rows(self, rows: Sequence[m.RowInput]) -> Mapping[str, Array]:
        parts = []
        for ref in rows:
            views = SlotLayout.of(self._inputs, ref.rows).views(self._read(ref.arena, ref.slot, ref.generation))
            parts.append({name: view[ref.row : ref.row + 1] for name, view in views.items()})
        if len(parts) == 1:
            return parts[0]
        return {t.name: np.concatenate([part[t.name] for part in parts]) for t in self._inputs}

    def _read(self, ref: m.ArenaRef, slot: int, generation: int) -> Array:
        arena = self.maps.get(ref)
        if arena.generation(slot) != generation:
            raise InputGone(f"{ref.name}[{slot}]")
        return arena.payload(slot)

    def infer(self, hop: m.HopOrder, inputs: Mapping[str, Array], rows: int) -> Mapping[str, Array]:
        """Runs the model; the outputs of an inner stage are written into the hop's activation slot."""
        if hop.output_arena is None:
            return self._loaded.run(inputs, {})
        arena = self.maps.get(hop.output_arena)
        arena.stamp(hop.output_slot, hop.output_generation)
        views = SlotLayout.of(self._outputs, rows).views(arena.payload(hop.output_slot))
        return self._loaded.run(inputs, views)

    def decode(
        self, frames: Sequence[m.FrameInput], outputs: Mapping[str, Array]
    ) -> tuple[tuple[m.FrameResult, ...], tuple[int, ...]]:
        """Detections of each frame, and the ids of frames whose decoding failed."""
        if self._head is None:
            return (), ()
        transforms = [Transform.from_tuple(frame.transform) for frame in frames]
        try:
            found = self._head.decode(outputs, transforms)
        except Exception:
            if len(frames) == 1:
                raise
            return self._decode_singly(frames, outputs)
        return tuple(frame_result(frame.frame_id, d) for frame, d in zip(frames, found, strict=True)), ()

    def _decode_singly(
        self, frames: Sequence[m.FrameInput], outputs: Mapping[str, Array]
    ) -> tuple[tuple[m.FrameResult, ...], tuple[int, ...]]:
        results: list[m.FrameResult] = []
        failed: list[int] = []
        for row, frame in enumerate(frames):
            try:
                single = {name: value[row : row + 1] for name, value in outputs.items()}
                results.extend(self.decode([frame], single)[0])
            except Exception:
                failed.append(frame.frame_id)
        return tuple(results), tuple(failed)


def frame_result(frame_id: int, found: Detections) -> m.FrameResult:
    """Detections as they travel."""
    keypoints = found.keypoints
    return m.FrameResult(
        frame_id,
        np.ascontiguousarray(found.boxes, np.float32).tobytes(),
        np.ascontiguousarray(found.scores, np.float32).tobytes(),
        np.ascontiguousarray(found.classes, np.int32).tobytes(),
        b"" if keypoints is None else np.ascontiguousarray(keypoints, np.float32).tobytes(),
        0 if keypoints is None else int(keypoints.shape[1]),
        b"" if found.embedding is None else np.ascontiguousarray(found.embedding, np.float32).tobytes(),
    )


class StageWorker:
    """The loop: orders in, reports out."""

    def __init__(self, config: WorkerConfig, runner: StageRunner, node: Node) -> None:
        self._config = config
        self._runner = runner
        self._node = node
        self._peers: dict[str, str] = {}
        self._queue: list[tuple[int, int, int, m.BatchOrder]] = []
        self._stopping = False

    def serve(self) -> None:
        """Runs until told to stop and nothing is queued."""
        while not (self._stopping and not self._queue):
            for _, data in self._node.wait(self._wait_s()):
                self._take_in(m.decode_order.decode(data))
            if self._queue and self._queue[0][3].hops[self._queue[0][3].hop].earliest_ns <= time.monotonic_ns():
                _, _, received_ns, order = heapq.heappop(self._queue)
                self._execute(order, received_ns)

    def report(self, report: m.Report) -> None:
        """Tells the engine. Raises ConnectionError where it has not listened for long."""
        if not self._node.send(m.ENGINE, m.encoder.encode(report)):
            raise ConnectionError("the engine takes no reports")

    def _wait_s(self) -> float:
        if not self._queue:
            return IDLE_WAIT_S
        order = self._queue[0][3]
        return max(0.0, (order.hops[order.hop].earliest_ns - time.monotonic_ns()) / 1e9)

    def _take_in(self, order: m.Order) -> None:
        match order:
            case m.BatchOrder():
                start_ns = order.hops[order.hop].start_ns
                heapq.heappush(self._queue, (start_ns, order.batch_id, time.monotonic_ns(), order))
            case m.ArenaGone():
                self._runner.maps.drop(order.name)
            case m.Stop():
                self._stopping = True

    def _execute(self, order: m.BatchOrder, received_ns: int) -> None:
        hop = order.hops[order.hop]
        start_ns = time.monotonic_ns()
        if start_ns > hop.latest_ns:
            self._refuse(order, hop, RefusalReason.TOO_LATE)
            return
        try:
            inputs = self._runner.gather(order)
            input_ns = time.monotonic_ns()
            outputs = self._runner.infer(hop, inputs, len(order.frames))
            infer_ns = time.monotonic_ns()
            results, failed = ((), ()) if hop.output_arena else self._runner.decode(order.frames, outputs)
        except InputGone:
            self._refuse(order, hop, RefusalReason.NO_INPUT)
            return
        except Exception as exc:  # whatever the runtime raises is this batch's failure, not the worker's
            text = f"{type(exc).__name__}: {exc}"[:500]
            self.report(m.StageFailure(order.batch_id, hop.stage, self._config.worker_id, text))
            return
        failure = self._hand_on(order)
        self.report(
            m.StageReport(
                order.batch_id,
                hop.stage,
                self._config.worker_id,
                order.sent_ns,
                received_ns,
                start_ns,
                input_ns,
                infer_ns,
                time.monotonic_ns(),
                results,
                failed,
                failure,
            )
        )

    def _hand_on(self, order: m.BatchOrder) -> str:
        """Sends the order to the next hop; returns "" or why it could not."""
        if order.hop + 1 == len(order.hops):
            return ""
        target = order.hops[order.hop + 1]
        onward = msgspec.structs.replace(order, hop=order.hop + 1, sent_ns=time.monotonic_ns())
        if self._reach(target.worker_id, target.endpoint) and self._node.send(
            target.worker_id, m.encoder.encode(onward)
        ):
            return ""
        return f"worker {target.worker_id} takes no orders"

    def _reach(self, worker_id: str, endpoint: str) -> bool:
        """Sees to a connection to a worker; one that was restarted has a new endpoint."""
        if self._peers.get(worker_id) == endpoint and self._node.knows(worker_id):
            return True
        self._node.hang_up(worker_id)
        self._peers[worker_id] = endpoint
        return self._node.dial(worker_id, endpoint)

    def _refuse(self, order: m.BatchOrder, hop: m.HopOrder, reason: RefusalReason) -> None:
        self.report(m.StageRefusal(order.batch_id, hop.stage, self._config.worker_id, reason.value))


def main() -> int:
    """Process entry: configuration on standard input, ready or refused told to the engine, then serve."""
    config = msgspec.msgpack.decode(enter_child("framepool: stage worker"), type=WorkerConfig)
    import setproctitle

    setproctitle.setproctitle(config.title)
    pin_to_cores(config.device.cores, config.niceness)
    node = Node(config.child_id, config.own_endpoint)
    node.dial(m.ENGINE, config.engine_endpoint)
    try:
        loaded = backend_loader(config.device.backend)(config.stage, config.device)
        outputs = tensor_infos(config.stage.outputs)
        head = build_head(config.spec, outputs) if config.spec is not None else None
        runner = StageRunner(config, loaded, head)
        runner.warm_up(config.stage.max_batch)
        latency_us = runner.measure_us(config.stage.max_batch) if config.measure else ()
    except Exception as exc:  # the engine must hear the cause, whatever it is
        kind = type(exc).__name__ if isinstance(exc, FramepoolError) else "DeviceError"
        refusal = m.ChildRefused(config.child_id, kind, str(exc)[:2000])
        node.send(m.ENGINE, m.encoder.encode(refusal))
        node.close(LINGER_S)
        return 1
    worker = StageWorker(config, runner, node)
    facts = loaded.facts
    worker.report(
        m.ChildReady(
            config.child_id,
            config.own_endpoint,
            {"hardware": facts.hardware, "runtime": facts.runtime, "provider": facts.provider},
            latency_us,
        )
    )
    worker.serve()
    node.close(LINGER_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
