"""The torchvision models that can be exported by name: what they are for and the size they expect. Pure data.

A further model is one line here if it is a classifier; other kinds also need a module in `export_modules` that turns
its outputs into what a head reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from framepool.models.errors import ExportError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Of red, green, blue in 0..1: what all models but the detectors expect to be taken out of a picture before it comes;
detectors do it inside the graph."""

Weights = Literal["random", "default"]
"""Drawn from a fixed seed, or the best that torchvision publishes (from its cache, else downloaded)."""


class Family(StrEnum):
    """How a model's module is called and what it returns."""

    CLASSIFICATION = "classification"
    SEGMENTATION = "segmentation"
    DETECTION = "detection"  # takes a list of pictures, returns a variable number of boxes
    KEYPOINTS = "keypoints"  # detection with keypoints a box


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model of torchvision. `image_px` is the side of the square input it was trained for.

    `fixed_size` models take no other size.
    """

    name: str
    family: Family
    image_px: int
    fixed_size: bool = False

    @property
    def control_flow(self) -> bool:
        """True for models that suppress boxes inside the graph: batch 1 only, cut in the backbone only."""
        return self.family in (Family.DETECTION, Family.KEYPOINTS)


_CLASSIFIERS_PX = {
    "alexnet": 224,
    "convnext_large": 224,
    "convnext_tiny": 224,
    "densenet121": 224,
    "densenet161": 224,
    "efficientnet_b0": 224,
    "efficientnet_v2_m": 480,
    "efficientnet_v2_s": 384,
    "googlenet": 224,
    "inception_v3": 299,
    "mnasnet1_0": 224,
    "mobilenet_v2": 224,
    "mobilenet_v3_large": 224,
    "mobilenet_v3_small": 224,
    "regnet_x_3_2gf": 224,
    "regnet_y_400mf": 224,
    "regnet_y_8gf": 224,
    "resnet18": 224,
    "resnet50": 224,
    "resnet101": 224,
    "resnext50_32x4d": 224,
    "shufflenet_v2_x1_0": 224,
    "squeezenet1_1": 224,
    "vgg16": 224,
    "wide_resnet101_2": 224,
}

_OTHERS = (
    CatalogEntry("fcn_resnet101", Family.SEGMENTATION, 520),
    CatalogEntry("deeplabv3_resnet101", Family.SEGMENTATION, 520),
    CatalogEntry("lraspp_mobilenet_v3_large", Family.SEGMENTATION, 520),
    CatalogEntry("ssd300_vgg16", Family.DETECTION, 300, fixed_size=True),
    CatalogEntry("ssdlite320_mobilenet_v3_large", Family.DETECTION, 320, fixed_size=True),
    CatalogEntry("retinanet_resnet50_fpn", Family.DETECTION, 640),
    CatalogEntry("fcos_resnet50_fpn", Family.DETECTION, 640),
    CatalogEntry("fasterrcnn_resnet50_fpn", Family.DETECTION, 640),
    CatalogEntry("keypointrcnn_resnet50_fpn", Family.KEYPOINTS, 640),
)


def catalog() -> Mapping[str, CatalogEntry]:
    """All models that can be exported, by name."""
    entries = [CatalogEntry(name, Family.CLASSIFICATION, px) for name, px in _CLASSIFIERS_PX.items()]
    return {entry.name: entry for entry in (*entries, *_OTHERS)}


def find(name: str) -> CatalogEntry:
    """The entry of `name`. Raises ExportError that lists what exists."""
    entries = catalog()
    if name not in entries:
        raise ExportError(
            f"no torchvision model {name!r} can be exported; choose one of {', '.join(sorted(entries))}", field="name"
        )
    return entries[name]
