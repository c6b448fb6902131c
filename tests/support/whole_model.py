"""What one onnxruntime session says of the bundled clip: the reference that live results are compared with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import av
import numpy as np

from framepool.engine.control import DetectionRow
from framepool.models.detections import Detections
from framepool.models.heads import build_head
from framepool.models.letterbox import Preprocess, Transform
from framepool.models.partition import TensorInfo
from framepool.models.registry import ModelEntry
from framepool.streams.picture import PictureConverter


@cache
def clip_pictures(clip: Path, count: int) -> list[np.ndarray]:
    """The clip's first frames, uint8 [h, w, 3] RGB, as the decoder converts them."""
    converter = PictureConverter()
    pictures = []
    with av.open(str(clip)) as container:
        for frame in container.decode(video=0):
            pictures.append(converter.rgb(frame))
            if len(pictures) == count:
                break
    return pictures


def whole_model_results(entry: ModelEntry, clip: Path, count: int) -> list[Detections]:
    """Detections of each of the first `count` frames, from the whole served graph, one frame at a time."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(entry.path), options, providers=["CPUExecutionProvider"])
    outputs = tuple(
        TensorInfo(o.name, "float32", tuple(d if isinstance(d, int) else None for d in o.shape[1:]))
        for o in session.get_outputs()
    )
    head = build_head(entry.spec, outputs)
    preprocess = Preprocess.of(entry.spec.input)
    found = []
    for picture in clip_pictures(clip, count):
        out = np.empty((1, entry.spec.input.height_px, entry.spec.input.width_px, 3), np.uint8)
        transform = Transform.from_tuple(preprocess(picture, out[0]))
        values = dict(zip([o.name for o in outputs], session.run(None, {"frames": out}), strict=True))
        found.extend(head.decode(values, [transform]))
    return found


def rows_as_tuples(rows: tuple[DetectionRow, ...]) -> list[tuple[int, float, tuple[float, ...]]]:
    return [(row.class_id, row.score, row.box) for row in rows]


def detections_as_tuples(found: Detections) -> list[tuple[int, float, tuple[float, ...]]]:
    """(class, score, box) of each detection."""
    return [
        (int(c), float(s), tuple(float(v) for v in b))
        for c, s, b in zip(found.classes, found.scores, found.boxes, strict=True)
    ]
