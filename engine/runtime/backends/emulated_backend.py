"""A stand-in for hardware that is not here: takes its time from a profile and yields zeros.

It never runs unless a device is configured as `backend = "emulated"`, and everything it touches is labelled so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from framepool.engine.errors import DeviceError
from framepool.engine.runtime.backends.base import Array
from framepool.engine.runtime.devices import DeviceFacts, DeviceSettings, StageSettings


class EmulatedStage:
    """Sleeps for the profiled time of each batch, then yields zeros of the right shapes (unknown axes: 0)."""

    def __init__(self, stage: StageSettings, device: DeviceSettings) -> None:
        if not stage.emulated_us:
            raise DeviceError(f"device {device.id}: no profile to emulate {device.device_class} with")
        self._stage = stage
        self._scale = device.emulated_scale
        self.facts = DeviceFacts(f"emulated {device.device_class}", "emulated", "none", device.precision)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        end_s = time.perf_counter()
        batch = len(next(iter(inputs.values())))
        end_s += self._stage.emulated_us[batch - 1] * self._scale / 1e6
        results: dict[str, Array] = {}
        for name, dtype, shape in self._stage.outputs:
            given = outputs.get(name)
            if given is None:
                given = np.zeros((batch, *(dim or 0 for dim in shape)), dtype=dtype)
            else:
                given.fill(0)
            results[name] = given
        time.sleep(max(0.0, end_s - time.perf_counter()))
        return results


def load(stage: StageSettings, device: DeviceSettings) -> EmulatedStage:
    """Prepares the stand-in. Raises DeviceError where its profile is missing."""
    return EmulatedStage(stage, device)
