"""Devices, plans and stats as text. Only formatting."""

from __future__ import annotations

from framepool.engine.cli.output import percent, table_text
from framepool.engine.control import DeviceInfo, EngineStats, StreamStats
from framepool.engine.planning.plan import PlacedPlan

DEVICE_COLUMNS = ("DEVICE", "CLASS", "BACKEND", "PRECISION", "STATE", "BUSY", "CORES", "HARDWARE", "STAGES")
PLAN_COLUMNS = ("PIPELINE", "STAGE", "BLOCKS", "DEVICE CLASS", "DEVICES", "BATCH", "LATENCY", "RATE", "CAPACITY")
_FARES_COLUMNS = ("STREAM", "STATE", "SLO", "NOW", "EVER", "GOODPUT", "FRAMES", "IN TIME", "LATE", "DROPPED")
_PARTS = ("total", "decode", "queueing", "transfer", "inference", "publish", "overhead")


def device_row(device: DeviceInfo) -> tuple[str, ...]:
    """A line under DEVICE_COLUMNS; what is emulated says so."""
    return (
        device.id,
        device.device_class,
        device.backend,
        device.precision,
        device.state,
        percent(device.utilization),
        ",".join(map(str, device.cores)),
        f"EMULATED {device.hardware}" if device.emulated else device.hardware,
        ", ".join(device.workers),
    )


def plan_rows(placed: PlacedPlan) -> list[tuple[str, ...]]:
    """A line a stage, under PLAN_COLUMNS; LATENCY is that of a full batch on one device."""
    rows: list[tuple[str, ...]] = []
    for pipeline in placed.plan.pipelines:
        for stage in pipeline.stages:
            place = (pipeline.id, stage.index)
            where = [worker.device.id for worker in placed.workers if (worker.pipeline_id, worker.stage_index) == place]
            latency_ms = stage.latency_us[-1] / 1e3 if stage.latency_us else 0.0
            rows.append(
                (
                    pipeline.id,
                    str(stage.index),
                    f"{stage.first_block}-{stage.last_block - 1}",
                    stage.device_class + (f" 1/{stage.share}" if stage.share > 1 else ""),
                    ", ".join(where) or str(stage.devices),
                    str(pipeline.batch),
                    f"{latency_ms:.1f}ms",
                    f"{pipeline.rate_fps:.1f}/s",
                    f"{pipeline.capacity_fps:.1f}/s",
                )
            )
    return rows


def plan_summary(placed: PlacedPlan) -> str:
    plan = placed.plan
    return (
        f"serves {plan.objective:.2f} times the load asked for "
        f"(no plan more than {plan.bound:.2f}; planned in {plan.solve_s:.2f} s)"
    )


def stats_text(found: EngineStats) -> str:
    """The engine in two lines, the streams in two tables: how they fare, and where their latency goes."""
    totals = found.totals
    parts = [
        f"framepool {found.version}, up {found.uptime_s:.0f} s, policy {found.policy}, "
        f"{found.worker_restarts} worker restarts, {found.watchers} watchers, "
        f"store {found.store_state} ({found.store_backlog} frames waiting, {found.store_dropped} lost)\n"
        f"all streams: {totals.ingested} frames, {totals.completed} completed ({totals.in_time} in time), "
        f"{totals.dropped_total} dropped, {totals.in_flight} in flight, {percent(totals.attainment)} attained",
    ]
    if found.streams:
        parts.append(table_text(_FARES_COLUMNS, [_fares(stream) for stream in found.streams]))
        latency_columns = ("LATENCY p50/p99 ms", *(part.upper() for part in _PARTS))
        parts.append(table_text(latency_columns, [_latencies(stream) for stream in found.streams]))
    return "\n\n".join(parts)


def _fares(stream: StreamStats) -> tuple[str, ...]:
    counters = stream.counters
    reasons = ", ".join(f"{frames} {reason.value}" for reason, frames in counters.dropped.items() if frames)
    return (
        stream.name,
        stream.state.value,
        f"{stream.slo_ms:g}ms",
        percent(stream.recent_attainment),
        percent(counters.attainment),
        f"{stream.goodput_fps:.1f}/{stream.target_fps:g} fps",
        str(counters.ingested),
        str(counters.in_time),
        str(counters.completed - counters.in_time),
        f"{counters.dropped_total}" + (f" ({reasons})" if reasons else ""),
    )


def _latencies(stream: StreamStats) -> tuple[str, ...]:
    cells = [getattr(stream.latency, part) for part in _PARTS]
    return (stream.name, *(f"{cell.p50_ms:.1f}/{cell.p99_ms:.1f}" if cell.count else "-" for cell in cells))
