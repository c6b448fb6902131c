"""Decoded frames to displayed pictures: 8-bit RGB with the right matrix and range, upright, alpha dropped.

Matrix and range come from the frame; where it says nothing, pictures of 720 lines or more are BT.709 and smaller ones
BT.601, and the range is limited unless the format is a full-range one ("yuvj"). Rotation metadata is applied once,
here, so that all pixels and boxes downstream are in displayed orientation.
"""

from __future__ import annotations

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from numpy.typing import NDArray

HD_LINES = 720
_MATRICES = {
    1: Colorspace.ITU709,
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
    10: Colorspace.BT2020,
}
_TURNS = {90: cv2.ROTATE_90_COUNTERCLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_CLOCKWISE}


class PictureConverter:
    """Converts one stream's frames. Holds the scaler's tables, which fit as long as size and format stay."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def rgb(self, frame: av.VideoFrame) -> NDArray[np.uint8]:
        """The frame as displayed: uint8 [height, width, 3] RGB, C-contiguous."""
        full = frame.color_range == ColorRange.JPEG or frame.format.name.startswith("yuvj")
        default = Colorspace.ITU709 if frame.height >= HD_LINES else Colorspace.ITU601
        matrix = _MATRICES.get(int(frame.colorspace), default)
        converted = self._reformatter.reformat(
            frame,
            format="rgb24",
            src_colorspace=matrix,
            dst_colorspace=matrix,
            src_color_range=ColorRange.JPEG if full else ColorRange.MPEG,
            dst_color_range=ColorRange.JPEG,
            threads=1,
        )
        picture = converted.to_ndarray().astype(np.uint8, copy=False)
        turn = _TURNS.get(round(frame.rotation) % 360)
        if turn is not None:
            picture = cv2.rotate(picture, turn).astype(np.uint8, copy=False)
        return picture
