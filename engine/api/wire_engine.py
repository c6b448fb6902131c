"""Devices, stats and progress on the wire: engine values to messages and back. No checks."""

from __future__ import annotations

from framepool.engine.api.wire_streams import counters_from_wire, counters_to_wire
from framepool.engine.api.wire_values import (
    bare,
    duration,
    duration_ns,
    model_resource,
    state_from_wire,
    state_to_wire,
    stream_resource,
)
from framepool.engine.control import DeviceInfo, EngineStats, LatencyBreakdown, Progress, Quantiles, StreamStats
from framepool.proto import engine_pb2


def device_to_wire(device: DeviceInfo) -> engine_pb2.Device:
    return engine_pb2.Device(
        id=device.id,
        device_class=device.device_class,
        backend=device.backend,
        hardware=device.hardware,
        precision=device.precision,
        cores=device.cores,
        emulated=device.emulated,
        state=device.state,
        workers=device.workers,
        utilization=device.utilization,
    )


def device_from_wire(message: engine_pb2.Device) -> DeviceInfo:
    return DeviceInfo(
        id=message.id,
        device_class=message.device_class,
        backend=message.backend,
        hardware=message.hardware,
        precision=message.precision,
        cores=tuple(message.cores),
        emulated=message.emulated,
        state=message.state,
        workers=tuple(message.workers),
        utilization=message.utilization,
    )


def _quantiles_to_wire(quantiles: Quantiles) -> engine_pb2.Quantiles:
    return engine_pb2.Quantiles(
        p50_ms=quantiles.p50_ms,
        p90_ms=quantiles.p90_ms,
        p99_ms=quantiles.p99_ms,
        max_ms=quantiles.max_ms,
        count=quantiles.count,
    )


def _quantiles_from_wire(message: engine_pb2.Quantiles) -> Quantiles:
    return Quantiles(message.p50_ms, message.p90_ms, message.p99_ms, message.max_ms, message.count)


def _latency_to_wire(latency: LatencyBreakdown) -> engine_pb2.LatencyBreakdown:
    return engine_pb2.LatencyBreakdown(
        total=_quantiles_to_wire(latency.total),
        decode=_quantiles_to_wire(latency.decode),
        queueing=_quantiles_to_wire(latency.queueing),
        transfer=_quantiles_to_wire(latency.transfer),
        inference=_quantiles_to_wire(latency.inference),
        publish=_quantiles_to_wire(latency.publish),
        overhead=_quantiles_to_wire(latency.overhead),
    )


def _latency_from_wire(message: engine_pb2.LatencyBreakdown) -> LatencyBreakdown:
    return LatencyBreakdown(
        total=_quantiles_from_wire(message.total),
        decode=_quantiles_from_wire(message.decode),
        queueing=_quantiles_from_wire(message.queueing),
        transfer=_quantiles_from_wire(message.transfer),
        inference=_quantiles_from_wire(message.inference),
        publish=_quantiles_from_wire(message.publish),
        overhead=_quantiles_from_wire(message.overhead),
    )


def _stream_stats_to_wire(stats: StreamStats) -> engine_pb2.StreamStats:
    return engine_pb2.StreamStats(
        stream=stream_resource(stats.name),
        model=model_resource(stats.model),
        state=state_to_wire(stats.state),
        slo_ms=stats.slo_ms,
        target_fps=stats.target_fps,
        counters=counters_to_wire(stats.counters),
        recent_attainment=stats.recent_attainment,
        goodput_fps=stats.goodput_fps,
        latency=_latency_to_wire(stats.latency),
    )


def _stream_stats_from_wire(message: engine_pb2.StreamStats) -> StreamStats:
    return StreamStats(
        name=bare(message.stream),
        model=bare(message.model),
        state=state_from_wire(message.state),
        slo_ms=message.slo_ms,
        target_fps=message.target_fps,
        counters=counters_from_wire(message.counters),
        recent_attainment=message.recent_attainment,
        goodput_fps=message.goodput_fps,
        latency=_latency_from_wire(message.latency),
    )


def stats_to_wire(stats: EngineStats) -> engine_pb2.EngineStats:
    return engine_pb2.EngineStats(
        version=stats.version,
        uptime=duration(round(stats.uptime_s * 1e9)),
        policy=stats.policy,
        streams=[_stream_stats_to_wire(stream) for stream in stats.streams],
        totals=counters_to_wire(stats.totals),
        worker_restarts=stats.worker_restarts,
        store_backlog=stats.store_backlog,
        store_dropped=stats.store_dropped,
        store_state=stats.store_state,
        watchers=stats.watchers,
        latency=_latency_to_wire(stats.latency),
    )


def stats_from_wire(message: engine_pb2.EngineStats) -> EngineStats:
    return EngineStats(
        version=message.version,
        uptime_s=duration_ns(message.uptime) / 1e9,
        policy=message.policy,
        streams=tuple(_stream_stats_from_wire(stream) for stream in message.streams),
        totals=counters_from_wire(message.totals),
        worker_restarts=message.worker_restarts,
        store_backlog=message.store_backlog,
        store_dropped=message.store_dropped,
        store_state=message.store_state,
        watchers=message.watchers,
        latency=_latency_from_wire(message.latency),
    )


def progress_to_wire(progress: Progress) -> engine_pb2.ProfileResponse:
    return engine_pb2.ProfileResponse(done=progress.done, total=progress.total, what=progress.what)


def progress_from_wire(message: engine_pb2.ProfileResponse) -> Progress:
    return Progress(message.done, message.total, message.what)
