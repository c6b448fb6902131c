"""What the engine tells of itself: streams, statistics, devices, models, as the values of `control`.

Live records belong to the data thread: they are copied there (`snapshot`), quantiles are computed by whoever asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framepool.engine.control import (
    CutInfo,
    DeviceInfo,
    LatencyBreakdown,
    ModelInfo,
    StreamConfig,
    StreamCounters,
    StreamInfo,
    StreamState,
    StreamStats,
)
from framepool.engine.hardware import Hardware
from framepool.engine.outcomes import NS_PER_S
from framepool.engine.planning.plan import PlacedPlan
from framepool.engine.runtime.data_plane import DataPlane, without_password
from framepool.engine.runtime.devices import DeviceSettings, cpu_model_name
from framepool.engine.runtime.feeds import ENDED, IN_TIME, Stream
from framepool.engine.runtime.fleet import ChildState, ChildStatus
from framepool.engine.runtime.latency import breakdown
from framepool.models.partition import Partition
from framepool.models.registry import ModelEntry


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """A stream's live record, copied."""

    id: int
    config: StreamConfig
    state: StreamState
    error: str
    error_code: str
    width_px: int
    height_px: int
    measured_fps: float
    codec: str
    counters: StreamCounters
    recent_in_time: int
    recent_ended: int
    recent_s: float
    latency: NDArray[np.int64]

    def info(self, create_time_unix_ns: int) -> StreamInfo:
        return StreamInfo(
            config=without_password(self.config),
            id=self.id,
            state=self.state,
            create_time_unix_ns=create_time_unix_ns,
            counters=self.counters,
            last_error=self.error,
            last_error_code=self.error_code,
            width_px=self.width_px,
            height_px=self.height_px,
            measured_fps=self.measured_fps,
            codec=self.codec,
        )

    def stats(self) -> StreamStats:
        return StreamStats(
            name=self.config.name,
            model=self.config.model,
            state=self.state,
            slo_ms=self.config.slo_ms,
            target_fps=self.config.target_fps,
            counters=self.counters,
            recent_attainment=self.recent_in_time / self.recent_ended if self.recent_ended else 1.0,
            goodput_fps=self.recent_in_time / self.recent_s,
            latency=breakdown(self.latency),
        )


def snapshot(plane: DataPlane, stream_id: int) -> StreamSnapshot:
    """One stream's record. Raises KeyError where there is none."""
    return plane.call(lambda: _copy(plane.streams()[stream_id], time.monotonic_ns()))


def snapshots(plane: DataPlane, window_s: float) -> tuple[list[StreamSnapshot], StreamCounters]:
    """All streams' records and the totals since start, taken at one moment; latencies of frames published within
    `window_s` (0: all that are kept)."""

    def collect() -> tuple[list[StreamSnapshot], StreamCounters]:
        now_ns = time.monotonic_ns()
        since_ns = now_ns - round(window_s * NS_PER_S) if window_s else 0
        return [_copy(stream, now_ns, since_ns) for stream in plane.streams().values()], plane.totals().counters()

    return plane.call(collect)


def overall(copies: Iterable[StreamSnapshot]) -> LatencyBreakdown:
    """Latencies over the frames of all streams together."""
    rows = [copy.latency for copy in copies]
    return breakdown(np.concatenate(rows)) if rows else LatencyBreakdown()


def _copy(stream: Stream, now_ns: int, since_ns: int = 0) -> StreamSnapshot:
    sums, seconds = stream.recent.read(now_ns)
    return StreamSnapshot(
        id=stream.id,
        config=stream.config,
        state=stream.state,
        error=stream.error,
        error_code=stream.error_code,
        width_px=stream.width_px,
        height_px=stream.height_px,
        measured_fps=stream.measured_fps,
        codec=stream.codec,
        counters=stream.tally.counters(),
        recent_in_time=sums[IN_TIME],
        recent_ended=sums[ENDED],
        recent_s=seconds,
        latency=stream.latency.snapshot(since_ns),
    )


def device_infos(
    hardware: Hardware,
    placed: PlacedPlan,
    worker_names: Mapping[str, Iterable[str]],
    children: Mapping[str, ChildStatus],
    utilization: Mapping[str, float],
) -> tuple[DeviceInfo, ...]:
    """Each device with what runs on it. `worker_names` maps a device to its workers' ids in the active plan."""
    infos = []
    for device in hardware.devices:
        workers = tuple(worker_names.get(device.id, ()))
        states = [children[worker].state for worker in workers if worker in children]
        causes = [children[worker].cause for worker in workers if worker in children and children[worker].cause]
        if any(state is not ChildState.UP for state in states):
            state = f"restarting: {causes[0]}" if causes else "starting"
        else:
            state = "serving" if workers else "idle"
        infos.append(
            DeviceInfo(
                id=device.id,
                device_class=device.device_class,
                backend=device.backend,
                hardware=_hardware(device, hardware.emulates),
                precision=device.precision,
                cores=device.cores,
                emulated=device.emulated,
                state=state,
                workers=workers,
                utilization=min(1.0, sum(utilization.get(worker, 0.0) for worker in workers)),
            )
        )
    return tuple(infos)


def _hardware(device: DeviceSettings, emulates: Mapping[str, str]) -> str:
    if device.emulated:
        return f"{device.emulated_scale:g} x {emulates[device.device_class]}"
    return device.hardware or (cpu_model_name() if device.on_cpu else f"gpu {device.gpu_index}")


def model_info(entry: ModelEntry, partition: Partition | None, latency_ms: Mapping[str, float]) -> ModelInfo:
    """A model as listed. `partition` None: not cut yet, its number of blocks reads 0."""
    spec = entry.spec
    return ModelInfo(
        name=entry.name,
        task=spec.task.value,
        head=spec.head.kind,
        digest=spec.digest,
        input_width_px=spec.input.width_px,
        input_height_px=spec.input.height_px,
        labels=spec.labels,
        n_blocks=partition.n_blocks if partition is not None else 0,
        max_batch=spec.max_batch,
        batch_safe=spec.batch_safe,
        opset=spec.opset,
        origin=spec.origin,
        license=spec.license,
        builtin=entry.builtin,
        latency_ms=dict(latency_ms),
    )


def cut_infos(partition: Partition) -> tuple[CutInfo, ...]:
    """The registered cuts of a model, in order."""
    return tuple(
        CutInfo(
            block=cut.index,
            tensors=tuple(tensor.name for tensor in cut.tensors),
            bytes_per_frame=cut.bytes_per_sample,
            exact=cut.exact,
            max_abs_error=cut.max_abs_error,
        )
        for cut in partition.cuts
    )
