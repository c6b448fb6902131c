"""Heads: from a model's output tensors to detections in source pixels.

    outputs (batch first) + transforms (one a frame) --Head.decode--> Detections, one a frame

A head is a file with a class and a line in `HEADS`. Heads filter by score before anything else, and what comes out for
a frame depends on that frame's rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from framepool.models.errors import ModelSpecError
from framepool.models.heads.base import Head, HeadClass, describe
from framepool.models.heads.classification import ClassificationHead
from framepool.models.heads.detections import DetectionsHead
from framepool.models.heads.detr import DetrHead
from framepool.models.heads.embedding import EmbeddingHead
from framepool.models.heads.keypoints import KeypointsHead
from framepool.models.heads.nms_in_graph import NmsHead
from framepool.models.heads.segmentation import SegmentationHead
from framepool.models.heads.ssd import SsdHead
from framepool.models.heads.yolo import YoloV5Head, YoloV8Head
from framepool.models.heads.yolox import YoloXHead
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

__all__ = ["HEADS", "Head", "build_head", "fitting_heads"]

HEADS: Mapping[str, HeadClass] = MappingProxyType(
    {
        "detections": DetectionsHead,
        "yolov5": YoloV5Head,
        "yolov8": YoloV8Head,
        "yolox": YoloXHead,
        "nms": NmsHead,
        "ssd": SsdHead,
        "detr": DetrHead,
        "classification": ClassificationHead,
        "embedding": EmbeddingHead,
        "keypoints": KeypointsHead,
        "segmentation": SegmentationHead,
    }
)
"""Heads by the name a spec's `head.kind` gives."""


def build_head(spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> Head:
    """The head of `spec` for a graph with these outputs.

    Raises ModelSpecError for an unknown head, or one that can't decode these outputs; it names those that could.
    """
    head = HEADS.get(spec.head.kind)
    if head is None:
        raise ModelSpecError(
            f"head.kind {spec.head.kind!r} is unknown; it must be one of {', '.join(HEADS)}", field="head.kind"
        )
    try:
        return head(spec, outputs)
    except ModelSpecError as exc:
        others = [name for name in fitting_heads(spec, outputs) if name != spec.head.kind]
        hint = f"; heads that could: {', '.join(others)}" if others else ""
        raise ModelSpecError(f"{exc}{hint}", field=exc.field or "head.kind") from exc


def fitting_heads(spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> list[str]:
    """Names of the heads whose expectations these outputs meet, the most specific first."""
    fitting = []
    for name, head in HEADS.items():
        try:
            head(spec, outputs)
        except ModelSpecError:
            continue
        fitting.append(name)
    return fitting


def outputs_text(outputs: tuple[TensorInfo, ...]) -> str:
    """Outputs as an error message shows them."""
    return ", ".join(describe(output) for output in outputs)
