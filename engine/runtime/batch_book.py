"""Batches between being sent and being heard of: their orders, and the slots that they hold meanwhile.

A batch holds the activation slots its hops write, those of earlier batches it reads, and its frames' feeds. They are
given back when every hop was reported, refused, or died with its worker; a hop whose order may have been lost between
two workers is waited for until `EXPIRY_NS` after its predicted end, for nobody else may write its slot before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from framepool.engine.errors import DeviceError
from framepool.engine.planning.plan import Pipeline
from framepool.engine.runtime import messages as m
from framepool.engine.runtime.activations import ActivationPool, ActivationSlot
from framepool.engine.runtime.feeds import Feed, LiveBatch, LiveFrame, WorkerLink
from framepool.engine.scheduling.commands import Dispatch

log = structlog.get_logger("framepool.batches")

HANG_TIMEOUT_NS = 10_000_000_000
"""A worker that has not reported an order so long after its predicted end is taken for hung."""
EXPIRY_NS = 30_000_000_000
"""Slots of a batch whose hand-over was lost between two workers are freed so long after its predicted end."""

Pools = Mapping[tuple[str, int], ActivationPool]
"""Activation pools by pipeline id and stage."""


class BatchBook:
    """Open batches by id. `workers` is the flow's table; `release_feed` is called once a frame of a closed batch."""

    def __init__(self, workers: Mapping[str, WorkerLink], release_feed: Callable[[Feed], None]) -> None:
        self._workers = workers
        self._release_feed = release_feed
        self._open: dict[int, LiveBatch] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, batch_id: int) -> LiveBatch | None:
        return self._open.get(batch_id)

    def open(
        self, command: Dispatch, pipeline: Pipeline, frames: Sequence[LiveFrame], pools: Pools, now_ns: int
    ) -> m.BatchOrder | None:
        """Books a batch and makes its order; None, with nothing booked, where a slot or a worker is missing."""
        fresh = command.hops[0].stage == 0
        inputs = [] if fresh else [frame.activation for frame in frames if frame.activation is not None]
        if not fresh and len(inputs) < len(frames):
            return None
        outputs = self._lease_outputs(command, pipeline, len(frames), pools)
        hops = None if outputs is None else self._hop_orders(command, outputs)
        if outputs is None or hops is None:
            _drop(outputs or ())
            return None
        for slot in inputs:
            slot.hold()
        self._open[command.batch_id] = LiveBatch(
            frames,
            [hop.worker_id for hop in command.hops],
            [hop.stage for hop in command.hops],
            outputs,
            inputs,
            command.hops[-1].end_ns + EXPIRY_NS,
        )
        for frame in frames:
            frame.feed.users += 1
        for hop in command.hops:
            self._workers[hop.worker_id].waiting[command.batch_id] = max(hop.end_ns, now_ns) + HANG_TIMEOUT_NS
        return m.BatchOrder(
            command.batch_id,
            tuple(m.FrameInput(f.id, f.feed.ref, f.lease.slot, f.lease.generation, f.transform) for f in frames),
            () if fresh else tuple(_row_inputs(frames)),
            hops,
            0,
            now_ns,
        )

    @staticmethod
    def _lease_outputs(
        command: Dispatch, pipeline: Pipeline, rows: int, pools: Pools
    ) -> list[ActivationSlot | None] | None:
        """A slot for every hop but the model's last stage; None where there is no room."""
        outputs: list[ActivationSlot | None] = []
        for hop in command.hops:
            if hop.stage + 1 == len(pipeline.stages):
                outputs.append(None)
                continue
            try:
                slot = pools[pipeline.id, hop.stage].lease(rows)
            except DeviceError as exc:
                log.error("no room for activations", cause=str(exc))
                slot = None
            if slot is None:
                _drop(outputs)
                return None
            outputs.append(slot)
        return outputs

    def _hop_orders(self, command: Dispatch, outputs: Sequence[ActivationSlot | None]) -> tuple[m.HopOrder, ...] | None:
        hops = []
        for hop, output in zip(command.hops, outputs, strict=True):
            link = self._workers.get(hop.worker_id)
            if link is None:
                return None
            hops.append(
                m.HopOrder(
                    hop.stage,
                    hop.worker_id,
                    link.endpoint,
                    hop.earliest_ns,
                    hop.latest_ns,
                    hop.start_ns,
                    output.arena if output is not None else None,
                    output.slot if output is not None else 0,
                    output.generation if output is not None else 0,
                )
            )
        return tuple(hops)

    def reported(self, worker_id: str, batch_id: int) -> None:
        """The worker is not waited for any more."""
        link = self._workers.get(worker_id)
        if link is not None:
            link.waiting.pop(batch_id, None)

    def settle_from(self, batch_id: int, stage: int) -> None:
        """The batch ended at `stage`: refused or failed there."""
        batch = self._open.get(batch_id)
        if batch is not None and stage in batch.stages:
            self.settle(batch_id, batch.stages.index(stage), ended=True)

    def settle(self, batch_id: int, hop: int, *, ended: bool) -> None:
        """Hop `hop` is heard of; with `ended`, the hops after it will never be reached."""
        batch = self._open.get(batch_id)
        if batch is None:
            return
        for index in range(hop, len(batch.stages) if ended else hop + 1):
            if index in batch.open_hops:
                batch.open_hops.discard(index)
                self.reported(batch.workers[index], batch_id)
        if not batch.open_hops:
            self._close(batch_id, batch)

    def worker_gone(self, worker_id: str) -> None:
        """The worker died. Workers after it may wait for its hand-over in vain: they are not taken for hung."""
        for batch_id, batch in list(self._open.items()):
            for hop in [hop for hop in batch.open_hops if batch.workers[hop] == worker_id]:
                for later in range(hop + 1, len(batch.workers)):
                    self.reported(batch.workers[later], batch_id)
                self.settle(batch_id, hop, ended=False)

    def expire(self, now_ns: int) -> None:
        """Frees batches whose hand-over was lost."""
        for batch_id, batch in list(self._open.items()):
            if batch.expires_ns < now_ns:
                for index in batch.open_hops:
                    self.reported(batch.workers[index], batch_id)
                self._close(batch_id, batch)

    def _close(self, batch_id: int, batch: LiveBatch) -> None:
        if self._open.pop(batch_id, None) is None:
            return
        _drop(batch.outputs)
        for slot in batch.inputs:
            slot.drop()
        for feed in batch.feeds:
            self._release_feed(feed)


def _drop(outputs: Sequence[ActivationSlot | None]) -> None:
    for output in outputs:
        if output is not None:
            output.drop()


def _row_inputs(frames: Sequence[LiveFrame]) -> Iterator[m.RowInput]:
    for frame in frames:
        slot = frame.activation
        if slot is not None:
            yield m.RowInput(slot.arena, slot.slot, slot.generation, frame.activation_row, slot.rows)
