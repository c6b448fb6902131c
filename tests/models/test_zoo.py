"""The bundled models see what is in the bundled clip, on the whole way from file to source pixels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from whole_model import whole_model_results

from framepool.models.detections import Detections
from framepool.models.registry import ModelRegistry
from framepool.models.zoo_catalog import ZOO_DIR, coco_labels, zoo
from framepool.streams import SAMPLES_DIR

CLIP = SAMPLES_DIR / "walkway.mp4"
TRUTH = {int(k): v for k, v in json.loads((SAMPLES_DIR / "walkway_truth.json").read_text())["frames"].items()}
FRAMES = max(TRUTH) + 1


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    return ModelRegistry(tmp_path_factory.mktemp("models"))


def iou(a: np.ndarray, b: np.ndarray) -> float:
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    overlap = max(0.0, float(w)) * max(0.0, float(h))
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return overlap / (float(areas[0] + areas[1]) - overlap)


def persons(found: Detections) -> np.ndarray:
    return found.boxes[(found.classes == 0) & (found.scores >= 0.45)]


@pytest.mark.parametrize("name", ["nanodet", "nanodet_int8"])
def test_all_22_marked_persons_are_found_and_no_false_one(registry: ModelRegistry, name: str) -> None:
    found = whole_model_results(registry.get(name), CLIP, FRAMES)
    assert sum(map(len, TRUTH.values())) == 22
    for frame, marked in TRUTH.items():
        boxes = list(persons(found[frame]))
        for truth in marked:
            best = max(boxes, key=lambda box, truth=truth: iou(box, np.array(truth)), default=None)
            assert best is not None, f"frame {frame}: {truth} was missed"
            assert iou(best, np.array(truth)) >= 0.5, f"frame {frame}: {truth} was missed"
            boxes = [box for box in boxes if box is not best]
        assert boxes == [], f"frame {frame}: persons that are not there"


def test_movenet_gives_17_points_of_the_picture(registry: ModelRegistry) -> None:
    found = [one for one in whole_model_results(registry.get("movenet"), CLIP, 30) if len(one)]
    assert found, "nobody was found in 30 frames of people"
    for one in found:
        assert one.keypoints is not None
        assert one.keypoints.shape == (1, 17, 3)
        sure = one.keypoints[0][one.keypoints[0, :, 2] >= 0.3]
        assert len(sure) >= 3
        assert (sure[:, 0] > -1).all()
        assert (sure[:, 0] < 769).all()
        assert (one.boxes[:, 2:] <= (768, 576)).all()


def test_every_bundled_model_is_named_with_its_origin_and_licence() -> None:
    root = Path(sys.modules["framepool.models.zoo_catalog"].__file__ or "").parents[1]
    notice = (root / "NOTICE").read_text() if (root / "NOTICE").exists() else ""
    assert {model.file for model in zoo().values()} == set(ZOO_DIR.glob("*.onnx"))
    for model in zoo().values():
        assert model.spec.origin
        assert model.spec.license == "Apache-2.0"
        assert f"models/zoo/{model.file.name}" in notice
    assert len(coco_labels()) == 80
    assert (coco_labels()[0], coco_labels()[9], coco_labels()[-1]) == ("person", "traffic light", "toothbrush")
