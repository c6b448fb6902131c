"""torchvision models as ONNX files with the spec to register them by. Needs the extra `export` (torch is large).

The TorchScript exporter is used: it writes detectors with their suppression in the graph, which torch's newer
exporter does not, and folds batch norms on the way. Detectors are exported whole, for one picture at a time; their
shapes, all static, are folded by onnxruntime's basic optimisations, so that their backbones can be cut.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import tomli_w

from framepool.models.errors import ExportError
from framepool.models.export_catalog import IMAGENET_MEAN, IMAGENET_STD, CatalogEntry, Family, Weights, find
from framepool.models.spec import ColorOrder, Layout, Resize, Task

DEFAULT_OPSET = 17

_CURE = "pip install 'framepool[export]'"

_LEAST_PX = 32
_MOST_PX = 4096


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """An ONNX file and its spec, as TOML text and as the file beside the model."""

    path: Path
    spec_toml: str
    spec_path: Path


def export_model(
    name: str,
    out_dir: Path,
    *,
    weights: Weights = "random",
    image_size: int | None = None,
    opset: int = DEFAULT_OPSET,
) -> ExportedModel:
    """Writes ``<out_dir>/<name>.onnx`` and ``<name>.toml``, each only when complete.

    `weights` "default" downloads torchvision's published weights (or takes them from its cache); "random" draws them
    from a fixed seed (see `export_modules`). `image_size` is the side of the square input in pixels, None for the size
    the model was trained for. Classifiers and segmenters take any batch, detectors one picture. Raises ExportError.
    """
    entry = find(name)
    image_px = _checked_size(entry, image_size)
    if weights not in get_args(Weights):
        raise ExportError(f"weights {weights!r} of {name} are unknown; use 'random' or 'default'", field="weights")
    out_dir.mkdir(parents=True, exist_ok=True)
    path, spec_path = out_dir / f"{name}.onnx", out_dir / f"{name}.toml"
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=out_dir) as scratch:
        partial = Path(scratch) / "model.onnx"
        module = load_module(name, weights=weights, image_size=image_size)
        _export(entry, module, partial, image_px, opset)
        if entry.control_flow:
            partial = _with_shapes_folded(partial, Path(scratch) / "folded.onnx")
        spec_toml = _spec_toml(entry, image_px, weights == "default")
        (Path(scratch) / "spec.toml").write_text(spec_toml, encoding="utf-8")
        partial.replace(path)
        (Path(scratch) / "spec.toml").replace(spec_path)
    return ExportedModel(path, spec_toml, spec_path)


def load_module(name: str, *, weights: Weights = "random", image_size: int | None = None) -> Any:
    """The torch module that `export_model` exports: float32 [n, 3, size, size] in, the file's outputs out."""
    entry = find(name)
    modules = _torch_part()
    try:
        with _quiet():
            pretrained = weights == "default"
            return modules.build_module(entry, pretrained=pretrained, image_px=_checked_size(entry, image_size))
    except OSError as exc:  # URLError and HTTPError among them: the download failed
        raise ExportError(
            f"published weights of {name} can't be fetched ({exc}); put them into torch's hub cache, or export with "
            "random weights"
        ) from exc


def _torch_part() -> Any:
    try:
        from framepool.models import export_modules
    except ImportError as exc:
        raise ExportError(f"torch and torchvision are not installed ({exc}); {_CURE}") from exc
    return export_modules


def _checked_size(entry: CatalogEntry, image_size: int | None) -> int:
    if image_size is None:
        return entry.image_px
    if not _LEAST_PX <= image_size <= _MOST_PX:
        raise ExportError(f"image size {image_size} px is outside {_LEAST_PX}..{_MOST_PX}", field="image_size")
    if entry.fixed_size and image_size != entry.image_px:
        raise ExportError(
            f"{entry.name} is made for {entry.image_px} px and takes no other size, not {image_size}",
            field="image_size",
        )
    return image_size


def _export(entry: CatalogEntry, module: Any, path: Path, image_px: int, opset: int) -> None:
    import torch

    outputs = {
        Family.CLASSIFICATION: ["logits"],
        Family.SEGMENTATION: ["logits"],
        Family.DETECTION: ["detections"],
        Family.KEYPOINTS: ["detections", "keypoints"],
    }[entry.family]
    if entry.control_flow:
        axes = {output: {1: "boxes"} for output in outputs}
    else:
        axes = {tensor: {0: "batch"} for tensor in ("images", *outputs)}
    pictures = _torch_part().example_pictures(entry, 1 if entry.control_flow else 2, image_px)
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                module,
                (pictures,),
                str(path),
                dynamo=False,
                opset_version=opset,
                input_names=["images"],
                output_names=outputs,
                dynamic_axes=axes,
            )
    except Exception as exc:  # the exporter raises whatever its passes raise
        raise ExportError(f"{entry.name} can't be exported at opset {opset} and {image_px} px: {exc}") from exc


def _with_shapes_folded(path: Path, folded: Path) -> Path:
    try:
        import onnxruntime as ort
    except ImportError as exc:
        raise ExportError(f"onnxruntime is not installed ({exc}); {_CURE}") from exc
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return folded


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Tracing warns of every shape it takes for a constant; here they are constants."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _spec_toml(entry: CatalogEntry, image_px: int, pretrained: bool) -> str:
    """What `importing` needs to know beside the file; keys as in `spec`."""
    modules = _torch_part()
    task = {
        Family.CLASSIFICATION: Task.CLASSIFY,
        Family.SEGMENTATION: Task.SEGMENT,
        Family.DETECTION: Task.DETECT,
        Family.KEYPOINTS: Task.KEYPOINTS,
    }[entry.family]
    detector = entry.control_flow
    head: dict[str, Any] = {"kind": "detections" if detector else entry.family.value}
    if detector:
        head["nms_iou"] = False  # the graph suppresses already
    elif entry.family is Family.CLASSIFICATION:
        head["score_threshold"] = 0.0  # the best classes, however sure
    source: dict[str, Any] = {
        "name": "images",
        "height_px": image_px,
        "width_px": image_px,
        "layout": Layout.NCHW.value,
        "color": ColorOrder.RGB.value,
        "dtype": "float32",
        "resize": (Resize.LETTERBOX if detector else Resize.STRETCH).value,
        "scale": 1.0 / 255.0,
    }
    if not detector:
        source |= {"mean": list(IMAGENET_MEAN), "std": list(IMAGENET_STD)}
    return tomli_w.dumps(
        {
            "name": entry.name,
            "task": task.value,
            "labels": list(modules.labels_of(entry)),
            "origin": modules.origin_of(entry, pretrained=pretrained),
            "license": "BSD-3-Clause",
            "input": source,
            "head": head,
        }
    )
