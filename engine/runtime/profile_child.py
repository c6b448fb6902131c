"""The profiling process: measures stages on one device, alone in a process that is pinned as a stage worker is.

Configuration on standard input, one `ProfileAnswer` as a JSON line on standard output as each stage is done. Whatever
a backend's library does to this process does not reach the engine.
"""

from __future__ import annotations

import sys
import time
from typing import NoReturn

import msgspec
import numpy as np

from framepool.engine.runtime.backends.base import LoadedStage
from framepool.engine.runtime.backends.registry import backend_loader
from framepool.engine.runtime.child import enter_child, pin_to_cores
from framepool.engine.runtime.devices import DeviceSettings, StageSettings

FEWEST_RUNS = 3


class ProfileJob(msgspec.Struct, frozen=True):
    """Which stages to measure on which device: each at every batch size, for about `seconds_per_batch`.

    `keep_busy`: measure nothing, only run the first stage over and over, until this process is ended.
    """

    device: DeviceSettings
    stages: tuple[StageSettings, ...]
    batch_sizes: tuple[int, ...]
    seconds_per_batch: float
    keep_busy: bool = False


class ProfileAnswer(msgspec.Struct, frozen=True):
    """Microseconds of stage `stage` by batch size, or why it could not be measured."""

    stage: int
    us: list[float] = []
    error: str = ""


def measure_us(loaded: LoadedStage, stage: StageSettings, batch: int, seconds: float) -> float:
    """Median microseconds of one run of a batch, after a warm-up."""
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.integers(0, 255, (batch, *(dim or 1 for dim in shape))).astype(dtype)
        for name, dtype, shape in stage.inputs
    }
    loaded.run(inputs, {})
    times: list[int] = []
    begin_s = time.perf_counter()
    while len(times) < FEWEST_RUNS or time.perf_counter() - begin_s < seconds:
        start_ns = time.perf_counter_ns()
        loaded.run(inputs, {})
        times.append(time.perf_counter_ns() - start_ns)
    return float(np.median(times)) / 1e3


def _answer(answer: ProfileAnswer) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)


def _keep_busy(loaded: LoadedStage, stage: StageSettings) -> NoReturn:
    inputs = {name: np.zeros((1, *(dim or 1 for dim in shape)), dtype) for name, dtype, shape in stage.inputs}
    loaded.run(inputs, {})
    _answer(ProfileAnswer(0))
    while True:
        loaded.run(inputs, {})


def main() -> int:
    """Process entry."""
    job = msgspec.msgpack.decode(enter_child("framepool: profiler"), type=ProfileJob)
    pin_to_cores(job.device.cores, 0)
    try:
        load = backend_loader(job.device.backend)
        if job.keep_busy:
            _keep_busy(load(job.stages[0], job.device), job.stages[0])
        for index, stage in enumerate(job.stages):
            loaded = load(stage, job.device)
            us = [measure_us(loaded, stage, batch, job.seconds_per_batch) for batch in job.batch_sizes]
            _answer(ProfileAnswer(index, us))
    except Exception as exc:  # the engine must hear the cause, whatever it is
        _answer(ProfileAnswer(0, error=str(exc)[:2000]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
