"""A stage worker over real sockets and shared memory, with a stage that counts: order, refusal, failure, hand-over."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framepool.engine.runtime import messages as m
from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.backends.base import Array
from framepool.engine.runtime.devices import DeviceSettings, StageSettings
from framepool.engine.runtime.layout import SlotLayout
from framepool.engine.runtime.stage_worker import StageRunner, StageWorker, WorkerConfig, tensor_infos
from framepool.engine.runtime.transport import Node
from framepool.engine.scheduling.events import RefusalReason
from framepool.models.detections import Detections
from framepool.models.letterbox import Transform
from framepool.models.spec import FRAME_INPUT

PICTURE = (2, 2, 3)
FOREVER_NS = 10**18
TRANSFORM = (1.0, 1.0, 0.0, 0.0, 2.0, 2.0)
MIDDLE = (("sum", "float32", (1,)), ("picture", "float32", PICTURE))


class FirstStage:
    """picture uint8 [N, 2, 2, 3] -> its float copy and its sum. A picture of 13s can't be run."""

    facts: Any = None
    batches: list[int]

    def __init__(self) -> None:
        self.batches = []

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        pictures = inputs[FRAME_INPUT]
        self.batches.append(len(pictures))
        if (pictures == 13).all(axis=(1, 2, 3)).any():
            raise RuntimeError("thirteen")
        outputs["picture"][...] = pictures
        outputs["sum"][...] = pictures.sum(axis=(1, 2, 3), dtype=np.float32)[:, None]
        return outputs


class LastStage:
    """sum, picture -> score = sum / 100."""

    facts: Any = None

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"score": inputs["sum"] / 100}


class OneBoxHead:
    """One box a frame, with the stage's score. A score above 1 can't be decoded."""

    def decode(self, outputs: Mapping[str, Array], transforms: Sequence[Transform]) -> list[Detections]:
        scores = outputs["score"][:, 0]
        if (scores > 1).any():
            raise ValueError("no score")
        assert len(transforms) == len(scores)
        return [
            Detections(np.zeros((1, 4), np.float32), np.array([score], np.float32), np.zeros(1, np.int32))
            for score in scores
        ]


def config(folder: Path, stage: int) -> WorkerConfig:
    inputs = ((FRAME_INPUT, "uint8", PICTURE),) if stage == 0 else MIDDLE
    outputs = MIDDLE if stage == 0 else (("score", "float32", (1,)),)
    return WorkerConfig(
        f"w{stage}.1", f"w{stage}", "", f"{folder}/engine", f"{folder}/w{stage}",
        DeviceSettings("d", "d", "none", "cpu", "fp32", ()), StageSettings("", inputs, outputs, 4, 1), stage, None, 0,
        False,
    )  # fmt: skip


