"""How a source picture becomes a model's input, and the way back for boxes and points.

Theory of operation. A picture of `source_width_px` x `source_height_px` is resized to whole pixels and laid on the
input at (`pad_left_px`, `pad_top_px`). Because the resized size is rounded, the gain of each axis is
``resized / source``, not the wished-for common factor; a `Transform` holds the gain and padding *actually applied*, so
its inverse has no rounding error whatever the picture's size. Coordinates are edges, not pixel centres: x in the source
lies at ``x * gain_x + pad_left_px`` in the input, which is also the mapping of OpenCV's bilinear resize.

Nothing here decodes pictures or knows of models; `Preprocess` is what a decoder worker calls for each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from framepool.models.spec import InputSpec, Resize

_COORDINATES = 2  # x and y lead the last axis of points


@dataclass(frozen=True, slots=True)
class Transform:
    """The mapping applied to one frame: gains per axis, padding in input pixels, size of the source picture."""

    gain_x: float
    gain_y: float
    pad_left_px: int
    pad_top_px: int
    source_width_px: int
    source_height_px: int

    @property
    def resized_width_px(self) -> int:
        """Width of the picture on the model's input, padding excluded."""
        return round(self.gain_x * self.source_width_px)

    @property
    def resized_height_px(self) -> int:
        """Height of the picture on the model's input, padding excluded."""
        return round(self.gain_y * self.source_height_px)

    def to_tuple(self) -> tuple[float, ...]:
        """Six numbers for a message, in the order of the fields."""
        return (
            self.gain_x,
            self.gain_y,
            float(self.pad_left_px),
            float(self.pad_top_px),
            float(self.source_width_px),
            float(self.source_height_px),
        )

    @staticmethod
    def from_tuple(values: Sequence[float]) -> Transform:
        """Inverse of `to_tuple`. Raises ValueError when there are not six numbers."""
        if len(values) != 6:
            raise ValueError(f"a transform is six numbers, got {len(values)}")
        gain_x, gain_y, left, top, width, height = values
        return Transform(gain_x, gain_y, int(left), int(top), int(width), int(height))

    def boxes_to_source(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Boxes [..., 4] x1 y1 x2 y2 in input pixels -> float32 source pixels, clipped to the picture."""
        source = self._to_source(boxes.reshape(-1, 2)).reshape(boxes.shape)
        np.clip(source[..., 0::2], 0.0, float(self.source_width_px), out=source[..., 0::2])
        np.clip(source[..., 1::2], 0.0, float(self.source_height_px), out=source[..., 1::2])
        return source

    def points_to_source(self, points: NDArray[np.floating]) -> NDArray[np.float32]:
        """Points [..., 2 or more] (x, y, then anything) in input pixels -> float32 source pixels, not clipped."""
        source = points.astype(np.float32)
        source[..., :_COORDINATES] = self._to_source(points[..., :_COORDINATES])
        return source

    def boxes_to_input(self, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Boxes [..., 4] in source pixels -> float32 input pixels; the forward mapping."""
        pairs = boxes.reshape(-1, 2).astype(np.float64)
        placed = pairs * (self.gain_x, self.gain_y) + (self.pad_left_px, self.pad_top_px)
        return placed.astype(np.float32).reshape(boxes.shape)

    def _to_source(self, pairs: NDArray[np.floating]) -> NDArray[np.float32]:
        moved = pairs.astype(np.float64) - (self.pad_left_px, self.pad_top_px)
        moved /= (self.gain_x, self.gain_y)
        return moved.astype(np.float32)


def plan_transform(
    source_width_px: int, source_height_px: int, input_width_px: int, input_height_px: int, resize: Resize
) -> Transform:
    """The transform that brings a picture onto the model's input: largest fit, centred (letterbox), or stretched.

    Raises ValueError for a size below one pixel.
    """
    for size_px in (source_width_px, source_height_px, input_width_px, input_height_px):
        if size_px < 1:
            raise ValueError(
                f"sizes must be at least 1 px, got a {source_width_px}x{source_height_px} picture for a "
                f"{input_width_px}x{input_height_px} input"
            )
    if resize is Resize.STRETCH:
        width_px, height_px = input_width_px, input_height_px
    else:
        gain = min(input_width_px / source_width_px, input_height_px / source_height_px)
        width_px = min(input_width_px, max(1, round(source_width_px * gain)))
        height_px = min(input_height_px, max(1, round(source_height_px * gain)))
    return Transform(
        gain_x=width_px / source_width_px,
        gain_y=height_px / source_height_px,
        pad_left_px=(input_width_px - width_px) // 2,
        pad_top_px=(input_height_px - height_px) // 2,
        source_width_px=source_width_px,
        source_height_px=source_height_px,
    )


def apply(rgb: NDArray[np.uint8], out: NDArray[np.uint8], transform: Transform, pad_value: int) -> None:
    """Resize `rgb` uint8 [h, w, 3] (bilinear) straight into `out` uint8 [H, W, 3] and pad the rest with `pad_value`.

    `out` may be a view of shared memory; nothing of its size is allocated. Every byte of it is written. Raises
    ValueError where the shapes are not those the transform was planned for.
    """
    expected = (transform.source_height_px, transform.source_width_px, 3)
    if rgb.shape != expected:
        raise ValueError(f"picture is {rgb.shape}, the transform was planned for {expected}")
    left, top = transform.pad_left_px, transform.pad_top_px
    right, bottom = left + transform.resized_width_px, top + transform.resized_height_px
    if out.ndim != 3 or out.shape[2] != 3 or bottom > out.shape[0] or right > out.shape[1]:
        raise ValueError(f"input is {out.shape}, the transform places the picture up to row {bottom}, column {right}")
    target = out[top:bottom, left:right]
    if target.shape == rgb.shape:
        target[...] = rgb
    else:
        written = cv2.resize(rgb, (right - left, bottom - top), dst=target, interpolation=cv2.INTER_LINEAR)
        if not np.may_share_memory(written, target):
            target[...] = written
    out[:top] = pad_value
    out[bottom:] = pad_value
    out[top:bottom, :left] = pad_value
    out[top:bottom, right:] = pad_value


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Writes pictures onto one model's input. Holds no state, so it pickles and may be shared by threads."""

    resize: Resize
    pad_value: int

    @staticmethod
    def of(spec: InputSpec) -> Preprocess:
        """The preprocessing that `spec` asks for; colour order and arithmetic are inside the served graph."""
        return Preprocess(resize=spec.resize, pad_value=spec.pad_value)

    def __call__(self, rgb: NDArray[np.uint8], out: NDArray[np.uint8]) -> tuple[float, ...]:
        """Write `rgb` uint8 [h, w, 3] into `out` uint8 [H, W, 3]; returns the transform as a tuple for messages."""
        transform = plan_transform(rgb.shape[1], rgb.shape[0], out.shape[1], out.shape[0], self.resize)
        apply(rgb, out, transform, self.pad_value)
        return transform.to_tuple()
