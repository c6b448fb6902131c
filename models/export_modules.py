"""torchvision models as modules of one picture tensor in and head-ready tensors out. Needs torch and torchvision.

Import it only from `export`, which says what to install where they are missing.

Random weights are for building, testing and profiling without a download: they cost what trained ones cost. They are
drawn from a fixed seed and then conditioned, for a plain random network is degenerate (activations double at each
residual block, detectors find nothing, all scores tie): batch norms take their statistics from made-up pictures, layer
scales are raised, and the layers that score are rescaled until their outputs have a spread of `_SPREAD`.

Rounding errors must not be blown up on the way. So the pictures are blotches of every size, as in photographs (under
plain noise, deep layers see nearly the same everywhere), there are several (from two, deep batch norms learn the two),
and no channel counts as flatter than `_LEAST_VARIANCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torchvision
from torch import nn
from torchvision.models import get_model, get_model_weights

from framepool.models.export_catalog import IMAGENET_MEAN, IMAGENET_STD, CatalogEntry, Family

SEED = 20250
_SPREAD = 2.5
_LAYER_SCALE = 0.3
_PICTURES = 8
_LEAST_VARIANCE = 0.25
"""Of a channel, as a share of its layer's mean."""
_RANDOM_SCORE_THRESHOLD = 0.05


class _Segmenter(nn.Module):  # type: ignore[misc]
    """images [n, 3, h, w] -> logits [n, classes, h, w]."""

    def __init__(self, model: Any, image_px: int) -> None:
        super().__init__()
        self.backbone, self.classifier, self.image_px = model.backbone, model.classifier, image_px

    def forward(self, images: Any) -> Any:
        features = self.backbone(images)
        logits = self.classifier(features["out"] if set(features) <= {"out", "aux"} else features)
        return nn.functional.interpolate(
            logits, size=(self.image_px, self.image_px), mode="bilinear", align_corners=False
        )


class _Detector(nn.Module):  # type: ignore[misc]
    """images [1, 3, h, w] 0..1 -> detections [1, k, 6] x1 y1 x2 y2 score class, and keypoints [1, k, j, 3] if any."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.joints = model.roi_heads.keypoint_predictor.kps_score_lowres.out_channels if _finds_joints(model) else 0

    def forward(self, images: Any) -> Any:
        found = self.model([images[0]])[0]
        columns = [found["boxes"], found["scores"][:, None], found["labels"][:, None].to(images.dtype)]
        detections = torch.cat(columns, dim=1)[None]
        return (detections, found["keypoints"].reshape(1, -1, self.joints, 3)) if self.joints else detections


def build_module(entry: CatalogEntry, *, pretrained: bool, image_px: int) -> Any:
    """The module of a catalog entry in eval mode, its input a float32 [n, 3, image_px, image_px] tensor."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model = get_model(entry.name, **_settings(entry, pretrained, image_px)).eval()
        if not pretrained:
            _condition(entry, model, image_px)
    match entry.family:
        case Family.SEGMENTATION:
            return _Segmenter(model, image_px).eval()
        case Family.DETECTION | Family.KEYPOINTS:
            return _Detector(model).eval()
    return model


def example_pictures(entry: CatalogEntry, count: int, image_px: int) -> Any:
    """Made-up pictures, always the same, as the model expects them: float32 [count, 3, image_px, image_px]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED + 1)
        return _made_up_pictures(entry, count, image_px)


def labels_of(entry: CatalogEntry) -> tuple[str, ...]:
    """Class names of the model's published weights; known without downloading them."""
    return tuple(str(label) for label in get_model_weights(entry.name).DEFAULT.meta["categories"])


def origin_of(entry: CatalogEntry, *, pretrained: bool) -> str:
    """Where the weights come from, for the spec."""
    if pretrained:
        return f"torchvision {torchvision.__version__} {get_model_weights(entry.name).DEFAULT}"
    return f"torchvision {torchvision.__version__} {entry.name}, random weights (seed {SEED})"


