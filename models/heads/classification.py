"""Classification: one output [N, C] (or [N, C, 1, 1]) of logits or probabilities; the best classes of each frame.

`params.top_k` (5) classes at most are reported, those above the score threshold. Outputs that are probabilities already
(`params.probabilities`; seen by their sum where not said) are left as they are, logits go through a softmax.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framepool.models.detections import Detections
from framepool.models.heads.base import Outputs, misfit, softmax, whole_picture
from framepool.models.letterbox import Transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import ModelSpec

DEFAULT_TOP_K = 5
_SUM_TOLERANCE = 1e-2


class ClassificationHead:
    """See the module docstring."""

    def __init__(self, spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> None:
        flat = [o for o in outputs if o.shape and all(dim == 1 for dim in o.shape[1:])]
        if len(outputs) != 1 or len(flat) != 1:
            raise misfit("one output [N, classes]", outputs)
        classes = flat[0].shape[0]
        if classes is not None and (classes < 2 or (spec.labels and classes != len(spec.labels))):
            raise misfit(f"one score for each of the {len(spec.labels)} labels", outputs)
        self._name = flat[0].name
        self._head = spec.head
        self._top_k = int(_number(spec, "top_k", DEFAULT_TOP_K))
        self._probabilities = spec.head.params.get("probabilities")

    def decode(self, outputs: Outputs, transforms: Sequence[Transform]) -> list[Detections]:
        values = np.asarray(outputs[self._name], dtype=np.float32).reshape(len(transforms), -1)
        return [self._decode_one(values[i], transform) for i, transform in enumerate(transforms)]

    def _decode_one(
        self, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], transform: Transform
    ) -> Detections:
        given = self._probabilities
        if given is None:
            given = bool(values.min() >= 0 and abs(float(values.sum()) - 1) < _SUM_TOLERANCE)
        scores = values if given else softmax(values)
        best = np.argsort(-scores, kind="stable")[: min(self._top_k, self._head.max_detections)]
        best = best[scores[best] >= self._head.score_threshold]
        return Detections(whole_picture(transform, len(best)), scores[best], best.astype(np.int32))


def _number(spec: ModelSpec, name: str, default: float) -> float:
    value = spec.head.params.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default
