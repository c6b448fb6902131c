"""Requests in the engine's terms: every message is checked field by field and becomes values of `engine.control`.

The first field that is wrong raises `InvalidArgumentError` with its path in the message as the caller wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from framepool.engine.api import checks
from framepool.engine.api.credentials import split_credentials
from framepool.engine.api.wire_values import duration_ns, service_class_from_wire, timestamp_ns
from framepool.engine.control import DetectionFilter, StreamChanges, StreamConfig
from framepool.engine.errors import InvalidArgumentError
from framepool.proto import detections_pb2, engine_pb2, models_pb2, streams_pb2

CHANGEABLE = frozenset(
    ("source", "username", "password", "model", "slo_ms", "target_fps", "loop", "disabled", "min_score", "labels",
     "metadata")
)  # fmt: skip
"""Fields of a stream that an update mask may name."""


def registration(request: streams_pb2.RegisterStreamRequest) -> StreamConfig:
    stream = request.stream
    if request.stream_id:
        name = checks.stream_id(request.stream_id, "stream_id")
        if stream.name and stream.name != f"streams/{name}":
            raise InvalidArgumentError(
                f"stream.name {checks.shown(stream.name)} is not streams/{name}, which stream_id asks for; "
                "leave one of them out",
                field="stream.name",
            )
    elif stream.name:
        name = checks.stream_name(stream.name, "stream.name")
    else:
        name = checks.stream_id("", "stream_id")
    if stream.service_class not in streams_pb2.ServiceClass.values():
        raise InvalidArgumentError(
            f"stream.service_class {stream.service_class} is unknown; it is LIVE (1) or OFFLINE (2)",
            field="stream.service_class",
        )
    split = split_credentials(checks.source(stream.source, "stream.source"))
    checks.source(split.source, "stream.source")
    return StreamConfig(
        name=name,
        source=split.source,
        username=_username(stream.username) or checks.text(split.username, "stream.source", longest=256),
        password=_password(stream.password)
        or ("" if stream.username else checks.text(split.password, "stream.source", longest=1024)),
        model=checks.model_name(stream.model, "stream.model"),
        slo_ms=checks.slo_ms(stream.slo_ms, "stream.slo_ms"),
        target_fps=checks.target_fps(stream.target_fps, "stream.target_fps"),
        service_class=service_class_from_wire(stream.service_class),
        loop=stream.loop,
        enabled=not stream.disabled,
        min_score=checks.score(stream.min_score, "stream.min_score"),
        labels=checks.labels(stream.labels, "stream.labels"),
        metadata=checks.metadata(stream.metadata, "stream.metadata"),
    )


def _username(value: str) -> str:
    return checks.text(value, "stream.username", longest=checks.LONGEST_USERNAME)


def _password(value: str) -> str:
    return checks.text(value, "stream.password", longest=checks.LONGEST_PASSWORD)


@dataclass(frozen=True, slots=True)
class Update:
    """Which stream to change, and what."""

    name: str
    changes: StreamChanges


def update(request: streams_pb2.UpdateStreamRequest) -> Update:
    """A source with credentials in it changes those too, unless the mask names them as well."""
    stream = request.stream
    name = checks.stream_name(stream.name, "stream.name")
    paths = checks.update_paths(request.update_mask.paths, CHANGEABLE)
    source = username = password = None
    if "source" in paths:
        split = split_credentials(checks.source(stream.source, "stream.source"))
        source = checks.source(split.source, "stream.source")
        if split.username or split.password:
            username = checks.text(split.username, "stream.source", longest=checks.LONGEST_USERNAME)
            password = checks.text(split.password, "stream.source", longest=checks.LONGEST_PASSWORD)
    if "username" in paths:
        username = _username(stream.username)
    if "password" in paths:
        password = _password(stream.password)
    return Update(
        name,
        StreamChanges(
            source=source,
            username=username,
            password=password,
            model=checks.model_name(stream.model, "stream.model") if "model" in paths else None,
            slo_ms=checks.slo_ms(stream.slo_ms, "stream.slo_ms") if "slo_ms" in paths else None,
            target_fps=checks.target_fps(stream.target_fps, "stream.target_fps") if "target_fps" in paths else None,
            enabled=not stream.disabled if "disabled" in paths else None,
            min_score=checks.score(stream.min_score, "stream.min_score") if "min_score" in paths else None,
            labels=checks.labels(stream.labels, "stream.labels") if "labels" in paths else None,
            metadata=checks.metadata(stream.metadata, "stream.metadata") if "metadata" in paths else None,
            loop=stream.loop if "loop" in paths else None,
        ),
    )


def detection_filter(message: detections_pb2.DetectionFilter) -> DetectionFilter:
    names = checks.bounded(tuple(message.streams), "filter.streams", most=checks.MOST_STREAMS)
    start_unix_ns = end_unix_ns = None
    if message.HasField("start_time"):
        start_unix_ns = _time(message, "start_time")
    if message.HasField("end_time"):
        end_unix_ns = _time(message, "end_time")
    checks.time_range(start_unix_ns, end_unix_ns, "filter.end_time")
    return DetectionFilter(
        streams=tuple(checks.stream_name(name, f"filter.streams[{index}]") for index, name in enumerate(names)),
        labels=checks.labels(message.labels, "filter.labels"),
        min_score=checks.score(message.min_score, "filter.min_score"),
        start_unix_ns=start_unix_ns,
        end_unix_ns=end_unix_ns,
    )


def _time(message: detections_pb2.DetectionFilter, name: str) -> int:
    value = getattr(message, name)
    checks.unix_ns(value, f"filter.{name}")
    return timestamp_ns(value)


def resume_cursor(request: detections_pb2.WatchDetectionsRequest) -> int | None:
    if not request.HasField("resume_cursor"):
        return None
    if request.resume_cursor < 0:
        raise InvalidArgumentError(
            f"resume_cursor is {request.resume_cursor}; it is the cursor of a frame, 0 or more", field="resume_cursor"
        )
    return request.resume_cursor


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """What an upload begins with. `server_path` is set where the engine reads the file itself."""

    name: str
    spec_toml: str
    head: str
    labels: tuple[str, ...]
    replace: bool
    server_path: Path | None


def model_header(header: models_pb2.AddModelRequest.Header, model_roots: tuple[Path, ...]) -> ModelHeader:
    size = len(header.spec_toml.encode())
    if size > checks.LARGEST_SPEC_BYTES:
        raise InvalidArgumentError(
            f"header.spec_toml has {size} bytes; at most {checks.LARGEST_SPEC_BYTES} are taken",
            field="header.spec_toml",
        )
    return ModelHeader(
        name=checks.model_id(header.model_id, "header.model_id"),
        spec_toml=header.spec_toml,
        head=checks.text(header.head, "header.head", longest=checks.LONGEST_LABEL),
        labels=checks.texts(
            header.labels, "header.labels", most=checks.MOST_MODEL_LABELS, longest=checks.LONGEST_LABEL
        ),
        replace=header.replace,
        server_path=_server_path(header.server_path, model_roots) if header.server_path else None,
    )


def _server_path(value: str, model_roots: tuple[Path, ...]) -> Path:
    """The regular file `value` names, below one of the roots once links are followed."""
    field = "header.server_path"
    path = Path(checks.text(value, field, longest=checks.LONGEST_PATH))
    if not model_roots:
        raise InvalidArgumentError(
            f"{field} is not taken by this server; upload the file, or set api.model_roots there", field=field
        )
    resolved = path.resolve()
    if not path.is_absolute() or not any(resolved.is_relative_to(root.resolve()) for root in model_roots):
        raise InvalidArgumentError(
            f"{field} {checks.shown(value)} is not an absolute path below one of the server's model roots", field=field
        )
    if not resolved.is_file():
        raise InvalidArgumentError(f"{field} {checks.shown(value)} is no file on the engine's machine", field=field)
    return resolved


def latency_window_s(request: engine_pb2.GetStatsRequest) -> float:
    """Seconds; 0.0 where the field is absent."""
    if not request.HasField("latency_window"):
        return 0.0
    window_ns = duration_ns(request.latency_window)
    if window_ns <= 0:
        raise InvalidArgumentError("latency_window is not above 0; leave it out for all frames", field="latency_window")
    return window_ns / 1e9


def external_file(name: str) -> str:
    """Name of an external data file as a model names it: relative, below the model's folder."""
    field = "chunk.file"
    checks.text(name, field, longest=checks.LONGEST_PATH)
    if name.startswith("/") or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidArgumentError(
            f"{field} {checks.shown(name)} leads out of the model's folder; name a file beside it", field=field
        )
    return name
