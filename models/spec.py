"""What a model expects and yields: the typed spec that stands beside every registered ONNX file.

Pure data: no I/O, no onnx import. `framepool.models.importing` fills it from a file, `framepool.models.registry`
keeps it. All arrays that leave the decoder are ``uint8 [h, w, 3]``; colour order and arithmetic are folded into the
served graph, so a spec's `InputSpec` describes the *original* graph input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

FRAME_INPUT = "frames"
"""Name of the served graph's one input: ``uint8 [n, height_px, width_px, 3] RGB 0-255`` (after folding)."""


class Task(StrEnum):
    """What a model's detections mean."""

    DETECT = "detect"
    CLASSIFY = "classify"
    EMBED = "embed"
    KEYPOINTS = "keypoints"
    SEGMENT = "segment"


class Layout(StrEnum):
    NCHW = "nchw"
    NHWC = "nhwc"


class ColorOrder(StrEnum):
    RGB = "rgb"
    BGR = "bgr"


class Resize(StrEnum):
    """How a source picture becomes the model's input."""

    LETTERBOX = "letterbox"  # keep the aspect, pad the rest
    STRETCH = "stretch"  # fill the input, aspect lost


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Input contract of the original graph. `mean` and `std` apply to ``value * scale`` per channel (RGB order)."""

    name: str
    height_px: int
    width_px: int
    layout: Layout = Layout.NCHW
    color: ColorOrder = ColorOrder.RGB
    dtype: str = "float32"
    resize: Resize = Resize.LETTERBOX
    pad_value: int = 114
    scale: float = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """Which head decodes the outputs, and its settings (`params` values are TOML scalars or lists of them).

    `kind` is a name in `framepool.models.heads.HEADS`; `score_threshold` is the least score published,
    `nms_iou` the class-wise suppression threshold (None: the graph suppresses already).
    """

    kind: str
    score_threshold: float = 0.25
    nms_iou: float | None = 0.5
    max_detections: int = 300
    params: Mapping[str, str | int | float | bool | tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Spec of one registered model.

    `digest` is the sha-256 (hex) of the served graph including its weights; profiles are keyed by it. `max_batch` is
    1 where the file fixes batch 1 or where batching was found to mix frames (`batch_safe` false), else the largest
    allowed batch (0: no limit).
    """

    name: str
    task: Task
    input: InputSpec
    head: HeadSpec
    labels: tuple[str, ...] = ()
    digest: str = ""
    opset: int = 0
    max_batch: int = 0
    batch_safe: bool = True
    origin: str = ""
    license: str = ""
