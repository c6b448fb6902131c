"""Devices from configuration or from the machine, and what is refused."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from framepool.engine import hardware
from framepool.engine.config import DeviceSection
from framepool.engine.errors import ConfigError
from framepool.engine.hardware import allowed_cores, build_hardware, detect

CORE = allowed_cores()[0]


def section(device_class: str, **values: Any) -> DeviceSection:
    return DeviceSection.model_validate({"class": device_class, "backend": "onnxruntime", **values})


def test_devices_of_a_class_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "allowed_cores", lambda: (0, 1, 2))
    found = build_hardware(
        [
            section("slow", backend="onnxruntime", cores=[0]),
            section("fast", backend="openvino", cores=[2], shares=[1]),
            section("slow", backend="onnxruntime", cores=[1]),
        ]
    )
    assert [device.id for device in found.devices] == ["slow-0", "slow-1", "fast-0"]
    assert [(c.name, c.count, c.shares) for c in found.inventory.classes] == [("slow", 2, (1, 2)), ("fast", 1, (1,))]
    assert found.settings("slow-1").cores == (1,)
    assert found.any_device("fast").id == "fast-0"
    with pytest.raises(KeyError):
        found.settings("fast-1")


def test_count_makes_alike_ones_and_an_emulated_class_takes_its_times_from_a_real_one() -> None:
    found = build_hardware(
        [section("cpu", cores=[CORE]), section("t4", backend="emulated", emulates="cpu", scale=0.5, count=100)]
    )
    assert len(found.devices) == 101
    assert found.devices[-1].id == "t4-99"
    assert found.devices[-1].emulated
    assert found.devices[-1].emulated_scale == 0.5
    assert found.emulated_class("t4").id == "cpu-0"


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ([section("a", cores=[CORE]), section("b", cores=[CORE])], "is given to more than one device"),
        ([section("a", cores=[9999])], r"devices.0.cores: this process may not use CPU \[9999\]; it may use"),
        ([section("a"), section("a", precision="bf16", backend="openvino")], "devices.1: devices of class 'a' differ"),
        ([section("a", backend="emulated")], "devices.0.emulates is empty"),
        ([section("a", backend="emulated", emulates="b")], "class 'a' emulates 'b', which is no class of real devices"),
        ([section("a", backend="emulated", emulates="a")], "class 'a' emulates 'a', which is no class of real devices"),
    ],
)
def test_what_can_not_be_is_refused_by_its_entry(sections: list[DeviceSection], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        build_hardware(sections)
    assert raised.value.field.startswith("devices")


def test_the_machine_s_cores_become_devices_of_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_detect_gpus", list)
    monkeypatch.setattr(hardware, "allowed_cores", lambda: tuple(range(10)))
    found = detect()
    assert [device.cores for device in found] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert len({device.device_class for device in found}) == 1
    monkeypatch.setattr(hardware, "allowed_cores", lambda: (3,))
    assert [device.cores for device in detect()] == [(3,)]


def test_gpus_become_devices_of_classes_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "0, NVIDIA L4\n1, NVIDIA L4\n2, Tesla T4\n"
    monkeypatch.setattr(hardware, "_has_gpu_runtime", lambda: True)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        hardware.subprocess, "run", lambda *args, **kwargs: subprocess.CompletedProcess(args, 0, stdout=listing)
    )
    found = hardware._detect_gpus()
    assert [(d.device_class, d.gpu, d.backend, d.provider) for d in found] == [
        ("l4", 0, "onnxruntime", "cuda"),
        ("l4", 1, "onnxruntime", "cuda"),
        ("tesla-t4", 2, "onnxruntime", "cuda"),
    ]


def test_a_machine_whose_gpu_does_not_answer_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(hardware, "_has_gpu_runtime", lambda: True)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(hardware.subprocess, "run", broken)
    assert hardware._detect_gpus() == []