def _settings(entry: CatalogEntry, pretrained: bool, image_px: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"weights": "DEFAULT" if pretrained else None}
    if entry.family is not Family.CLASSIFICATION and not pretrained:
        settings["weights_backbone"] = None
    if entry.control_flow and not entry.fixed_size:
        settings |= {"min_size": image_px, "max_size": image_px}
    if entry.name in ("googlenet", "inception_v3") and not pretrained:
        settings |= {"aux_logits": False, "init_weights": False}
    if entry.control_flow and not pretrained:
        rcnn = "rcnn" in entry.name
        settings["box_score_thresh" if rcnn else "score_thresh"] = _RANDOM_SCORE_THRESHOLD
    return settings


def _condition(entry: CatalogEntry, model: Any, image_px: int) -> None:
    """Makes random weights behave: see the module's docstring."""
    for name, parameter in model.named_parameters():
        if name.endswith("layer_scale"):
            parameter.fill_(_LAYER_SCALE)
    pictures = _made_up_pictures(entry, 2 if entry.control_flow else _PICTURES, image_px)
    run: Callable[[], Any] = lambda: model(list(pictures) if entry.control_flow else pictures)  # noqa: E731
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(_take_statistics) for norm in norms]
    if norms:
        run()
    for hook in hooks:
        hook.remove()
    for layer in _scoring_layers(entry, model):
        seen: list[float] = []
        hook = layer.register_forward_hook(lambda _module, _inputs, output, seen=seen: seen.append(float(output.std())))
        run()
        hook.remove()
        if seen and seen[0] > 0.0:
            layer.weight.mul_(_SPREAD / seen[0])


def _take_statistics(norm: Any, inputs: tuple[Any, ...]) -> None:
    variance, mean = torch.var_mean(inputs[0], dim=(0, 2, 3))
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance.clamp(min=_LEAST_VARIANCE * float(variance.mean())))


def _made_up_pictures(entry: CatalogEntry, count: int, side_px: int) -> Any:
    """float32 [count, 3, side_px, side_px] with as much contrast at each octave of size, as the model expects them."""
    pictures = torch.zeros(count, 3, side_px, side_px)
    grid_px = 2
    while grid_px < 2 * side_px:
        octave = torch.rand(count, 3, min(grid_px, side_px), min(grid_px, side_px)) - 0.5
        pictures += nn.functional.interpolate(octave, size=(side_px, side_px), mode="bilinear", align_corners=False)
        grid_px *= 2
    least, most = pictures.amin((1, 2, 3), keepdim=True), pictures.amax((1, 2, 3), keepdim=True)
    pictures = (pictures - least) / (most - least)
    if entry.control_flow:
        return pictures
    return (pictures - _channels(IMAGENET_MEAN)) / _channels(IMAGENET_STD)


def _channels(values: tuple[float, float, float]) -> Any:
    return torch.tensor(values).reshape(1, 3, 1, 1)


def _finds_joints(model: Any) -> bool:
    return hasattr(model, "roi_heads") and model.roi_heads.has_keypoint()


def _scoring_layers(entry: CatalogEntry, model: Any) -> Iterator[Any]:
    """The layers whose outputs rank boxes, or classes of a pixel, in the order they run."""
    if entry.family is Family.SEGMENTATION:
        classes = len(labels_of(entry))
        for module in model.classifier.modules():
            if isinstance(module, nn.Conv2d) and module.out_channels == classes:
                yield module
    if not entry.control_flow:
        return
    if hasattr(model, "rpn"):
        yield model.rpn.head.cls_logits
        yield model.roi_heads.box_predictor.cls_score
        if entry.family is Family.KEYPOINTS:
            yield model.roi_heads.keypoint_predictor.kps_score_lowres
        return
    head = model.head.classification_head
    if hasattr(head, "cls_logits"):
        yield head.cls_logits
    else:
        for branch in head.module_list:
            yield [module for module in branch.modules() if isinstance(module, nn.Conv2d)][-1]
