"""Backends give the right values into the arrays they are given, and refuse rather than fall back."""

from __future__ import annotations

import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from framepool.engine.errors import ConfigError, DeviceError
from framepool.engine.runtime.backends import onnxruntime_backend
from framepool.engine.runtime.backends.base import LoadedStage
from framepool.engine.runtime.backends.onnxruntime_backend import check_single_runtime
from framepool.engine.runtime.backends.openvino_backend import cpu_has_bf16
from framepool.engine.runtime.backends.registry import BACKENDS, backend_loader
from framepool.engine.runtime.devices import DeviceSettings, StageSettings

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def gpu_is_there() -> bool:
    ort = pytest.importorskip("onnxruntime")
    return "CUDAExecutionProvider" in ort.get_available_providers()


needs_gpu = pytest.mark.skipif("not __import__('shutil').which('nvidia-smi')", reason="no NVIDIA GPU here (nvidia-smi)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [N, 4] -> y = x @ W [N, 3], z = relu(-x) [N, 4]."""
    batch = "N"
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Neg", ["x"], ["n"]),
            helper.make_node("Relu", ["n"], ["z"]),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 4]),
        ],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def device(backend: str = "onnxruntime", provider: str = "cpu", precision: str = "fp32", **more: Any) -> DeviceSettings:
    return DeviceSettings("d-0", "d", backend, provider, precision, (), **more)


def stage(path: Path, share: int = 1, emulated_us: tuple[float, ...] = ()) -> StageSettings:
    x = ("x", "float32", (4,))
    return StageSettings(str(path), (x,), (("y", "float32", (3,)), ("z", "float32", (4,))), 4, share, emulated_us)


def load(path: Path, settings: DeviceSettings, share: int = 1) -> LoadedStage:
    return backend_loader(settings.backend)(stage(path, share), settings)


def check_values(loaded: LoadedStage, tolerance: float = 0.0) -> None:
    """Right values for several batch sizes, into given arrays, into new ones, and into a mixture."""
    rng = np.random.default_rng(1)
    for batch in (1, 3, 2):
        x = rng.integers(-8, 8, (batch, 4)).astype(np.float32)
        y, z = np.full((batch, 3), np.nan, np.float32), np.full((batch, 4), np.nan, np.float32)
        for given in ({"y": y, "z": z}, {}, {"y": y}):
            y.fill(np.nan)
            z.fill(np.nan)
            before = x.copy()
            found = loaded.run({"x": x}, given)
            assert set(found) == {"y", "z"}
            assert all(found[name] is array for name, array in given.items())
            assert np.allclose(found["y"], x @ WEIGHT, atol=tolerance, rtol=tolerance)
            assert np.array_equal(found["z"], np.maximum(-x, 0))
            assert np.array_equal(x, before)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_values_are_right_and_land_where_they_were_asked_for(backend: str, model: Path) -> None:
    check_values(load(model, device(backend)), tolerance=1e-6)


