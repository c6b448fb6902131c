"""Takes in an ONNX file: what it says of itself, what the user says of it, and a dry run, before it is accepted.

    file -> checks -> spec (metadata < --spec file < flags) -> folded graph -> dry run in a child -> ImportedModel

Refusals say what is wrong and what would help: file damage is ModelInvalidError, what this installation can't run is
ModelUnsupportedError, a spec that does not fit the graph is ModelSpecError.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, ValueInfoProto

from framepool.models.children import run_child
from framepool.models.errors import ModelInvalidError, ModelSpecError, ModelUnsupportedError
from framepool.models.folding import fold_preprocessing
from framepool.models.graph import bodies, initializer_names
from framepool.models.graph_weights import bring_in_small, external_tensors, locate
from framepool.models.spec import HeadSpec, InputSpec, Layout, ModelSpec, Task
from framepool.models.spec_toml import parse_toml, spec_from_toml, spec_to_toml, with_overrides

SERVED_FILE = "model.onnx"
DRY_RUN_TIMEOUT_S = 120.0
DEFAULT_MAX_BATCH = 64
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

_NUMPY_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.UINT8: "uint8",
}
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml", "ai.onnx.training"})
"""Operator sets beyond ONNX's own that onnxruntime brings."""
_ULTRALYTICS_TASKS = {
    "detect": Task.DETECT,
    "classify": Task.CLASSIFY,
    "segment": Task.DETECT,
    "pose": Task.KEYPOINTS,
}


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A served graph on disk and its spec, accepted by the dry run."""

    path: Path
    spec: ModelSpec


def import_model(
    source: Path,
    name: str,
    out_dir: Path,
    *,
    spec_toml: str = "",
    head: str = "",
    labels: Sequence[str] = (),
    timeout_s: float = DRY_RUN_TIMEOUT_S,
) -> ImportedModel:
    """Checks the file and writes the served graph, weights beside it included, into `out_dir`. Raises ModelError."""
    check_name(name)
    model = read_model(source)
    _check_versions(model)
    _check_operators(model)
    bring_in_small(model.graph, source.parent)
    weights = _external_files(model, source.parent)
    values = parse_toml(spec_toml, "spec") if spec_toml else {}
    spec = _spec_of(model, name, values)
    spec = with_overrides(spec, values)
    if head:
        spec = with_overrides(spec, {"head": {"kind": head}})
    if labels:
        spec = replace(spec, labels=tuple(labels))
    served = fold_preprocessing(model, spec.input)
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / SERVED_FILE
    path.write_bytes(served.SerializeToString(deterministic=True))
    for file in weights:
        _bring_along(file, out_dir)
    spec = replace(spec, name=name, opset=_opset(model), digest=digest_of(path, [out_dir / f.name for f in weights]))
    result = run_child(
        "framepool.models.dry_run",
        {"path": str(path), "spec": spec_to_toml(spec)},
        timeout_s,
        "the dry run of the model",
    )
    checked = spec_from_toml(result["spec"])
    return ImportedModel(
        path, replace(checked, max_batch=int(result["max_batch"]), batch_safe=bool(result["batch_safe"]))
    )


def check_name(name: str) -> None:
    """Raises ModelSpecError for a name that can't be a model's."""
    if not MODEL_NAME.fullmatch(name):
        shown = name if len(name) <= 60 else f"{name[:57]}... ({len(name)} characters)"
        raise ModelSpecError(
            f"name {shown!r} is no model name; use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or "
            "digit",
            field="name",
        )


def read_model(source: Path) -> ModelProto:
    """The file's message, weights beside it left where they are. Raises ModelInvalidError."""
    try:
        if source.stat().st_size == 0:
            raise ModelInvalidError(f"model file {source.name} is empty", field="model")
        model = onnx.load(source, load_external_data=False)
    except FileNotFoundError:
        raise ModelInvalidError(f"model file {source} does not exist", field="model") from None
    except (DecodeError, OSError, ValueError, RuntimeError) as exc:
        raise ModelInvalidError(
            f"model file {source.name} is no ONNX file, or is cut off: {exc}; copy or export it again", field="model"
        ) from exc
    if not model.graph.node:
        raise ModelInvalidError(f"model file {source.name} holds an empty graph; export it again", field="model")
    return model


def _opset(model: ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def _check_versions(model: ModelProto) -> None:
    """Refuses what is newer than the installed onnx knows; both versions are named."""
    newest = onnx.defs.onnx_opset_version()
    opset = _opset(model)
    if opset > newest:
        raise ModelUnsupportedError(
            f"the model uses opset {opset}, this installation knows up to {newest}; export it with opset 17, or update "
            "onnx and onnxruntime",
            field="model",
        )
    if model.ir_version > onnx.IR_VERSION:
        raise ModelUnsupportedError(
            f"the model is of IR version {model.ir_version}, this installation knows up to {onnx.IR_VERSION}; export "
            "it with an older onnx, or update onnx and onnxruntime",
            field="model",
        )
    if opset < 1:
        raise ModelInvalidError("the model names no opset of ONNX; export it again", field="model")


def _check_operators(model: ModelProto) -> None:
    """Names the first operator that neither ONNX nor onnxruntime has."""
    own = {(function.domain, function.name) for function in model.functions}
    opset = _opset(model)

    def visit(nodes: Any) -> None:
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            known = domain in _RUNTIME_DOMAINS or (node.domain, node.op_type) in own
            if not known and not (domain == "" and onnx.defs.has(node.op_type, max_inclusive_version=opset)):
                raise ModelUnsupportedError(
                    f"the model needs the operator {node.domain or 'ai.onnx'}:{node.op_type} (node {node.name!r}), "
                    "which onnxruntime does not have; export it without custom operators",
                    field="model",
                )
            for body in bodies(node):
                visit(body.node)

    visit(model.graph.node)


def _external_files(model: ModelProto, folder: Path) -> list[Path]:
    """Files beside the model that hold its weights. Raises ModelInvalidError for missing ones and for paths outside."""
    files = {locate(tensor, folder).path for tensor in external_tensors(model.graph)}
    nested = [file for file in files if file.parent != folder.resolve()]
    if nested:
        raise ModelInvalidError(
            f"weights lie in {nested[0].parent.name}/, below the model's folder; keep them right beside the model",
            field="model",
        )
    return sorted(files)


def _bring_along(file: Path, out_dir: Path) -> None:
    """Links (or copies) a weights file into the entry."""
    target = out_dir / file.name
    if target.exists():
        return
    try:
        target.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, target)


