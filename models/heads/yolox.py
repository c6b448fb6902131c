"""YOLOX: [N, K, 5 + C], boxes either decoded already or relative to the cells of its grids.

`params.decoded` true: cx, cy, w, h are network pixels. False (the default, as YOLOX exports): the centre is an offset
within the cell and the size a logarithm, both in units of the cell's stride; `params.strides` (8, 16, 32) gives the
grids in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from framepool.models.detections import Detections
from framepool.models.errors import ModelSpecError
from framepool.models.heads.base import Outputs, misfit, only_output
from framepool.models.heads.yolo import check_more_boxes_than_columns, decode_v5_rows
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

DEFAULT_STRIDES = (8.0, 16.0, 32.0)


class YoloXHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        output = only_output(outputs, 2, "one output [N, K, 5 + classes]")
        check_more_boxes_than_columns(output, outputs)
        columns = output.shape[1]
        if columns is not None and (columns < 6 or (spec.labels and columns != 5 + len(spec.labels))):
            raise misfit("5 + classes values a box", outputs)
        self._head = spec.head
        self._name = output.name
        self._grid: NDArray[np.float32] | None = None
        if spec.head.params.get("decoded", False) is True:
            return
        strides = spec.head.params.get("strides", DEFAULT_STRIDES)
        if not isinstance(strides, tuple) or not strides:
            raise ModelSpecError("head.params.strides must be a list of numbers", field="head.params.strides")
        self._grid = _grid(spec.input.height_px, spec.input.width_px, strides)
        if output.shape[0] is not None and output.shape[0] != len(self._grid):
            raise misfit(
                f"{len(self._grid)} boxes a frame (grids of strides {strides} on {spec.input.width_px}x"
                f"{spec.input.height_px})",
                outputs,
            )

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        return [self._decode_one(outputs[self._name][i], t) for i, t in enumerate(transforms)]

    def _decode_one(self, rows: NDArray[np.float32], transform: Transform) -> Detections:
        good = (rows[:, 4] >= self._head.score_threshold).nonzero()[0]
        rows = np.array(rows[good], dtype=np.float32)
        if self._grid is not None:
            cell = self._grid[good]
            rows[:, :2] = (rows[:, :2] + cell[:, :2]) * cell[:, 2:]
            rows[:, 2:4] = np.exp(rows[:, 2:4]) * cell[:, 2:]
        return decode_v5_rows(rows, self._head, transform)


def _grid(height_px: int, width_px: int, strides: Sequence[float]) -> NDArray[np.float32]:
    """float32 [K, 3]: column, row and stride of every cell, grid after grid, row by row."""
    parts = []
    for stride in strides:
        rows, columns = int(height_px // stride), int(width_px // stride)
        y, x = np.mgrid[:rows, :columns]
        parts.append(np.stack([x.ravel(), y.ravel(), np.full(rows * columns, stride)], axis=1))
    return np.concatenate(parts).astype(np.float32)
