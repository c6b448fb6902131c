"""Streams on the wire: engine values to messages and back. No checks; a password goes one way only, in."""

from __future__ import annotations

from framepool.engine.api.wire_values import (
    bare,
    drop_reason_from_wire,
    drop_reason_to_wire,
    model_resource,
    service_class_from_wire,
    service_class_to_wire,
    state_from_wire,
    state_to_wire,
    stream_resource,
    timestamp,
    timestamp_ns,
)
from framepool.engine.control import StreamChanges, StreamConfig, StreamCounters, StreamInfo
from framepool.proto import streams_pb2


def counters_to_wire(counters: StreamCounters) -> streams_pb2.StreamCounters:
    return streams_pb2.StreamCounters(
        ingested=counters.ingested,
        completed=counters.completed,
        in_time=counters.in_time,
        dropped=[
            streams_pb2.DropCount(reason=drop_reason_to_wire(reason), frames=frames)
            for reason, frames in counters.dropped.items()
            if frames
        ],
        decode_errors=counters.decode_errors,
        reconnects=counters.reconnects,
        attainment=counters.attainment,
    )


def counters_from_wire(message: streams_pb2.StreamCounters) -> StreamCounters:
    return StreamCounters(
        ingested=message.ingested,
        completed=message.completed,
        in_time=message.in_time,
        dropped={drop_reason_from_wire(count.reason): count.frames for count in message.dropped},
        decode_errors=message.decode_errors,
        reconnects=message.reconnects,
    )


def stream_to_wire(info: StreamInfo) -> streams_pb2.Stream:
    """A stream as the API shows it: neither username nor password."""
    config = info.config
    return streams_pb2.Stream(
        name=stream_resource(config.name),
        source=config.source,
        model=model_resource(config.model),
        slo_ms=config.slo_ms,
        target_fps=config.target_fps,
        service_class=service_class_to_wire(config.service_class),
        loop=config.loop,
        disabled=not config.enabled,
        min_score=config.min_score,
        labels=config.labels,
        metadata=dict(config.metadata),
        id=info.id,
        state=state_to_wire(info.state),
        create_time=timestamp(info.create_time_unix_ns),
        counters=counters_to_wire(info.counters),
        last_error=info.last_error,
        last_error_code=info.last_error_code,
        width_px=info.width_px,
        height_px=info.height_px,
        measured_fps=info.measured_fps,
        codec=info.codec,
    )


def stream_from_wire(message: streams_pb2.Stream) -> StreamInfo:
    return StreamInfo(
        config=StreamConfig(
            name=bare(message.name),
            source=message.source,
            model=bare(message.model),
            slo_ms=message.slo_ms,
            target_fps=message.target_fps,
            service_class=service_class_from_wire(message.service_class),
            loop=message.loop,
            enabled=not message.disabled,
            min_score=message.min_score,
            labels=tuple(message.labels),
            metadata=dict(sorted(message.metadata.items())),
        ),
        id=message.id,
        state=state_from_wire(message.state),
        create_time_unix_ns=timestamp_ns(message.create_time),
        counters=counters_from_wire(message.counters),
        last_error=message.last_error,
        last_error_code=message.last_error_code,
        width_px=message.width_px,
        height_px=message.height_px,
        measured_fps=message.measured_fps,
        codec=message.codec,
    )


def registration_to_wire(config: StreamConfig) -> streams_pb2.RegisterStreamRequest:
    """The request that registers `config`, with its secrets."""
    return streams_pb2.RegisterStreamRequest(
        stream_id=config.name,
        stream=streams_pb2.Stream(
            source=config.source,
            username=config.username,
            password=config.password,
            model=model_resource(config.model),
            slo_ms=config.slo_ms,
            target_fps=config.target_fps,
            service_class=service_class_to_wire(config.service_class),
            loop=config.loop,
            disabled=not config.enabled,
            min_score=config.min_score,
            labels=config.labels,
            metadata=dict(config.metadata),
        ),
    )


def changes_to_wire(name: str, changes: StreamChanges) -> streams_pb2.UpdateStreamRequest:
    """The request that makes `changes`; its mask names what is not None."""
    request = streams_pb2.UpdateStreamRequest(stream=streams_pb2.Stream(name=stream_resource(name)))
    stream, paths = request.stream, request.update_mask.paths
    if changes.model is not None:
        stream.model = model_resource(changes.model)
        paths.append("model")
    if changes.enabled is not None:
        stream.disabled = not changes.enabled
        paths.append("disabled")
    if changes.labels is not None:
        stream.labels.extend(changes.labels)
        paths.append("labels")
    if changes.metadata is not None:
        stream.metadata.update(changes.metadata)
        paths.append("metadata")
    for field in ("source", "username", "password", "slo_ms", "target_fps", "loop", "min_score"):
        value = getattr(changes, field)
        if value is not None:
            setattr(stream, field, value)
            paths.append(field)
    return request
