"""What the runtime must know of a device to start a worker on it. Pure data plus the fingerprint profiles go by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec


class DeviceSettings(msgspec.Struct, frozen=True):
    """One device. `cores` are the CPUs its worker is pinned to (empty: not pinned); `provider` is onnxruntime's
    ("cpu", "cuda", "tensorrt") or OpenVINO's device ("CPU", "GPU", "NPU"); `gpu_index` counts the machine's GPUs.
    `emulated_scale` multiplies the class's profile where the device is emulated.
    """

    id: str
    device_class: str
    backend: str
    provider: str
    precision: str
    cores: tuple[int, ...]
    gpu_index: int = 0
    hardware: str = ""
    emulated_scale: float = 1.0

    @property
    def emulated(self) -> bool:
        return self.backend == "emulated"

    @property
    def on_cpu(self) -> bool:
        return self.provider.lower() == "cpu"


class StageSettings(msgspec.Struct, frozen=True):
    """A stage to load on a device: its file, the batch sizes it will meet, and the share of the device it may use."""

    path: str
    inputs: tuple[tuple[str, str, tuple[int | None, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int | None, ...]], ...]
    max_batch: int
    share: int
    emulated_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a backend found when it loaded: for logs, `framepool devices` and the profile's fingerprint."""

    hardware: str
    runtime: str
    provider: str
    precision: str


def cpu_model_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's marketing name, "cpu" where the system does not say."""
    try:
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "cpu"