class Rig:
    """The engine's end of two workers, each on a thread."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(m.ENGINE, f"{folder}/engine")
        self.heard: deque[bytes] = deque()
        name = f"framepool-test-{uuid.uuid4().hex[:8]}"
        self.frames = Arena.create(ArenaSpec(f"{name}-f", 8, 12))
        self.layout = SlotLayout.of(tensor_infos(MIDDLE), 4)
        self.middle = Arena.create(ArenaSpec(f"{name}-m", 8, self.layout.total_bytes))
        self.endpoints = [f"{folder}/w{stage}" for stage in (0, 1)]
        self.first = FirstStage()
        self.threads = []
        self.nodes = []
        for stage, loaded, head in ((0, self.first, None), (1, LastStage(), OneBoxHead())):
            settings = config(folder, stage)
            node = Node(settings.child_id, settings.own_endpoint)
            assert node.dial(m.ENGINE, settings.engine_endpoint)
            worker = StageWorker(settings, StageRunner(settings, loaded, head), node)
            self.nodes.append(node)
            worker.report(m.ChildReady(settings.child_id, "", {}, ()))
            self.threads.append(threading.Thread(target=worker.serve))
            self.threads[-1].start()
        assert {self.hear().child_id for _ in range(2)} == {"w0.1", "w1.1"}

    def hear(self, timeout_s: float = 5.0) -> Any:
        until_s = time.monotonic() + timeout_s
        while not self.heard:
            assert time.monotonic() < until_s, "no report came"
            self.heard.extend(data for _, data in self.node.wait(0.1))
        return m.decode_report.decode(self.heard.popleft())

    def hear_all(self, count: int) -> dict[tuple[int, int], Any]:
        return {(report.batch_id, report.stage): report for report in (self.hear() for _ in range(count))}

    def send(self, stage: int, order: m.Order) -> None:
        assert self.node.send(f"w{stage}.1", m.encoder.encode(order))

    def picture(self, slot: int, value: int, generation: int = 1) -> m.FrameInput:
        self.frames.stamp(slot, generation)
        self.frames.payload(slot)[:] = value
        ref = m.ArenaRef(self.frames.spec.name, 8, 12)
        return m.FrameInput(100 + slot, ref, slot, generation, TRANSFORM)

    def hop(self, stage: int, *, slot: int = 0, start_ns: int = 0, earliest_ns: int = 0, latest_ns: int = FOREVER_NS):
        out = m.ArenaRef(self.middle.spec.name, 8, self.layout.total_bytes) if stage == 0 else None
        return m.HopOrder(stage, f"w{stage}", self.endpoints[stage], earliest_ns, latest_ns, start_ns, out, slot, 7)

    def order(self, batch_id: int, frames: Sequence[m.FrameInput], hops: Sequence[m.HopOrder], rows: Any = ()):
        return m.BatchOrder(batch_id, tuple(frames), tuple(rows), tuple(hops), 0, time.monotonic_ns())

    def close(self) -> None:
        for stage in (0, 1):
            self.send(stage, m.Stop())
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()
        for node in (*self.nodes, self.node):
            node.close()
        self.frames.unlink()
        self.middle.unlink()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def scores_of(report: Any) -> list[tuple[int, float]]:
    return [(r.frame_id, pytest.approx(float(np.frombuffer(r.scores, np.float32)[0]))) for r in report.results]


def test_a_batch_goes_through_both_stages_from_worker_to_worker(rig: Rig) -> None:
    frames = [rig.picture(0, 1), rig.picture(1, 2), rig.picture(2, 5)]
    rig.send(0, rig.order(1, frames, [rig.hop(0), rig.hop(1)]))
    heard = rig.hear_all(2)
    assert scores_of(heard[1, 1]) == [(100, 0.12), (101, 0.24), (102, 0.60)]
    assert heard[1, 0].results == ()
    assert heard[1, 0].failure == ""
    for report in heard.values():
        assert report.received_ns <= report.start_ns <= report.input_ns <= report.infer_ns <= report.end_ns


def test_frames_of_unlike_batches_are_gathered_row_by_row(rig: Rig) -> None:
    """A later stage may batch frames that were apart before: each gets its own row, whatever lies beside it."""
    rig.send(0, rig.order(1, [rig.picture(0, 1), rig.picture(1, 2)], [rig.hop(0, slot=0)]))
    rig.send(0, rig.order(2, [rig.picture(2, 3), rig.picture(3, 4), rig.picture(4, 5)], [rig.hop(0, slot=1)]))
    rig.hear_all(2)
    ref = m.ArenaRef(rig.middle.spec.name, 8, rig.layout.total_bytes)
    rows = [m.RowInput(ref, 1, 7, 2, 3), m.RowInput(ref, 0, 7, 0, 2), m.RowInput(ref, 1, 7, 0, 3)]
    frames = [rig.picture(4, 5), rig.picture(0, 1), rig.picture(2, 3)]
    rig.send(1, rig.order(3, frames, [rig.hop(1)], rows))
    assert scores_of(rig.hear()) == [(104, 0.60), (100, 0.12), (102, 0.36)]
    rig.send(1, rig.order(4, frames[1:2], [rig.hop(1)], rows[1:2]))
    assert scores_of(rig.hear()) == [(100, 0.12)]


def test_what_was_reserved_first_runs_first(rig: Rig) -> None:
    """Orders that wait are run by their reserved start, whenever they came in."""
    at_ns = time.monotonic_ns() + 300_000_000
    for batch_id, later_ns in ((1, 3), (2, 1), (3, 2)):
        rig.send(0, rig.order(batch_id, [rig.picture(batch_id, 1)],
                              [rig.hop(0, slot=batch_id, earliest_ns=at_ns, start_ns=at_ns + later_ns)]))  # fmt: skip
    reports = [rig.hear() for _ in range(3)]
    assert [report.batch_id for report in reports] == [2, 3, 1]
    assert all(report.start_ns >= at_ns for report in reports)


def test_what_can_not_start_in_time_is_refused_and_not_run(rig: Rig) -> None:
    rig.send(0, rig.order(1, [rig.picture(0, 1)], [rig.hop(0, latest_ns=time.monotonic_ns() - 1), rig.hop(1)]))
    refusal = rig.hear()
    assert (refusal.batch_id, refusal.stage, refusal.reason) == (1, 0, RefusalReason.TOO_LATE.value)
    assert rig.first.batches == []


def test_a_slot_that_was_given_to_another_frame_is_not_read(rig: Rig) -> None:
    stale = rig.picture(0, 1, generation=1)
    rig.picture(0, 9, generation=2)
    rig.send(0, rig.order(1, [stale], [rig.hop(0)]))
    assert rig.hear().reason == RefusalReason.NO_INPUT.value
    rig.send(1, rig.order(2, [stale], [rig.hop(1)], [m.RowInput(m.ArenaRef("gone", 1, 1), 0, 1, 0, 1)]))
    assert rig.hear().reason == RefusalReason.NO_INPUT.value


def test_a_batch_that_fails_is_told_of_and_the_worker_goes_on(rig: Rig) -> None:
    rig.send(0, rig.order(1, [rig.picture(0, 13)], [rig.hop(0), rig.hop(1)]))
    failure = rig.hear()
    assert isinstance(failure, m.StageFailure)
    assert failure.message == "RuntimeError: thirteen"
    rig.send(0, rig.order(2, [rig.picture(1, 1)], [rig.hop(0), rig.hop(1)]))
    assert set(rig.hear_all(2)) == {(2, 0), (2, 1)}


def test_a_frame_whose_detections_can_not_be_decoded_costs_only_itself(rig: Rig) -> None:
    frames = [rig.picture(0, 1), rig.picture(1, 200), rig.picture(2, 5)]
    rig.send(0, rig.order(1, frames, [rig.hop(0), rig.hop(1)]))
    last = rig.hear_all(2)[1, 1]
    assert scores_of(last) == [(100, 0.12), (102, 0.60)]
    assert last.failed_frames == (101,)


def test_a_worker_finishes_what_it_has_before_it_ends(rig: Rig) -> None:
    at_ns = time.monotonic_ns() + 200_000_000
    rig.send(0, rig.order(1, [rig.picture(0, 1)], [rig.hop(0, earliest_ns=at_ns, start_ns=at_ns)]))
    rig.send(0, m.Stop())
    assert rig.hear().batch_id == 1
    rig.threads[0].join(5)
    assert not rig.threads[0].is_alive()
