"""Profiles: measured once on real backends, kept, trusted only while they fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framepool.engine.config import DeviceSection, ProfilesSection
from framepool.engine.errors import DeviceError
from framepool.engine.hardware import allowed_cores, build_hardware
from framepool.engine.profiling import Profiles, edge_bytes
from framepool.engine.stage_files import StageFiles
from framepool.models.partition import Partition
from framepool.models.registry import ModelEntry, ModelRegistry

CORE = allowed_cores()[0]
SETTINGS = ProfilesSection(batch_sizes=(1, 3), seconds_per_batch=0.01)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def model(state: Path) -> tuple[ModelEntry, Partition]:
    registry = ModelRegistry(state / "models")
    return registry.get("movenet"), registry.partition("movenet")


def profiles(state: Path, folder: Path, **device: Any) -> Profiles:
    real = {"class": "cpu", "backend": "onnxruntime", "cores": [CORE], "shares": [1, 2], **device}
    fake = {"class": "fake", "backend": "emulated", "emulates": "cpu", "scale": 0.25, "shares": [1]}
    hardware = build_hardware([DeviceSection.model_validate(section) for section in (real, fake)])
    return Profiles(folder, StageFiles(state / "stages"), hardware, SETTINGS)


@pytest.fixture(scope="module")
def measured(state: Path, model: tuple[ModelEntry, Partition]) -> Profiles:
    """Measured profiles, the first time with every step of its progress checked."""
    made = profiles(state, state / "profiles")
    assert made.get(*model) is None
    assert made.whole_model_ms(*model) == {}
    steps = list(made.measure(*model, force=False))
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total == model[1].n_blocks + 1
    return made


def test_a_profile_has_every_class_share_and_batch(measured: Profiles, model: tuple[ModelEntry, Partition]) -> None:
    found = measured.get(*model)
    assert found is not None
    assert [(b.device_class, b.share, b.source) for b in found.blocks] == [
        ("cpu", 1, "measured"),
        ("cpu", 2, "measured"),
        ("fake", 1, "emulated"),
    ]
    whole, half, fake = found.blocks
    assert whole.batch_sizes == (1, 2, 3)
    assert whole.latency_us.shape == (model[1].n_blocks, 3)
    assert (whole.latency_us > 0).all()
    assert np.allclose(whole.latency_us[:, 1], (whole.latency_us[:, 0] + whole.latency_us[:, 2]) / 2)
    assert np.allclose(half.latency_us, 2 * whole.latency_us)  # one core can't be halved: it takes turns
    cost_us = SETTINGS.batch_overhead_ms * 1e3 / model[1].n_blocks  # of a batch, which an emulated device has too
    assert np.allclose(fake.latency_us - cost_us, 0.25 * (whole.latency_us - cost_us))
    alone_us = whole.latency_us[:, 0].sum() - SETTINGS.batch_overhead_ms * 1e3
    assert measured.whole_model_ms(*model)["cpu"] == pytest.approx(alone_us / 1e3)
    assert found.edge_bytes == edge_bytes(model[1])
    assert found.edge_bytes[0] == 192 * 192 * 3


def test_what_was_measured_is_not_measured_again(
    measured: Profiles, state: Path, model: tuple[ModelEntry, Partition]
) -> None:
    kept = {path: path.read_bytes() for path in (state / "profiles").iterdir()}
    assert [step.total for step in measured.measure(*model, force=False)] == [0]
    again = profiles(state, state / "profiles")
    assert [step.total for step in again.measure(*model, force=False)] == [0]
    assert {path: path.read_bytes() for path in (state / "profiles").iterdir()} == kept
    assert all(path.suffix == ".json" for path in kept)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"7", b'{"format": 1}', b'{"format": 1, "latency_us": [1, 2]}'])
def test_a_damaged_profile_is_as_if_it_were_not_there(
    damage: bytes, measured: Profiles, state: Path, model: tuple[ModelEntry, Partition], tmp_path: Path
) -> None:
    for path in (state / "profiles").iterdir():
        (tmp_path / path.name).write_bytes(damage)
    found = profiles(state, tmp_path)
    assert found.get(*model) is None
    assert found.whole_model_ms(*model) == {}


def test_other_hardware_or_precision_has_a_profile_of_its_own(
    measured: Profiles, state: Path, model: tuple[ModelEntry, Partition]
) -> None:
    assert profiles(state, state / "profiles", backend="openvino").get(*model) is None
    assert profiles(state, state / "profiles", precision="int8").get(*model) is None
    file = next((state / "profiles").iterdir())
    assert json.loads(file.read_text())["fingerprint"].startswith("onnxruntime|onnxruntime ")


def test_a_device_that_can_not_be_measured_says_why(
    state: Path, model: tuple[ModelEntry, Partition], tmp_path: Path
) -> None:
    broken = profiles(state, tmp_path, provider="quantum")
    with pytest.raises(DeviceError, match=r"cpu-0 could not be profiled: .*provider 'quantum' is unknown"):
        list(broken.measure(*model, force=False))
    assert list(tmp_path.iterdir()) == []
