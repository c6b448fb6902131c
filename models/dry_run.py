"""Runs a served model before it is accepted: does it load, does it take batches, do its frames stay apart, does its
head decode it. In a child process (see `children`).

Two random frames, a dark and a bright one, are run as a batch of two and one by one. Rows that differ by more than
rounding mean that the graph mixes frames (a baked-in reshape): the model is then served with batches of one.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framepool.models.children import child_main
from framepool.models.errors import ModelInvalidError, ModelSpecError, ModelUnsupportedError
from framepool.models.heads import build_head, fitting_heads
from framepool.models.heads.base import describe
from framepool.models.letterbox import plan_transform
from framepool.models.partition import TensorInfo
from framepool.models.spec import FRAME_INPUT, ModelSpec, Resize
from framepool.models.spec_toml import spec_from_toml, spec_to_toml, with_overrides

_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}
RELATIVE_TOLERANCE = 1e-3
"""Rows of a batch may differ so much from the same frame alone, relative to the output's range: other kernels round
otherwise. Mixed frames differ by the range itself."""


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Request: `path`, `spec` (TOML; an empty head kind is guessed). Result: `head`, `max_batch`, `batch_safe`."""
    spec = spec_from_toml(request["spec"])
    session = _session(request["path"])
    outputs = tuple(_info(value) for value in session.get_outputs())
    if not spec.head.kind:
        spec = _with_guessed_head(spec, outputs)
    head = build_head(spec, outputs)
    frames = _unlike_frames(spec.input.height_px, spec.input.width_px)
    names = [output.name for output in outputs]
    single = [_run(session, names, frames[i : i + 1]) for i in range(2)]
    size = plan_transform(640, 480, spec.input.width_px, spec.input.height_px, Resize.LETTERBOX)
    head.decode(single[0], [size])
    fixed = session.get_inputs()[0].shape[0]
    max_batch, safe = spec.max_batch, True
    if fixed == 1:
        max_batch = 1
    else:
        safe = _rows_agree(session, names, frames, single)
        max_batch = max_batch if safe else 1
    return {"head": spec.head.kind, "spec": spec_to_toml(spec), "max_batch": max_batch, "batch_safe": safe}


def _unlike_frames(height_px: int, width_px: int) -> NDArray[np.uint8]:
    """uint8 [2, h, w, 3]: noise that differs in every pixel and on average, so that any mixing shows."""
    noise = np.random.default_rng(0).integers(0, 128, (2, height_px, width_px, 3), dtype=np.uint8)
    noise[1] += 128
    return noise


def _session(path: str) -> Any:
    try:
        import onnxruntime as ort
    except ImportError as exc:
        raise ModelUnsupportedError(
            "models are checked with onnxruntime, which is not installed; install framepool[cpu] or framepool[gpu]"
        ) from exc
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # onnxruntime raises its own pybind types
        text = str(exc)
        kind = ModelUnsupportedError if "NOT_IMPLEMENTED" in text or "not a registered" in text else ModelInvalidError
        raise kind(f"onnxruntime {ort.__version__} can't load the model: {text[:500]}", field="model") from exc
    return session


def _info(value: Any) -> TensorInfo:
    if value.type not in _TYPES:
        raise ModelUnsupportedError(f"output {value.name} is of type {value.type}, which no head decodes")
    dims = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return TensorInfo(value.name, _TYPES[value.type], dims[1:])


def _with_guessed_head(spec: ModelSpec, outputs: tuple[TensorInfo, ...]) -> ModelSpec:
    fitting = fitting_heads(spec, outputs)
    if not fitting and spec.labels:
        without_labels = fitting_heads(replace(spec, labels=()), outputs)
        if without_labels:  # it is the labels that do not fit: let that head say so
            build_head(with_overrides(spec, {"head": {"kind": without_labels[0]}}), outputs)
    if not fitting:
        have = ", ".join(describe(output) for output in outputs)
        raise ModelSpecError(
            f"no head decodes the model's outputs ({have}); name one with --head, or export with another head",
            field="head.kind",
        )
    if len(fitting) > 1 and spec.task.value not in ("classify", "embed"):
        preferred = [name for name in fitting if name not in ("embedding", "classification")]
        fitting = preferred or fitting
    return with_overrides(spec, {"head": {"kind": fitting[0]}})


def _run(session: Any, names: list[str], frames: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    try:
        values = session.run(names, {FRAME_INPUT: frames})
    except Exception as exc:  # onnxruntime raises its own pybind types
        raise ModelInvalidError(
            f"the model does not run on a batch of {len(frames)}: {str(exc)[:500]}", field="model"
        ) from exc
    return dict(zip(names, values, strict=True))


def _rows_agree(
    session: Any, names: list[str], frames: NDArray[np.uint8], single: list[dict[str, NDArray[Any]]]
) -> bool:
    """Whether a batch of two gives what its frames give alone."""
    try:
        both = _run(session, names, frames)
    except ModelInvalidError:
        return False
    for name in names:
        for row in range(2):
            alone, together = single[row][name], both[name]
            if together.shape[:1] != (2,) or together.shape[1:] != alone.shape[1:] or alone.shape[:1] != (1,):
                return False
            a, b = alone[0].astype(np.float64), together[row].astype(np.float64)
            scale = max(1e-6, float(np.abs(a).max(initial=0)))
            if not np.allclose(a, b, rtol=0, atol=RELATIVE_TOLERANCE * scale, equal_nan=True):
                return False
    return True


if __name__ == "__main__":
    sys.exit(child_main(work))
