"""Detections of one frame, in source pixels: what heads return and everything after them passes on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Detections:
    """K detections of one frame, best score first.

    `boxes` is float32 [K, 4] x1 y1 x2 y2 in source pixels (displayed orientation), clipped to the picture; `scores`
    float32 [K] 0..1; `classes` int32 [K], index into the model's labels. `keypoints` is float32 [K, J, 3]
    (x, y in source pixels, score) or None; `embedding` is float32 [D] (whole frame, L2-normalised) or None.
    A classification yields one row per reported class, its box the whole picture.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int32]
    keypoints: NDArray[np.float32] | None = None
    embedding: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.scores)
