"""Heads against values worked out by hand: boxes in source pixels, best first, each frame on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from framepool.models.detections import Detections
from framepool.models.errors import ModelSpecError
from framepool.models.heads import HEADS, build_head, fitting_heads
from framepool.models.letterbox import Transform, plan_transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import HeadSpec, InputSpec, ModelSpec, Resize, Task

HALF = plan_transform(128, 96, 64, 64, Resize.LETTERBOX)
"""A 128x96 picture on a 64x64 input: halved, 8 rows of padding above and below."""
SAME = plan_transform(64, 64, 64, 64, Resize.LETTERBOX)
AB = ("a", "b")


def spec(kind: str, labels: tuple[str, ...] = AB, **head: Any) -> ModelSpec:
    given = {"score_threshold": 0.25, "nms_iou": 0.5, **head}
    return ModelSpec("m", Task.DETECT, InputSpec("x", 64, 64), HeadSpec(kind, **given), labels)


def infos(outputs: Mapping[str, np.ndarray], *, batched: bool = True) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(n, str(v.dtype), tuple(v.shape[1:]) if batched else tuple(v.shape)) for n, v in outputs.items()
    )


def decode(model: ModelSpec, outputs: Mapping[str, np.ndarray], *transforms: Transform) -> list[Detections]:
    """Decoded, and checked for what every head owes: shapes, dtypes, order, and frames that stand alone."""
    head = build_head(model, infos(outputs))
    found = head.decode(outputs, transforms)
    assert len(found) == len(transforms)
    for i, (one, transform) in enumerate(zip(found, transforms, strict=True)):
        assert one.boxes.shape == (len(one), 4)
        assert (one.boxes.dtype, one.scores.dtype, one.classes.dtype) == (np.float32, np.float32, np.int32)
        assert (np.diff(one.scores) <= 0).all()
        assert (one.boxes >= 0).all()
        assert (one.boxes[:, 2] <= transform.source_width_px).all()
        if model.head.kind != "nms":  # its rows are not batch-first
            alone = head.decode({n: v[i : i + 1] for n, v in outputs.items()}, [transform])[0]
            assert rows(alone) == rows(one)
    return found


def rows(found: Detections) -> list[tuple[list[float], float, int]]:
    return [
        ([round(float(v), 3) for v in box], round(float(score), 4), int(class_id))
        for box, score, class_id in zip(found.boxes, found.scores, found.classes, strict=True)
    ]


def f32(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_detections_rows_are_filtered_suppressed_and_mapped_back() -> None:
    frame = [
        [10, 20, 30, 40, 0.9, 1],
        [11, 20, 30, 40, 0.8, 1],
        [11, 20, 30, 40, 0.7, 0],
        [0] * 6,
        [1, 1, 9, 9, 0.2, 0],
    ]
    one, two = decode(spec("detections"), {"out": f32(frame, frame[::-1])}, HALF, SAME)
    assert rows(one) == [([20, 24, 60, 64], 0.9, 1), ([22, 24, 60, 64], 0.7, 0)]
    assert rows(two) == [([10, 20, 30, 40], 0.9, 1), ([11, 20, 30, 40], 0.7, 0)]


def test_a_score_at_the_threshold_is_published() -> None:
    out = f32([[0, 0, 8, 8, 0.25, 0], [20, 20, 28, 28, 0.2499, 0]])
    assert rows(decode(spec("detections"), {"out": out}, SAME)[0]) == [([0, 0, 8, 8], 0.25, 0)]


def test_no_more_than_the_most_are_published_and_the_best_of_them() -> None:
    frame = [[8 * i, 0, 8 * i + 6, 6, 0.3 + i / 20, 0] for i in range(7)]
    found = decode(spec("detections", max_detections=3), {"out": f32(frame)}, SAME)[0]
    assert [round(float(s), 2) for s in found.scores] == [0.6, 0.55, 0.5]


def test_detections_with_keypoints_keep_each_row_s_own() -> None:
    boxes = f32([[0, 0, 4, 4, 0.1, 0], [10, 20, 30, 40, 0.5, 0], [40, 40, 60, 60, 0.9, 0]])
    points = np.arange(18, dtype=np.float32).reshape(1, 3, 2, 3)
    found = decode(spec("detections"), {"out": boxes, "points": points}, HALF)[0]
    assert found.keypoints is not None
    assert found.keypoints[0].tolist() == [[24, 10, 14], [30, 16, 17]]  # row 2: (12, 13) -> (24, 10)
    assert found.keypoints.shape == (2, 2, 3)


def test_nothing_above_the_threshold_is_an_empty_frame() -> None:
    found = decode(spec("detections"), {"out": np.zeros((1, 5, 6), np.float32)}, SAME)[0]
    assert rows(found) == []


def test_yolov5_multiplies_objectness_and_class() -> None:
    frame = [[20, 30, 20, 20, 0.9, 0.5, 0.8], [50, 50, 10, 10, 0.9, 0.2, 0.1], [10, 10, 4, 4, 0.3, 0.9, 0.1]]
    frame += [[0.0] * 7] * 5
    found = decode(spec("yolov5"), {"out": f32(frame)}, HALF)[0]
    assert rows(found) == [([20, 24, 60, 64], 0.72, 1), ([16, 0, 24, 8], 0.27, 0)]


def test_yolov8_takes_each_column_s_best_class() -> None:
    columns = f32([20, 30, 20, 20, 0.1, 0.6], [50, 50, 10, 10, 0.7, 0.2], [5, 5, 2, 2, 0.1, 0.2]).T[None]
    padded = np.concatenate([columns, np.zeros((1, 6, 20), np.float32)], axis=2)
    found = decode(spec("yolov8"), {"out": np.ascontiguousarray(padded)}, SAME)[0]
    assert rows(found) == [([45, 45, 55, 55], 0.7, 0), ([10, 20, 30, 40], 0.6, 1)]


def test_yolox_decodes_its_grids() -> None:
    """Strides 16, 32 and 64 on a 64x64 input: sixteen cells, four, and one."""
    model = spec("yolox", params={"strides": (16.0, 32.0, 64.0)})
    out = np.zeros((1, 21, 7), np.float32)
    out[0, 19] = [0.5, 0.25, np.log(0.5), np.log(0.25), 0.8, 0.0, 0.5]  # cell (1, 1) of stride 32
    out[0, 20] = [0.5, 0.5, np.log(0.25), np.log(0.25), 1.0, 0.6, 0.0]  # the cell of stride 64
    found = decode(model, {"out": out}, SAME)[0]
    assert rows(found) == [([24, 24, 40, 40], 0.6, 0), ([40, 36, 56, 44], 0.4, 1)]
    decoded = spec("yolox", params={"decoded": True})
    out[0, 0] = [32, 32, 16, 16, 0.9, 0.9, 0.0]
    assert rows(decode(decoded, {"out": out[:, :7]}, SAME)[0]) == [([24, 24, 40, 40], 0.81, 0)]


def test_yolox_names_the_boxes_that_its_grids_have() -> None:
    with pytest.raises(ModelSpecError, match="5 boxes a frame"):
        build_head(spec("yolox", params={"strides": (32.0, 64.0)}), (TensorInfo("out", "float32", (84, 7)),))


def test_nms_in_the_graph_counted() -> None:
    outputs = {
        "num_dets": np.array([[2], [1]], np.int32),
        "boxes": f32([[0, 8, 10, 20], [20, 28, 30, 38], [1, 1, 2, 2]], [[4, 4, 8, 8], [0, 0, 1, 1], [0, 0, 1, 1]]),
        "scores": f32([0.9, 0.1, 0.8], [0.5, 0.9, 0.9]),
        "classes": np.array([[1, 0, 0], [0, 1, 1]], np.int32),
    }
    one, two = decode(spec("nms"), outputs, HALF, SAME)
    assert rows(one) == [([0, 0, 20, 24], 0.9, 1)]
    assert rows(two) == [([4, 4, 8, 8], 0.5, 0)]


def test_nms_in_the_graph_rows_go_to_their_frames() -> None:
    """YOLOv7 end2end: rows of all frames in one output, by batch index."""
    out = f32([1, 4, 4, 8, 8, 1, 0.5], [0, 0, 8, 10, 20, 0, 0.9], [-1, 0, 0, 9, 9, 0, 0.9], [1, 1, 1, 9, 9, 0, 0.1])
    head = build_head(spec("nms"), (TensorInfo("out", "float32", (7,)),))
    one, two = head.decode({"out": out}, [HALF, SAME])
    assert rows(one) == [([0, 0, 20, 24], 0.9, 0)]
    assert rows(two) == [([4, 4, 8, 8], 0.5, 1)]


@pytest.mark.parametrize(
    ("order", "box"), [("yxyx", [8, 4, 20, 16]), ("xyxy", [4, 8, 16, 20]), ("cxcywh", [10, 14, 12, 12])]
)
def test_nms_in_the_graph_selected(order: str, box: list[float]) -> None:
    outputs = {
        "selected": np.array([[0, 1, 2], [1, 0, 0]], np.int64),
        "boxes": f32([[0] * 4, [0] * 4, box], [box, [0] * 4, [0] * 4]),
        "scores": f32([[0, 0, 0], [0, 0, 0.7]], [[0.6, 0, 0], [0, 0, 0]]),
    }
    model = spec("nms", params={"box_order": order})
    shapes = (TensorInfo("selected", "int64", (3,)), *infos({k: outputs[k] for k in ("boxes", "scores")}))
    one, two = build_head(model, shapes).decode(outputs, [SAME, SAME])
    assert rows(one) == [([4, 8, 16, 20], 0.7, 1)]
    assert rows(two) == [([4, 8, 16, 20], 0.6, 0)]


def test_ssd_counts_the_background_as_class_0() -> None:
    outputs = {
        "boxes": f32([0, 8, 10, 20], [1, 1, 2, 2], [5, 5, 6, 6]),
        "scores": f32(0.9, 0.8, 0.1),
        "labels": np.array([2, 0, 1], np.int64),
    }
    shapes = (TensorInfo("boxes", "float32", (None, 4)), TensorInfo("scores", "float32", (None,)),
              TensorInfo("labels", "int64", (None,)))  # fmt: skip
    found = build_head(spec("ssd"), shapes).decode(outputs, [HALF])[0]
    assert rows(found) == [([0, 0, 20, 24], 0.9, 1)]
    with pytest.raises(ValueError, match="hold one frame, not 2"):
        build_head(spec("ssd"), shapes).decode(outputs, [HALF, HALF])


def test_detr_knows_softmax_from_sigmoid_by_the_labels() -> None:
    boxes = f32([[0.5, 0.5, 0.25, 0.5], [0.25, 0.25, 0.25, 0.25]])
    logits = f32([[0.0, 3.0, 0.0], [0.0, 0.0, 9.0]])  # the third is "nothing"
    found = decode(spec("detr"), {"logits": logits, "boxes": boxes}, SAME)[0]
    assert rows(found) == [([24, 16, 40, 48], round(float(np.exp(3) / (np.exp(3) + 2)), 4), 1)]
    found = decode(spec("detr"), {"logits": logits[..., :2] - 1, "boxes": boxes}, SAME)[0]
    assert rows(found) == [
        ([24, 16, 40, 48], round(float(1 / (1 + np.exp(-2))), 4), 1),
        ([8, 8, 24, 24], round(float(1 / (1 + np.exp(1))), 4), 0),
    ]


def test_classification_reports_the_best_classes_over_the_whole_picture() -> None:
    logits = f32([0.0, 2.0, 1.0], [0.2, 0.3, 0.5])
    model = spec("classification", ("a", "b", "c"), params={"top_k": 2})
    one, two = decode(model, {"out": logits}, HALF, SAME)
    e = np.exp([0.0, 2.0, 1.0])
    assert rows(one) == [([0, 0, 128, 96], round(float(e[1] / e.sum()), 4), 1)]
    assert rows(two) == [([0, 0, 64, 64], 0.5, 2), ([0, 0, 64, 64], 0.3, 1)]  # probabilities already


def test_embedding_is_of_length_1() -> None:
    one, two = decode(spec("embedding", ()), {"out": f32([3, 4], [0, 0])}, HALF, SAME)
    assert one.embedding is not None
    assert one.embedding.tolist() == pytest.approx([0.6, 0.8])
    assert rows(one) == [([0, 0, 128, 96], 1.0, 0)]
    assert two.embedding is not None
    assert np.isfinite(two.embedding).all()


def test_keypoints_bound_a_body_and_few_points_are_nobody() -> None:
    points = f32([[0.25, 0.5, 0.9], [0.5, 0.25, 0.6], [0.75, 0.75, 0.3], [0.0, 0.0, 0.1]])
    outputs = {"out": np.stack([points, points * [1, 1, 0.4]])}
    one, two = decode(spec("keypoints", ("person",), score_threshold=0.25), outputs, HALF, SAME)
    assert rows(one) == [([32, 16, 96, 80], round((0.9 + 0.6 + 0.3 + 0.1) / 4, 4), 0)]
    assert one.keypoints is not None
    assert one.keypoints[0, 0].tolist() == pytest.approx([64, 16, 0.9])
    assert rows(two) == []


def test_segmentation_bounds_each_class_that_is_there() -> None:
    logits = np.full((1, 3, 16, 16), -9.0, np.float32)
    logits[0, 0] = 0.0
    logits[0, 1, 2:6, 4:8] = 9.0
    logits[0, 2, 15, 15] = 9.0  # a single pixel, in the padding
    found = decode(spec("segmentation", ("sky", "car", "cat")), {"out": logits}, HALF)[0]
    assert [int(c) for c in found.classes] == [1]
    assert found.boxes[0].tolist() == [32, 0, 64, 32]
    assert found.scores[0] > 0.99
    with_background = spec("segmentation", ("sky", "car", "cat"), params={"background": False})
    assert {int(c) for c in decode(with_background, {"out": logits}, HALF)[0].classes} == {0, 1}


WRONG = {
    "detections": (TensorInfo("o", "float32", (10, 7)),),
    "yolov5": (TensorInfo("o", "float32", (10, 6)),),
    "yolov8": (TensorInfo("o", "float32", (10, 6)),),
    "yolox": (TensorInfo("o", "float32", (84, 9)),),
    "nms": (TensorInfo("o", "float32", (10, 6)),),
    "ssd": (TensorInfo("o", "float32", (10, 6)),),
    "detr": (TensorInfo("o", "float32", (10, 6)),),
    "classification": (TensorInfo("o", "float32", (3,)),),
    "embedding": (TensorInfo("o", "float32", (3, 4)),),
    "keypoints": (TensorInfo("o", "float32", (17, 2)),),
    "segmentation": (TensorInfo("o", "float32", (2,)),),
}


@pytest.mark.parametrize("kind", HEADS)
def test_outputs_that_a_head_can_not_decode_are_named_with_what_it_needs(kind: str) -> None:
    with pytest.raises(ModelSpecError, match=r"needs .*the model has o \[N") as raised:
        build_head(spec(kind), WRONG[kind])
    assert raised.value.field == "head.kind"


def test_a_wrong_head_is_told_which_would_fit() -> None:
    with pytest.raises(ModelSpecError, match="heads that could: yolov8"):
        build_head(spec("detections"), (TensorInfo("o", "float32", (6, 8400)),))
    with pytest.raises(ModelSpecError, match=r"head.kind 'yolov99' is unknown; it must be one of detections"):
        build_head(spec("yolov99"), (TensorInfo("o", "float32", (6, 8400)),))


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((10, 6), "detections"),
        ((84, 8400), "yolov8"),
        ((25200, 85), "yolov5"),
        ((1000,), "classification"),
        ((17, 3), "keypoints"),
    ],
)
def test_the_head_is_guessed_from_the_outputs(shape: tuple[int, ...], first: str) -> None:
    assert fitting_heads(spec("", ()), (TensorInfo("o", "float32", shape),))[0] == first