def test_bf16_is_used_where_the_cpu_has_it_and_refused_where_not(model: Path) -> None:
    settings = device("openvino", "CPU", "bf16")
    if cpu_has_bf16():
        loaded = load(model, settings)
        assert loaded.facts.precision == "bf16"
        check_values(loaded, tolerance=0.02)
    else:
        with pytest.raises(DeviceError, match="has no bf16; use precision fp32"):
            load(model, settings)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_results_stay_when_the_next_batch_runs(backend: str, model: Path) -> None:
    """What a run returned is not overwritten by the next one, in whatever buffer the runtime keeps it."""
    loaded = load(model, device(backend))
    first = loaded.run({"x": np.ones((1, 4), np.float32)}, {})
    kept = {name: array.copy() for name, array in first.items()}
    loaded.run({"x": np.full((1, 4), -3, np.float32)}, {})
    assert all(np.array_equal(first[name], kept[name]) for name in kept)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_stage_stays_usable_after_an_input_it_can_not_take(backend: str, model: Path) -> None:
    loaded = load(model, device(backend))
    with pytest.raises(Exception, match=r"(?i)shape|dimension|size|invalid"):
        loaded.run({"x": np.ones((2, 5), np.float32)}, {})
    check_values(loaded, tolerance=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (device(provider="cuda"), r"d-0: CUDAExecutionProvider is not in this onnxruntime .*install framepool\[gpu\]"),
        (device(provider="tensorrt"), r"d-0: TensorrtExecutionProvider is not in this onnxruntime"),
        (device(provider="quantum"), r"d-0: onnxruntime provider 'quantum' is unknown; use one of cpu, cuda"),
        (device("openvino", "NPU"), r"d-0: OpenVINO has no NPU here \(it has CPU"),
        (device("openvino", "CPU", "int3"), r"d-0: precision 'int3' is unknown to OpenVINO"),
    ],
)
def test_d12_what_does_not_load_is_refused_with_its_cause(settings: DeviceSettings, words: str, model: Path) -> None:
    if settings.provider in ("cuda", "tensorrt") and gpu_is_there():
        pytest.skip("this onnxruntime has GPU providers")
    with pytest.raises(DeviceError, match=words):
        load(model, settings)


def test_d12_a_silent_fall_back_to_the_cpu_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime goes on with the CPU where a GPU provider's library does not load; here that is an error."""
    import onnxruntime as ort

    class Fallen:
        def __init__(self, *args: object, **kwargs: object) -> None:
            pass

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", Fallen)
    monkeypatch.setattr(onnxruntime_backend, "_provider_cause", lambda provider: "libcudnn.so.9 is missing")
    with pytest.raises(DeviceError, match=r"CUDAExecutionProvider did not load \(got CPUE.*\): libcudnn.so.9 is miss"):
        load(model, device(provider="cuda"))


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({"onnxruntime", "onnxruntime-gpu"}, r"both installed and overwrite.*uninstall both, then install framepool"),
        (set(), r"onnxruntime is not installed; install framepool\[cpu\]"),
    ],
)
def test_one_runtime_must_be_installed_and_only_one(
    installed: set[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(DeviceError, match=words):
        check_single_runtime()


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_file_that_is_no_model_is_named(backend: str, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(DeviceError, match=r"d-0: .* could not load .*broken\.onnx"):
        load(tmp_path / "broken.onnx", device(backend))


def test_an_unknown_backend_names_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match="backend 'tpu' is unknown; use one of onnxruntime, openvino, emulated"
    ) as raised:
        backend_loader("tpu")
    assert raised.value.field == "devices.backend"
    assert set(BACKENDS) == {"onnxruntime", "openvino", "emulated"}


def test_an_emulated_device_takes_its_profile_s_time_and_says_what_it_is(model: Path) -> None:
    settings = device("emulated", emulated_scale=2.0)
    loaded = backend_loader("emulated")(stage(model, emulated_us=(5_000.0, 20_000.0)), settings)
    assert loaded.facts.hardware == "emulated d"
    for batch, least_s in ((1, 0.010), (2, 0.040)):
        y = np.ones((batch, 3), np.float32)
        begin_s = time.perf_counter()
        found = loaded.run({"x": np.ones((batch, 4), np.float32)}, {"y": y})
        assert least_s <= time.perf_counter() - begin_s < least_s * 5 + 0.2
        assert found["y"] is y
        assert not y.any()
        assert found["z"].shape == (batch, 4)
    with pytest.raises(DeviceError, match="no profile to emulate d with"):
        backend_loader("emulated")(stage(model), settings)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("provider", "precision"), [("cuda", "fp32"), ("cuda", "fp16"), ("tensorrt", "fp16")])
@pytest.mark.parametrize("share", [1, 2])
def test_a_gpu_gives_what_the_cpu_gives(provider: str, precision: str, share: int, model: Path) -> None:
    loaded = load(model, device(provider=provider, precision=precision), share)
    assert loaded.facts.provider == provider
    check_values(loaded, tolerance=1e-6 if precision == "fp32" else 0.02)
