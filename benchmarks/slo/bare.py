"""What the same devices do without an engine: the model alone, over ready tensors, and what decoding costs.

A process per device, pinned as a stage worker is, runs the whole model over and over; all devices at once, as cores
share caches and memory. Decoding one frame of the source (demux, decode, convert, letterbox) is timed in processor
seconds, for it runs on the same cores: `Bare.ceiling_fps` is what is left for the model when that is paid.

    python -m framepool.benchmarks.slo.bare    # the child; its job comes on standard input
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from framepool.benchmarks import MeasurementError
from framepool.benchmarks.slo.under_test import Model
from framepool.engine.runtime.backends.registry import backend_loader
from framepool.engine.runtime.child import enter_child, frame_config, pin_to_cores
from framepool.engine.runtime.devices import DeviceSettings, StageSettings
from framepool.engine.stage_files import edge
from framepool.models.letterbox import Preprocess
from framepool.models.registry import ModelRegistry
from framepool.models.spec import InputSpec
from framepool.streams.pacing import FpsGate
from framepool.streams.picture import PictureConverter
from framepool.streams.reader import ReaderSettings, open_reader
from framepool.streams.source_url import parse_source
from framepool.streams.timeline import Timeline

BATCHES = (1, 2, 4)
TENSORS = 8
DECODED_FRAMES = 200
_SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Bare:
    """Frames per second of each device, all at work; processor seconds to decode and convert a frame; cores they share
    with decoding."""

    device_fps: dict[str, float]
    decode_s: float
    cores: int

    @property
    def total_fps(self) -> float:
        return sum(self.device_fps.values())

    @property
    def ceiling_fps(self) -> float:
        """The most frames per second that devices and decoding, on the same cores, can do: a frame takes its share of
        the devices' time and `decode_s` of a core's."""
        return 1.0 / (1.0 / self.total_fps + self.decode_s / self.cores) if self.total_fps else 0.0


class Job(msgspec.Struct, frozen=True):
    """What a bare loop runs: a stage on a device, for `seconds` at each batch size."""

    device: DeviceSettings
    stage: StageSettings
    batches: tuple[int, ...]
    seconds: float


def measure(
    devices: Sequence[DeviceSettings], model: Model, source: str, fps: float, cores: int, seconds: float
) -> Bare:
    """Measures devices and decoding. `model` is a bundled one or a file. Raises MeasurementError with the cause."""
    with tempfile.TemporaryDirectory(prefix="framepool-bare-") as folder:
        registry = ModelRegistry(Path(folder))
        entry = registry.get(model.name) if model.path is None else registry.add(model.name, model.path)
        partition = registry.partition(model.name)
        batches = tuple(b for b in BATCHES if entry.spec.batch_safe and (b <= (entry.spec.max_batch or b))) or (1,)
        stage = StageSettings(
            str(entry.path),
            edge(partition.stage_inputs(0)),
            edge(partition.stage_outputs(partition.n_blocks)),
            max(batches),
            1,
        )
        real = [device for device in devices if not device.emulated]
        rates = _together([Job(device, stage, batches, seconds / len(batches)) for device in real])
        return Bare(dict(zip((d.id for d in real), rates, strict=True)), decode_s(source, entry.spec.input, fps), cores)


def decode_s(source: str, spec: InputSpec, fps: float) -> float:
    """Processor seconds per frame that is used at `fps`: demux, decode (those passed over too), convert, letterbox."""
    reader = open_reader(parse_source(source), ReaderSettings())
    try:
        converter, preprocess, gate = PictureConverter(), Preprocess.of(spec), FpsGate(fps)
        timeline = Timeline(None)
        timeline.restart(reader.nominal_fps)
        out = np.empty((spec.height_px, spec.width_px, 3), np.uint8)
        used = 0
        began_s = time.process_time()
        for packet in reader.packets():
            for decoded in reader.decode(packet):
                stamp = timeline.stamp(decoded.frame.pts, decoded.frame.time_base)
                if gate.takes(stamp.media_time_ns, timeline.interval_ns):
                    preprocess(converter.rgb(decoded.frame), out)
                    used += 1
            if used >= DECODED_FRAMES:
                break
        if not used:
            raise MeasurementError(f"source {source}: not one frame could be decoded")
        return (time.process_time() - began_s) / used
    finally:
        reader.close()


def _together(jobs: Sequence[Job]) -> list[float]:
    """Frames per second of each job, all running at once, at its best batch size."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for job in jobs:
            child = subprocess.Popen(
                [sys.executable, "-m", "framepool.benchmarks.slo.bare"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            children.append(child)
            assert child.stdin is not None
            child.stdin.write(frame_config(msgspec.msgpack.encode(job)))
            child.stdin.flush()
        until_s = time.monotonic() + _SLACK_S + sum(job.seconds * len(job.batches) for job in jobs)
        rates = []
        for job, child in zip(jobs, children, strict=True):
            assert child.stdout is not None
            child.wait(max(1.0, until_s - time.monotonic()))
            lines = [line for line in child.stdout.read().splitlines() if line.startswith(b"[")]
            if not lines:
                raise MeasurementError(f"device {job.device.id}: the bare loop ended before it was done")
            rates.append(max(msgspec.json.decode(lines[-1], type=list[float])))
        return rates
    except subprocess.TimeoutExpired as error:
        raise MeasurementError("a bare loop did not end in time") from error
    finally:
        for child in children:
            with contextlib.suppress(OSError):
                child.kill()
            child.wait(10)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def main() -> int:
    """The child: runs its job and prints frames per second by batch size."""
    job = msgspec.msgpack.decode(enter_child("framepool: bare loop"), type=Job)
    pin_to_cores(job.device.cores, 0)
    loaded = backend_loader(job.device.backend)(job.stage, job.device)
    rng = np.random.default_rng(0)
    rates = []
    for batch in job.batches:
        tensors = [
            {
                name: rng.integers(0, 255, (batch, *(dim or 1 for dim in shape))).astype(dtype)
                for name, dtype, shape in job.stage.inputs
            }
            for _ in range(TENSORS)
        ]
        for tensor in tensors[:2]:
            loaded.run(tensor, {})
        runs = 0
        began_s = time.perf_counter()
        while (spent_s := time.perf_counter() - began_s) < job.seconds:
            loaded.run(tensors[runs % TENSORS], {})
            runs += 1
        rates.append(runs * batch / spent_s)
    print(msgspec.json.encode(rates).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