def digest_of(path: Path, weights: Sequence[Path]) -> str:
    """sha-256 (hex) over the served graph and its weights files, in order of name."""
    digest = hashlib.sha256()
    for file in (path, *sorted(weights)):
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _spec_of(model: ModelProto, name: str, values: dict[str, Any]) -> ModelSpec:
    """What the file says of itself, with guesses where it does not. The head's kind is left open ("")."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    value = _picture_input(model, str(values.get("input", {}).get("name", "")))
    ultralytics = (
        "ultralytics" in metadata.get("author", "").lower() or "ultralytics" in metadata.get("description", "").lower()
    )
    spec = ModelSpec(
        name=name,
        task=_ULTRALYTICS_TASKS.get(metadata.get("task", ""), Task.DETECT),
        input=_input_spec(value, metadata, values.get("input", {}), scale=1 / 255 if ultralytics else 1.0),
        head=HeadSpec(""),
        labels=_labels(metadata.get("names", "")),
        max_batch=DEFAULT_MAX_BATCH,
        origin=metadata.get("author", model.producer_name),
        license=metadata.get("license", ""),
    )
    if ultralytics and spec.task is Task.CLASSIFY:
        return replace(spec, head=HeadSpec("classification", score_threshold=0.0))
    return spec


def _labels(text: str) -> tuple[str, ...]:
    """Labels from Ultralytics' metadata (a Python or JSON dict or list)."""
    if not text:
        return ()
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            return ()
    if isinstance(names, dict):
        try:
            ordered = sorted((int(key), str(value)) for key, value in names.items())
        except (TypeError, ValueError):
            return ()
        return tuple(value for _, value in ordered)
    return tuple(str(item) for item in names) if isinstance(names, (list, tuple)) else ()


def _picture_input(model: ModelProto, wanted: str) -> ValueInfoProto:
    """The one input that takes the picture. Raises ModelUnsupportedError, ModelSpecError."""
    given = initializer_names(model.graph)
    required = [value for value in model.graph.input if value.name not in given]
    if not required:
        raise ModelInvalidError("the model has no input that takes a picture", field="model")
    if wanted and wanted not in {value.name for value in required}:
        names = ", ".join(value.name for value in required)
        raise ModelSpecError(f"input.name: the model has no input {wanted!r}; it has {names}", field="input.name")
    chosen = next((value for value in required if value.name == wanted), None)
    if chosen is None:
        four = [value for value in required if len(value.type.tensor_type.shape.dim) == 4]
        chosen = four[0] if len(four) == 1 else required[0]
    extra = [value.name for value in required if value is not chosen]
    if extra:
        raise ModelUnsupportedError(
            f"the model needs inputs beside the picture: {', '.join(extra)}; export it with these built in",
            field="model",
        )
    return chosen


def _input_spec(value: ValueInfoProto, metadata: dict[str, str], given: dict[str, Any], *, scale: float) -> InputSpec:
    tensor = value.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]
    if len(dims) != 4:
        raise ModelInvalidError(
            f"input {value.name!r} has {len(dims)} axes; a picture has 4 (batch, and channels, height, width in either "
            "order)",
            field="model",
        )
    if tensor.elem_type not in _NUMPY_NAMES:
        kind = TensorProto.DataType.Name(tensor.elem_type)
        raise ModelUnsupportedError(
            f"input {value.name!r} is of type {kind}; export it with float32, float16 or uint8", field="model"
        )
    if dims[0] > 1:
        raise ModelUnsupportedError(
            f"input {value.name!r} is fixed to batches of {dims[0]}; export it with a dynamic batch, or 1",
            field="model",
        )
    if dims[1] == 3:
        layout, height, width = Layout.NCHW, dims[2], dims[3]
    elif dims[3] == 3:
        layout, height, width = Layout.NHWC, dims[1], dims[2]
    else:
        raise ModelInvalidError(
            f"input {value.name!r} has shape {dims} (0: any); a colour picture has 3 channels in axis 1 or 3",
            field="model",
        )
    hinted = _image_size(metadata.get("imgsz", ""))
    height = height or int(given.get("height_px", 0) or hinted[0])
    width = width or int(given.get("width_px", 0) or hinted[1])
    if not height or not width:
        raise ModelSpecError(
            f"input {value.name!r} takes any height and width; give input.height_px and input.width_px",
            field="input.height_px",
        )
    return InputSpec(value.name, height, width, layout=layout, dtype=_NUMPY_NAMES[tensor.elem_type], scale=scale)


def _image_size(text: str) -> tuple[int, int]:
    """Height and width from Ultralytics' ``imgsz``, zeros where it says nothing."""
    try:
        size = ast.literal_eval(text) if text else 0
    except (ValueError, SyntaxError):
        return 0, 0
    if isinstance(size, int):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return int(size[0]), int(size[1])
    return 0, 0
