"""Streams as text and as JSON. Only formatting."""

from __future__ import annotations

from framepool.engine.cli.output import percent, utc_text
from framepool.engine.control import StreamInfo, StreamState

_TROUBLED = (
    StreamState.CONNECTING,
    StreamState.STALLED,
    StreamState.RECONNECTING,
    StreamState.FINISHED_WITH_ERRORS,
    StreamState.FAILED,
)
LIST_COLUMNS = ("NAME", "STATE", "MODEL", "SLO", "FPS", "ATTAINED", "FRAMES", "IN TIME", "DROPPED", "SOURCE")


def list_row(info: StreamInfo) -> tuple[str, ...]:
    """A line of the list, under LIST_COLUMNS."""
    config, counters = info.config, info.counters
    return (
        config.name,
        info.state.value,
        config.model,
        f"{config.slo_ms:g}ms",
        f"{config.target_fps:g}",
        percent(counters.attainment),
        str(counters.ingested),
        str(counters.in_time),
        str(counters.dropped_total),
        config.source,
    )


def summary(info: StreamInfo) -> str:
    """One line: how the stream stands, with the cause where its source has trouble."""
    name, state = info.config.name, info.state.value
    if info.last_error and info.state in _TROUBLED:
        return f"{name}: {state}: {_last_error(info)}"
    media = f", {_picture(info)}" if info.width_px else ""
    return f"{name}: {state}{media}, {info.config.target_fps:g} fps, SLO {info.config.slo_ms:g}ms"


def fields(info: StreamInfo) -> dict[str, str]:
    """Everything there is to say, by name; "" where there is nothing."""
    config, counters = info.config, info.counters
    dropped = ", ".join(f"{frames} {reason.value}" for reason, frames in counters.dropped.items() if frames)
    return {
        "name": config.name,
        "id": str(info.id),
        "state": info.state.value,
        "source": config.source,
        "model": config.model,
        "slo": f"{config.slo_ms:g}ms",
        "fps": f"{config.target_fps:g}",
        "class": config.service_class.value,
        "loop": "yes" if config.loop else "",
        "min score": f"{config.min_score:g}" if config.min_score else "",
        "classes": ", ".join(config.labels),
        "metadata": ", ".join(f"{key}={value}" for key, value in config.metadata.items()),
        "registered": utc_text(info.create_time_unix_ns),
        "picture": _picture(info) if info.width_px else "",
        "measured fps": f"{info.measured_fps:.4g}" if info.measured_fps else "",
        "frames": str(counters.ingested),
        "completed": f"{counters.completed} ({counters.in_time} in time)",
        "dropped": f"{counters.dropped_total}" + (f" ({dropped})" if dropped else ""),
        "attained": percent(counters.attainment),
        "decode errors": str(counters.decode_errors) if counters.decode_errors else "",
        "reconnects": str(counters.reconnects) if counters.reconnects else "",
        "last error": _last_error(info),
    }


def view(info: StreamInfo) -> dict[str, object]:
    """The stream for JSON, with what is computed from its counters."""
    return {
        "name": info.config.name,
        "id": info.id,
        "state": info.state,
        "create_time": utc_text(info.create_time_unix_ns),
        "config": info.config,
        "counters": info.counters,
        "dropped": info.counters.dropped_total,
        "attainment": info.counters.attainment,
        "last_error": info.last_error,
        "last_error_code": info.last_error_code,
        "width_px": info.width_px,
        "height_px": info.height_px,
        "measured_fps": info.measured_fps,
        "codec": info.codec,
    }


def _picture(info: StreamInfo) -> str:
    return f"{info.width_px}x{info.height_px} {info.codec}".rstrip()


def _last_error(info: StreamInfo) -> str:
    return info.last_error + (f" ({info.last_error_code})" if info.last_error_code else "")
