"""torchvision models: every one in the catalog exports, is accepted with its spec, cuts, and its parts give the whole.

The cases that need torch carry the mark `export` and are skipped, saying so, where it is not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import cv2
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import framepool.models
from framepool.models.blocks import MAX_BLOCKS
from framepool.models.cut_check import Arrays, compare, open_session, run
from framepool.models.errors import ExportError
from framepool.models.export import ExportedModel, export_model, load_module
from framepool.models.export_catalog import CatalogEntry, Family, catalog, find
from framepool.models.heads import build_head
from framepool.models.importing import DEFAULT_MAX_BATCH, import_model
from framepool.models.letterbox import plan_transform
from framepool.models.partition import Partition
from framepool.models.partitioning import CUT_TOLERANCE, partition_model
from framepool.models.spec import ModelSpec, Task
from framepool.models.spec_toml import spec_from_toml
from framepool.models.stages import extract_stage

TORCH_MISSING = importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchvision") is None

TORCH_TOLERANCE = 2e-3
"""Difference to torch relative to the output's range: 101 layers of random weights amplify what each kernel rounds."""

SMALL_PX = {
    "convnext_large": 64,
    "deeplabv3_resnet101": 256,
    "efficientnet_v2_m": 224,
    "efficientnet_v2_s": 224,
    "fasterrcnn_resnet50_fpn": 320,
    "fcn_resnet101": 256,
    "fcos_resnet50_fpn": 320,
    "keypointrcnn_resnet50_fpn": 320,
    "lraspp_mobilenet_v3_large": 256,
    "retinanet_resnet50_fpn": 320,
    "wide_resnet101_2": 128,
}
"""Sides in px that are cheaper than the models' own; nodes, weights and cuts are the same."""

HEAVY_BYTES = 100 << 20
"""Models above are parted into 5 blocks instead of 10: writing and loading their weights for each check takes long."""


def needs_torch(test: Any) -> Any:
    skip = pytest.mark.skipif(TORCH_MISSING, reason="torch and torchvision are not installed; run `make test-export`")
    return pytest.mark.export(pytest.mark.timeout(400)(skip(test)))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Gone after the test, unlike pytest's own: the files of all models come to some 10 GB."""
    with tempfile.TemporaryDirectory(prefix="framepool-test-export-") as path:
        yield Path(path)


@needs_torch
@pytest.mark.parametrize("name", sorted(catalog()))
def test_model_exports_cuts_and_its_parts_give_the_whole(name: str, folder: Path) -> None:
    exported = export_model(name, folder, image_size=SMALL_PX.get(name))
    assert exported.path == folder / f"{name}.onnx"
    assert exported.spec_path.read_text(encoding="utf-8") == exported.spec_toml
    assert_same_as_torch(name, exported)

    imported = import_model(exported.path, name, folder / "served", spec_toml=exported.spec_toml)
    assert imported.spec.batch_safe
    assert imported.spec.max_batch == (1 if find(name).control_flow else DEFAULT_MAX_BATCH)
    exported.path.unlink()

    heavy = imported.path.stat().st_size > HEAVY_BYTES
    partition = partition_model(imported.path, imported.spec.digest, max_blocks=5 if heavy else MAX_BLOCKS)
    assert partition.n_blocks >= 2
    feeds = {"frames": blotches(imported.spec.input.height_px)}
    whole = run(open_session(imported.path), feeds)
    assert_decodes(imported.spec, partition, whole)
    for cut in partition.cuts:
        values = feeds
        for first, last in ((0, cut.index), (cut.index, partition.n_blocks)):
            stage = extract_stage(imported.path, partition, first, last, folder / "stage.onnx")
            values = run(open_session(stage.path), values)
        assert_same(find(name), whole, values, exact=cut.exact)


def blotches(side_px: int) -> NDArray[np.uint8]:
    """A frame [1, side_px, side_px, 3] with detail of every size: near plain noise, random detectors can't decide."""
    rng = np.random.default_rng(77)
    frame = np.zeros((side_px, side_px, 3), np.float32)
    for grid_px in (2, 4, 8, 16, 32):
        frame += cv2.resize(rng.random((grid_px, grid_px, 3), dtype=np.float32), (side_px, side_px))
    return np.asarray(frame[None] * (255 / frame.max()), dtype=np.uint8)


def assert_same_as_torch(name: str, exported: ExportedModel) -> None:
    """The file against the module it was made from, on a picture that neither has seen."""
    import torch

    from framepool.models.export_modules import example_pictures

    entry = find(name)
    image_px = SMALL_PX.get(name, entry.image_px)
    pictures = example_pictures(entry, 3, image_px)[2:]
    with torch.no_grad():
        expected = load_module(name, image_size=image_px)(pictures)
    expected = expected if isinstance(expected, tuple) else (expected,)
    got = run(open_session(exported.path), {"images": pictures.numpy()})
    assert len(expected) == len(got)
    named = {output: tensor.numpy() for output, tensor in zip(got, expected, strict=True)}
    assert_same(entry, named, got, exact=False, tolerance=TORCH_TOLERANCE)


