"""The interface every backend implements: load a stage, run a batch into given output buffers, report facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from framepool.engine.runtime.devices import DeviceFacts, DeviceSettings, StageSettings

Array = NDArray[Any]


class LoadedStage(Protocol):
    """A stage ready to run on one device. Used by one thread."""

    facts: DeviceFacts

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Runs one batch. Arrays are batch-first and C-contiguous.

        Every output named in `outputs` is written into that array; the others are returned in new arrays. The result
        maps every output of the stage. Raises what the runtime raises; the stage stays usable.
        """
        ...


Load = Callable[[StageSettings, DeviceSettings], LoadedStage]
