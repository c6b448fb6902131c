"""OpenVINO: Intel and AMD CPUs (bf16 where the CPU has it), Intel GPU and NPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from framepool.engine.errors import DeviceError
from framepool.engine.runtime.backends.base import Array
from framepool.engine.runtime.devices import DeviceFacts, DeviceSettings, StageSettings

PRECISION_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}


def cpu_has_bf16() -> bool:
    """Whether OpenVINO computes in bf16 on this CPU."""
    import openvino as ov

    return "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class OpenVinoStage:
    """One compiled model with one infer request on one device."""

    def __init__(self, stage: StageSettings, device: DeviceSettings) -> None:
        import openvino as ov

        self._ov = ov
        name = device.provider.upper()
        core = ov.Core()
        available = core.available_devices
        if not any(found == name or found.startswith(name + ".") for found in available):
            raise DeviceError(
                f"device {device.id}: OpenVINO has no {name} here (it has {', '.join(available)}); "
                "install its driver or use another provider"
            )
        hint = PRECISION_HINTS.get(device.precision)
        if hint is None:
            raise DeviceError(
                f"device {device.id}: precision {device.precision!r} is unknown to OpenVINO; "
                f"use one of {', '.join(PRECISION_HINTS)}"
            )
        if device.precision == "bf16" and "BF16" not in core.get_property(name, "OPTIMIZATION_CAPABILITIES"):
            raise DeviceError(f"device {device.id}: this {name} has no bf16; use precision fp32")
        settings: dict[str, object] = {"INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": 1}
        if name == "CPU":
            settings["INFERENCE_NUM_THREADS"] = max(1, len(device.cores) // stage.share) if device.cores else 1
            settings["ENABLE_CPU_PINNING"] = False  # the process is pinned as a whole
        try:
            compiled = core.compile_model(core.read_model(stage.path), name, settings)
        except Exception as exc:  # OpenVINO raises RuntimeError and its own types
            raise DeviceError(f"device {device.id}: OpenVINO could not load {stage.path}: {exc}") from exc
        self._request = compiled.create_infer_request()
        self._outputs = {output[0]: compiled.output(output[0]) for output in stage.outputs}
        self._inputs = {entry[0]: compiled.input(entry[0]) for entry in stage.inputs}
        hardware = device.hardware or str(core.get_property(name, "FULL_DEVICE_NAME"))
        version = str(ov.__version__).split("-")[0]
        self.facts = DeviceFacts(hardware, f"openvino {version}", name, device.precision)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        for name, array in inputs.items():
            self._request.set_tensor(self._inputs[name], self._ov.Tensor(array, shared_memory=True))
        self._request.infer()
        results: dict[str, Array] = {}
        for name, port in self._outputs.items():
            data = self._request.get_tensor(port).data
            given = outputs.get(name)
            if given is None:
                results[name] = np.array(data)
            else:
                np.copyto(given, data)
                results[name] = given
        return results


def load(stage: StageSettings, device: DeviceSettings) -> OpenVinoStage:
    """Loads `stage` on `device`. Raises DeviceError with the cause."""
    return OpenVinoStage(stage, device)
