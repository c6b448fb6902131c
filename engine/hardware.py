"""The devices an engine serves with: from its configuration, or what the machine has.

Detection gives the fewest surprises, not the last percent: every NVIDIA GPU that `nvidia-smi` lists becomes a device
of a class by its name, and the CPUs this process may use become devices of one class, up to four cores each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from framepool.engine.config import DeviceSection
from framepool.engine.errors import ConfigError
from framepool.engine.planning.inventory import Device, DeviceClass, Inventory
from framepool.engine.runtime.devices import DeviceSettings

CORES_PER_DEVICE = 4
"""Cores of a detected CPU device: CNN inference of one frame scales well so far, and hardly beyond."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The inventory the planner plans with, and what the runtime needs to know of each device."""

    inventory: Inventory
    devices: tuple[DeviceSettings, ...]
    emulates: dict[str, str]

    def settings(self, device_id: str) -> DeviceSettings:
        for device in self.devices:
            if device.id == device_id:
                return device
        raise KeyError(device_id)

    def any_device(self, device_class: str) -> DeviceSettings:
        """The class's first device: what is measured for the class."""
        for device in self.devices:
            if device.device_class == device_class:
                return device
        raise KeyError(device_class)

    def emulated_class(self, device_class: str) -> DeviceSettings:
        """The real device whose profile an emulated class takes its time from."""
        return self.any_device(self.emulates[device_class])


def allowed_cores() -> tuple[int, ...]:
    """The CPUs this process may use (cgroups' cpusets included)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def detect() -> tuple[DeviceSection, ...]:
    """What the machine has, as configuration."""
    return (*_detect_gpus(), *_detect_cpus())


def _detect_cpus() -> list[DeviceSection]:
    from framepool.engine.runtime.backends.openvino_backend import cpu_has_bf16

    precision = "bf16" if cpu_has_bf16() else "fp32"
    cores = allowed_cores()
    groups = [cores[i : i + CORES_PER_DEVICE] for i in range(0, len(cores), CORES_PER_DEVICE)]
    if len(groups) > 1 and len(groups[-1]) < CORES_PER_DEVICE:
        groups.pop()
    return [
        DeviceSection.model_validate(
            {"class": f"cpu-openvino-{precision}", "backend": "openvino", "precision": precision, "cores": group}
        )
        for group in groups
    ]


def _detect_gpus() -> list[DeviceSection]:
    if shutil.which("nvidia-smi") is None or not _has_gpu_runtime():
        return []
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in listing.splitlines():
        index, _, name = line.partition(",")
        class_name = re.sub(r"[^a-z0-9]+", "-", name.strip().lower().removeprefix("nvidia ")).strip("-")
        found.append(
            DeviceSection.model_validate(
                {"class": class_name, "backend": "onnxruntime", "provider": "cuda", "gpu": int(index)}
            )
        )
    return found


def _has_gpu_runtime() -> bool:
    try:
        metadata.version("onnxruntime-gpu")
    except metadata.PackageNotFoundError:
        return False
    return True


def build_hardware(sections: Sequence[DeviceSection]) -> Hardware:
    """Devices from configuration (none: detected). Raises ConfigError naming the entry."""
    sections = tuple(sections) or detect()
    by_class: dict[str, list[DeviceSettings]] = {}
    kinds: dict[str, tuple[object, ...]] = {}
    shares: dict[str, tuple[int, ...]] = {}
    emulates: dict[str, str] = {}
    available = set(allowed_cores())
    for number, section in enumerate(sections):
        where = f"devices.{number}"
        name = section.device_class
        kind = (section.backend, section.provider, section.precision, len(section.cores), section.shares,
                section.emulates, section.scale)  # fmt: skip
        if kinds.setdefault(name, kind) != kind:
            raise ConfigError(
                f"{where}: devices of class {name!r} differ in backend, provider, precision, shares or number of "
                "cores; give unlike devices classes of their own",
                field=where,
            )
        missing = set(section.cores) - available
        if missing:
            raise ConfigError(
                f"{where}.cores: this process may not use CPU {sorted(missing)}; it may use {sorted(available)}",
                field=f"{where}.cores",
            )
        if section.backend == "emulated":
            if not section.emulates:
                raise ConfigError(f"{where}.emulates is empty; name the class to take times from", field=where)
            emulates[name] = section.emulates
        shares[name] = section.shares
        for _ in range(section.count):
            group = by_class.setdefault(name, [])
            group.append(
                DeviceSettings(
                    f"{name}-{len(group)}",
                    name,
                    section.backend,
                    section.provider,
                    section.precision,
                    section.cores,
                    section.gpu,
                    "",
                    section.scale,
                )
            )
    for name, model in emulates.items():
        if model not in by_class or model in emulates:
            raise ConfigError(
                f"devices: class {name!r} emulates {model!r}, which is no class of real devices here",
                field="devices.emulates",
            )
    _check_cores(sections)
    return Hardware(
        Inventory(
            tuple(DeviceClass(name, len(group), shares=shares[name]) for name, group in by_class.items()),
            tuple(
                Device(device.id, name, index) for name, group in by_class.items() for index, device in enumerate(group)
            ),
        ),
        tuple(device for group in by_class.values() for device in group),
        emulates,
    )


def _check_cores(sections: Sequence[DeviceSection]) -> None:
    """No CPU may serve two devices: each would be planned with all of it."""
    uses = Counter(core for section in sections if section.backend != "emulated" for core in section.cores)
    shared = sorted(core for core, count in uses.items() if count > 1)
    if shared:
        raise ConfigError(f"devices: CPU {shared} is given to more than one device", field="devices.cores")
