"""onnxruntime: CPU, CUDA and TensorRT providers, with IOBinding and without any silent fallback.

onnxruntime logs and goes on with the CPU when a GPU provider can't be loaded. Here the session must report the very
provider that was asked for, first in its list, or loading fails with the cause onnxruntime gave.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import redirect_stderr
from importlib import metadata
from typing import Any

import numpy as np

from framepool.engine.errors import DeviceError
from framepool.engine.runtime.backends.base import Array
from framepool.engine.runtime.devices import DeviceFacts, DeviceSettings, StageSettings, cpu_model_name

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


def check_single_runtime() -> None:
    """Raises DeviceError when both onnxruntime and onnxruntime-gpu are installed: they overwrite each other."""
    installed = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        installed.append(name)
    if not installed:
        raise DeviceError("onnxruntime is not installed; install framepool[cpu] or, for NVIDIA GPUs, framepool[gpu]")
    if len(installed) == 2:
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; uninstall both, then "
            "install framepool[gpu] (with a GPU) or framepool[cpu]"
        )


def _provider_options(device: DeviceSettings) -> list[tuple[str, dict[str, Any]]]:
    gpu = {"device_id": device.gpu_index}
    match device.provider:
        case "cpu":
            return [(PROVIDERS["cpu"], {})]
        case "cuda":
            tf32 = {"use_tf32": int(device.precision != "fp32")}
            return [(PROVIDERS["cuda"], {**gpu, **tf32}), (PROVIDERS["cpu"], {})]
        case "tensorrt":
            fp16 = {"trt_fp16_enable": device.precision == "fp16"}
            return [(PROVIDERS["tensorrt"], {**gpu, **fp16}), (PROVIDERS["cuda"], gpu), (PROVIDERS["cpu"], {})]
    raise DeviceError(
        f"device {device.id}: onnxruntime provider {device.provider!r} is unknown; use one of {', '.join(PROVIDERS)}"
    )


class OnnxRuntimeStage:
    """One session on one device."""

    def __init__(self, stage: StageSettings, device: DeviceSettings) -> None:
        check_single_runtime()
        import onnxruntime as ort

        wanted = PROVIDERS.get(device.provider, "")
        providers = _provider_options(device)
        if wanted not in ort.get_available_providers():
            raise DeviceError(
                f"device {device.id}: {wanted} is not in this onnxruntime ({ort.__version__} has "
                f"{', '.join(ort.get_available_providers())}); install framepool[gpu] or use another provider"
            )
        if device.provider != "cpu" and stage.share > 1:
            os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // stage.share)
        options = ort.SessionOptions()
        options.intra_op_num_threads = max(1, len(device.cores) // stage.share) if device.cores else 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        captured = io.StringIO()
        try:
            with redirect_stderr(captured):
                self._session = ort.InferenceSession(
                    stage.path,
                    options,
                    providers=[name for name, _ in providers],
                    provider_options=[settings for _, settings in providers],
                )
        except Exception as exc:  # onnxruntime raises its own pybind types
            raise DeviceError(f"device {device.id}: onnxruntime could not load {stage.path}: {exc}") from exc
        loaded = self._session.get_providers()
        if loaded[0] != wanted:
            cause = captured.getvalue().strip() or _provider_cause(wanted)
            raise DeviceError(f"device {device.id}: {wanted} did not load (got {', '.join(loaded)}): {cause}")
        self._session.disable_fallback()
        self._run_options = ort.RunOptions()
        self._outputs = [output.name for output in self._session.get_outputs()]
        hardware = device.hardware or (cpu_model_name() if device.provider == "cpu" else f"gpu {device.gpu_index}")
        self.facts = DeviceFacts(hardware, f"onnxruntime {ort.__version__}", device.provider, device.precision)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name in self._outputs:
            given = outputs.get(name)
            if given is None:
                binding.bind_output(name, "cpu")
            else:
                binding.bind_output(name, "cpu", 0, given.dtype.type, given.shape, given.ctypes.data)
        self._session.run_with_iobinding(binding, self._run_options)
        if len(outputs) == len(self._outputs):
            return outputs
        values = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        return {
            name: outputs[name] if name in outputs else np.ascontiguousarray(values[name].numpy())
            for name in self._outputs
        }


def _provider_cause(provider: str) -> str:
    """Why a GPU provider's library does not load, by loading it as onnxruntime would."""
    import ctypes
    from pathlib import Path

    import onnxruntime as ort

    kind = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "tensorrt"}.get(provider, "")
    library = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{kind}.so"
    if not kind or not library.exists():
        return "onnxruntime gave no cause"
    try:
        ctypes.CDLL(str(library.with_name("libonnxruntime_providers_shared.so")), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(library))
    except OSError as exc:
        return str(exc)
    return "the library loads, but no usable device answered; see nvidia-smi"


def load(stage: StageSettings, device: DeviceSettings) -> OnnxRuntimeStage:
    """Loads `stage` on `device`. Raises DeviceError with the cause."""
    return OnnxRuntimeStage(stage, device)