def assert_same(
    entry: CatalogEntry, whole: Arrays, parts: Arrays, *, exact: bool, tolerance: float = CUT_TOLERANCE
) -> None:
    if entry.control_flow and not exact:
        assert_same_boxes(whole, parts)
        return
    verdict = compare(whole, parts)
    assert verdict.relative_error <= tolerance, verdict
    if exact:
        assert verdict.exact, verdict


def assert_same_boxes(whole: Arrays, parts: Arrays) -> None:
    """Rounding swaps boxes of nearly equal scores, and lets one in a hundred win or lose against a neighbour."""
    expected, got = whole["detections"][0], parts["detections"][0]
    assert len(expected) > 0
    assert abs(len(expected) - len(got)) <= max(1, len(expected) // 50)
    same = np.abs(expected[:, None, :4] - got[None, :, :4]).max(axis=2) < 0.5
    same &= np.abs(expected[:, None, 4] - got[None, :, 4]) < 5e-3
    same &= expected[:, None, 5] == got[None, :, 5]
    assert same.any(axis=1).mean() > 0.95
    if "keypoints" in whole:
        pairs = np.argwhere(same)
        far = np.abs(whole["keypoints"][0][pairs[:, 0]] - parts["keypoints"][0][pairs[:, 1]])[..., :2].max(axis=-1)
        assert (far < 1.0).mean() > 0.9


def assert_decodes(spec: ModelSpec, partition: Partition, outputs: Arrays) -> None:
    """The head of the exported spec yields rows with labels."""
    height_px, width_px = spec.input.height_px, spec.input.width_px
    transform = plan_transform(640, 480, width_px, height_px, spec.input.resize)
    found = build_head(spec, partition.outputs).decode(outputs, [transform])[0]
    assert len(found.scores) > 0
    assert all(0 <= class_id < len(spec.labels) for class_id in found.classes)
    if spec.task is Task.KEYPOINTS:
        assert found.keypoints is not None
        assert found.keypoints.shape[1:] == (17, 3)


@needs_torch
def test_export_twice_gives_the_same_file(folder: Path) -> None:
    first = export_model("mobilenet_v3_small", folder / "a").path.read_bytes()
    assert export_model("mobilenet_v3_small", folder / "b").path.read_bytes() == first


@needs_torch
def test_image_size_and_opset_are_those_asked_for(folder: Path) -> None:
    exported = export_model("squeezenet1_1", folder, image_size=96, opset=16)
    model = onnx.load(exported.path)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, [dim.dim_value for dim in dims[1:]]) == ("batch", [3, 96, 96])
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == 16
    spec = spec_from_toml(exported.spec_toml)
    assert (spec.input.width_px, spec.input.height_px, spec.labels[0]) == (96, 96, "tench")
    assert spec.input.mean == (0.485, 0.456, 0.406)


@needs_torch
def test_unreachable_weights_are_an_error_that_names_the_cure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    monkeypatch.setenv("TORCH_HOME", str(folder / "cache"))
    with pytest.raises(ExportError, match=r"resnet18 can't be fetched.*random weights"):
        export_model("resnet18", folder, weights="default")
    assert not list(folder.glob("*.onnx"))


@needs_torch
def test_failed_export_leaves_nothing_behind(folder: Path) -> None:
    with pytest.raises(ExportError, match="opset 99"):
        export_model("squeezenet1_1", folder, image_size=64, opset=99)
    assert list(folder.iterdir()) == []


@needs_torch
def test_torch_is_loaded_only_when_something_is_exported() -> None:
    code = "import sys, framepool.models.export; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_torch_is_an_error_that_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "framepool.models.export_modules", raising=False)
    monkeypatch.delattr(framepool.models, "export_modules", raising=False)
    with pytest.raises(ExportError, match=r"not installed.*pip install 'framepool\[export\]'"):
        export_model("resnet18", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_catalog_covers_the_kinds() -> None:
    entries = catalog()
    assert len(entries) >= 24
    assert {entry.family for entry in entries.values()} == set(Family)


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"name": "resnet9000"}, "name", "choose one of alexnet"),
        ({"name": "resnet18", "image_size": 8}, "image_size", "image size 8 px is outside 32..4096"),
        ({"name": "ssd300_vgg16", "image_size": 512}, "image_size", "takes no other size"),
        ({"name": "resnet18", "weights": "imagenet"}, "weights", "'imagenet'"),
    ],
)
def test_what_can_not_be_exported_is_refused_by_name(
    settings: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message) as refused:
        export_model(out_dir=tmp_path, **settings)
    assert refused.value.field == field
    assert list(tmp_path.iterdir()) == []
