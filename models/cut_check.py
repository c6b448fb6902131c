"""Does a cut change results? Both parts are run one after another and compared with the whole model.

Runs on onnxruntime's CPU provider with one thread, with random frames, at batch 1 and, where the batch is free, 2.
Equal means bit for bit; else the largest difference counts, absolute for the record and relative to the output's range
for the decision whether the cut is fit for use. Runtimes fuse nodes, and a fusion that a cut prevents may round
otherwise; that is the difference found here.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framepool.models.errors import ModelError, ModelInvalidError
from framepool.models.graph import Graph
from framepool.models.graph_extract import write_subgraph
from framepool.models.graph_shapes import Shapes
from framepool.models.partition import TensorInfo

_BATCHES = (1, 2)
_SEED = 20250

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class CutVerdict:
    """`max_abs_error` over all outputs; `relative_error` the same relative to each output's range (at least 1)."""

    exact: bool
    max_abs_error: float
    relative_error: float


def open_session(path: Path, options: Any = None) -> Any:
    """An onnxruntime session on one CPU thread. Raises ModelError where onnxruntime is missing."""
    try:
        import onnxruntime as ort
    except ImportError as exc:
        raise ModelError("onnxruntime is not installed; install framepool[cpu] or framepool[gpu]") from exc
    options = options or ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # onnxruntime raises its own pybind types
        raise ModelInvalidError(f"onnxruntime can't load {path.name}: {exc}") from exc


def random_inputs(inputs: Sequence[TensorInfo], batch: int, seed: int) -> Arrays:
    """Random arrays [batch, ...] for `inputs`: pixels for uint8, 0..1 for floats, 0 or 1 for other integers."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for info in inputs:
        if None in info.shape:
            raise ModelError(f"input {info.name!r} has no static shape {info.shape}; fix its size before partitioning")
        shape = (batch, *(dim or 0 for dim in info.shape))
        dtype = np.dtype(info.dtype)
        if dtype.kind == "f":
            arrays[info.name] = rng.random(shape, dtype=np.float32).astype(dtype)
        else:
            arrays[info.name] = rng.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)
    return arrays


class CutChecker:
    """Compares cut runs of one graph with its whole runs, which are made once."""

    def __init__(self, graph: Graph, shapes: Shapes, folder: Path) -> None:
        self._graph = graph
        self._folder = folder
        self._inputs = tuple(shapes.edge(name) for name in graph.inputs)
        self._outputs = tuple(shapes.edge(name) for name in graph.outputs)
        batches = (shapes.batch,) if shapes.batch is not None else _BATCHES
        self._runs: list[tuple[Arrays, Arrays]] = []
        with tempfile.TemporaryDirectory(prefix="framepool-check-") as scratch:
            session = self._open(self._inputs, self._outputs, Path(scratch) / "whole.onnx")
            for batch in batches:
                feeds = random_inputs(self._inputs, batch, _SEED + batch)
                try:
                    self._runs.append((feeds, run(session, feeds)))
                except Exception as exc:  # onnxruntime raises its own pybind types
                    if not self._runs:
                        raise ModelInvalidError(f"the model does not run on a random input: {exc}") from exc
                    break  # runs singly only; batching it is refused elsewhere

    def check(self, tensors: Sequence[TensorInfo]) -> CutVerdict:
        """Runs the two parts that meet at `tensors`."""
        with tempfile.TemporaryDirectory(prefix="framepool-check-") as scratch:
            first = self._open(self._inputs, tensors, Path(scratch) / "first.onnx")
            second = self._open(tensors, self._outputs, Path(scratch) / "second.onnx")
            verdicts = [compare(whole, run(second, run(first, feeds))) for feeds, whole in self._runs]
        return CutVerdict(
            all(verdict.exact for verdict in verdicts),
            max(verdict.max_abs_error for verdict in verdicts),
            max(verdict.relative_error for verdict in verdicts),
        )

    def _open(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], path: Path) -> Any:
        write_subgraph(self._graph, self._folder, inputs, outputs, path)
        return open_session(path)


def run(session: Any, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
    """Runs a session on those of `feeds` that it reads; the result maps output names to arrays."""
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {entry.name: feeds[entry.name] for entry in session.get_inputs()})
    return dict(zip(names, values, strict=True))


def compare(whole: Mapping[str, NDArray[Any]], parts: Mapping[str, NDArray[Any]]) -> CutVerdict:
    """Compares outputs by name: bit for bit, and by their largest difference (infinite where shapes differ)."""
    exact, worst, relative = True, 0.0, 0.0
    for name, expected in whole.items():
        got = parts[name]
        if expected.shape == got.shape and expected.tobytes() == got.tobytes():
            continue
        exact = False
        if expected.shape != got.shape or expected.dtype.kind not in "biuf":
            return CutVerdict(False, math.inf, math.inf)
        a, b = expected.astype(np.float64), got.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(a - b))
        error = float(np.nan_to_num(difference, nan=math.inf).max())
        finite = a[np.isfinite(a)]
        worst = max(worst, error)
        relative = max(relative, error / max(1.0, float(np.abs(finite).max(initial=0.0))))
    return CutVerdict(exact, worst, relative)
