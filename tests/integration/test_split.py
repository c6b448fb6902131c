"""A split changes nothing: what the stages give live is what the whole model gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import engine_rig as rig
import pytest
from whole_model import detections_as_tuples, rows_as_tuples, whole_model_results

from framepool.benchmarks.demo import iou
from framepool.engine.control import DetectionFilter, FrameDetections, StreamState
from framepool.engine.core import Engine
from framepool.engine.planning.plan import PlacedPlan
from framepool.engine.scheduling.events import ServiceClass

SPLIT = {"min_stages": 2, "max_stages": 2, "distinct_classes": True}
FRAMES = 300


def run_offline(engine: Engine, names: list[str]) -> dict[tuple[str, int], FrameDetections]:
    """Reads the clip in full through the engine, once a name, all at the same time."""
    for name in names:
        engine.register_stream(rig.clip_stream(name, service_class=ServiceClass.OFFLINE))
    done = {StreamState.FINISHED}
    assert rig.until(lambda: {s.state for s in engine.list_streams()} == done, 90), engine.list_streams()
    assert rig.until(lambda: rig.balanced(engine.stats()), 10)
    found: dict[tuple[str, int], FrameDetections] = {}
    token = ""
    while True:
        page = engine.query_detections(DetectionFilter(), 500, token)
        found.update({(frame.stream, frame.seq): frame for frame in page.frames})
        token = page.next_page_token
        if not token:
            return found


def stages_of(placed: PlacedPlan) -> set[tuple[str, ...]]:
    return {tuple(stage.device_class for stage in pipeline.stages) for pipeline in placed.plan.pipelines}


@pytest.mark.parametrize("policy", ["framepool", "ppipe", "reactive"])
def test_two_stages_on_onnxruntime_are_bit_exact(state_dir: Path, policy: str) -> None:
    """Live, two streams whose frames share batches: every box, class and score as one session gives it."""
    with rig.engine(state_dir, rig.onnxruntime_pair(), planner=SPLIT, scheduler={"policy": policy}) as engine:
        entry = engine._registry.get("nanodet")
        found = run_offline(engine, ["one", "two"])
        assert all(len(set(classes)) == 2 for classes in stages_of(engine.plan()))
        stats = engine.stats()
    assert stats.totals.completed == stats.totals.ingested == 2 * FRAMES
    expected = whole_model_results(entry, rig.CLIP, FRAMES)
    for name in ("one", "two"):
        for seq, reference in enumerate(expected):
            live = found.get((name, seq))
            rows = rows_as_tuples(live.rows) if live is not None else []
            assert rows == detections_as_tuples(reference), (name, seq)


def test_unlike_backends_agree_with_the_fp32_model(state_dir: Path) -> None:
    """OpenVINO (bf16 where there is one) and onnxruntime in one pipeline, detections of score 0.5 and more.

    Each is a row of the fp32 model's output within IoU 0.9 and score 0.05. Of two candidates for one object whose
    scores are all but equal, bf16 may prefer the other: so after suppression all objects are found, and at least 99.5 %
    of the boxes are the same within those bounds.
    """
    with rig.engine(state_dir, rig.unlike_pair(), planner=SPLIT) as engine:
        entry = engine._registry.get("nanodet")
        found = run_offline(engine, ["one"])
    unsuppressed = replace(entry, spec=replace(entry.spec, head=replace(entry.spec.head, nms_iou=None)))
    for seq, rows in enumerate(whole_model_results(unsuppressed, rig.CLIP, FRAMES)):
        candidates = detections_as_tuples(rows)
        for live in (row for row in found["one", seq].rows if row.score >= 0.5):
            assert any(
                c == live.class_id and abs(s - live.score) <= 0.05 and iou(b, live.box) >= 0.9 for c, s, b in candidates
            ), (seq, live)
    same = total = 0
    for seq, reference in enumerate(whole_model_results(entry, rig.CLIP, FRAMES)):
        for class_id, score, box in detections_as_tuples(reference):
            if score < 0.5:
                continue
            total += 1
            near = [(iou(r.box, box), r.score) for r in found["one", seq].rows if r.class_id == class_id]
            overlap, live_score = max(near)
            assert overlap >= 0.5, (seq, class_id, score, box)
            same += overlap >= 0.9 and abs(live_score - score) <= 0.05
    assert total > 1000
    assert same / total >= 0.995, (same, total)
