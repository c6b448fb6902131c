"""Devices that are emulated, missing or full: what is served, what is refused, and what never happens silently."""

from __future__ import annotations

from pathlib import Path

import engine_rig as rig
import pytest

from framepool.engine.core import Engine
from framepool.engine.errors import CapacityError, DeviceError


def one_core() -> list[rig.Tables]:
    return [rig.device("left", "onnxruntime", rig.two_cores()[0])]


def fill(engine: Engine) -> CapacityError:
    """Registers streams of 5 fps until one is refused."""
    for number in range(20):
        try:
            engine.register_stream(rig.clip_stream(f"s-{number}", loop=True, target_fps=5.0, slo_ms=400.0))
        except CapacityError as refusal:
            return refusal
    raise AssertionError("nothing was refused")


def test_a_full_machine_refuses_the_stream_that_does_not_fit_and_keeps_its_word_to_the_others(state_dir: Path) -> None:
    """Streams are added until one is refused; the rate it is offered is accepted, and all attain what they were
    promised (ten seconds of it: others use this machine too)."""
    with rig.engine(state_dir, one_core()) as engine:
        refusal = fill(engine)
        assert 1 <= len(engine.list_streams()) < 20
        assert refusal.field == "target_fps"
        offered = refusal.best_fps
        if offered is not None and offered >= 0.5:
            assert offered < 5.0
            engine.register_stream(rig.clip_stream("offered", loop=True, target_fps=offered, slo_ms=400.0))
        assert rig.until(lambda: all(s.counters.completed >= 40 * s.target_fps / 5 for s in engine.stats().streams), 60)
        assert rig.until(lambda: all(s.recent_attainment >= 0.9 for s in engine.stats().streams), 60), engine.stats()


def test_an_emulated_device_serves_and_is_always_named_as_one(state_dir: Path) -> None:
    """A class ten times as fast as the real one: the plan uses it, and every view says that it is none."""
    fake = {"class": "h100", "backend": "emulated", "emulates": "left", "scale": 0.1, "count": 2}
    with rig.engine(state_dir, [*one_core(), fake]) as engine:
        engine.register_stream(rig.clip_stream("gate", loop=True))
        plan = engine.plan()
        assert {stage.device_class for p in plan.plan.pipelines for stage in p.stages} >= {"h100"}
        assert rig.until(lambda: engine.stats().totals.completed >= 20)
        stats = engine.stats().streams[0]
        assert stats.counters.in_time >= 0.8 * stats.counters.completed
        for device in engine.devices():
            assert device.emulated == (device.device_class == "h100")
            assert (device.hardware == "0.1 x left") == device.emulated


def test_d12_a_gpu_that_is_not_there_is_an_error_and_the_cpu_does_not_stand_in(state_dir: Path) -> None:
    import onnxruntime as ort

    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    gpu = {"class": "l4", "backend": "onnxruntime", "provider": "cuda"}
    with rig.engine(state_dir, [gpu]) as engine:
        with pytest.raises(DeviceError, match=r"l4-0 could not be profiled.*CUDAExecutionProvider is not in this onnx"):
            engine.register_stream(rig.clip_stream("gate", loop=True))
        assert engine.list_streams() == ()
        assert engine.stats().totals.ingested == 0
        assert not rig.framepool_children()["stage"]


def test_offline_and_live_streams_share_the_devices(state_dir: Path) -> None:
    """A file analysed in full loses no frame, and the live stream beside it keeps its SLO."""
    from framepool.engine.scheduling.events import ServiceClass

    with rig.engine(state_dir, rig.onnxruntime_pair()) as engine:
        engine.register_stream(rig.clip_stream("live", loop=True))
        engine.register_stream(
            rig.clip_stream("film", service_class=ServiceClass.OFFLINE, target_fps=2.0, slo_ms=60_000.0)
        )
        assert rig.until(lambda: engine.get_stream("film").state.value.startswith("finished"), 60)
        assert rig.until(lambda: engine.get_stream("film").counters.in_flight == 0)
        film, live = engine.get_stream("film").counters, engine.get_stream("live").counters
        assert film.dropped_total == 0
        assert film.completed == film.ingested >= 40
        assert live.in_time >= 0.8 * (live.completed + live.dropped_total)
