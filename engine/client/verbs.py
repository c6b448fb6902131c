"""The verbs as data: which method, with which request, and what its answer means. Sync and async clients send them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from framepool.engine.api.wire_detections import filter_to_wire, frame_from_wire
from framepool.engine.api.wire_engine import device_from_wire, progress_from_wire, stats_from_wire
from framepool.engine.api.wire_models import cut_from_wire, model_from_wire
from framepool.engine.api.wire_plan import plan_from_wire
from framepool.engine.api.wire_streams import changes_to_wire, registration_to_wire, stream_from_wire
from framepool.engine.api.wire_values import duration, model_resource, stream_resource
from framepool.engine.control import (
    CutInfo,
    DetectionFilter,
    DetectionPage,
    DeviceInfo,
    EngineStats,
    ModelInfo,
    Progress,
    StreamChanges,
    StreamConfig,
    StreamInfo,
    WatchItem,
)
from framepool.engine.planning.plan import PlacedPlan
from framepool.proto import detections_pb2, engine_pb2, models_pb2, streams_pb2

Value = TypeVar("Value")
PAGE_SIZE = 500
SLOW_TIMEOUT_S = 120.0
"""For verbs that probe a source, plan, or wait for hardware."""
PROFILE_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Verb(Generic[Value]):
    """One call. `timeout_s` None: the connection's own."""

    service: str
    method: str
    request: Any
    decode: Callable[[Any], Value]
    timeout_s: float | None = None


def _nothing(_: Any) -> None:
    return None


def register_stream(config: StreamConfig) -> Verb[StreamInfo]:
    request = registration_to_wire(config)
    return Verb("StreamService", "RegisterStream", request, stream_from_wire, SLOW_TIMEOUT_S)


def get_stream(name: str) -> Verb[StreamInfo]:
    request = streams_pb2.GetStreamRequest(name=stream_resource(name))
    return Verb("StreamService", "GetStream", request, stream_from_wire)


@dataclass(frozen=True, slots=True)
class Listed(Generic[Value]):
    """One page of a list."""

    items: tuple[Value, ...]
    next_token: str


def list_streams(page_token: str) -> Verb[Listed[StreamInfo]]:
    request = streams_pb2.ListStreamsRequest(page_size=PAGE_SIZE, page_token=page_token)

    def decode(answer: streams_pb2.ListStreamsResponse) -> Listed[StreamInfo]:
        return Listed(tuple(stream_from_wire(stream) for stream in answer.streams), answer.next_page_token)

    return Verb("StreamService", "ListStreams", request, decode)


def update_stream(name: str, changes: StreamChanges) -> Verb[StreamInfo]:
    request = changes_to_wire(name, changes)
    return Verb("StreamService", "UpdateStream", request, stream_from_wire, SLOW_TIMEOUT_S)


def delete_stream(name: str) -> Verb[None]:
    request = streams_pb2.DeleteStreamRequest(name=stream_resource(name))
    return Verb("StreamService", "DeleteStream", request, _nothing)


def query_detections(query: DetectionFilter, page_size: int, page_token: str) -> Verb[DetectionPage]:
    request = detections_pb2.QueryDetectionsRequest(
        filter=filter_to_wire(query), page_size=page_size, page_token=page_token
    )

    def decode(answer: detections_pb2.QueryDetectionsResponse) -> DetectionPage:
        return DetectionPage(tuple(frame_from_wire(frame) for frame in answer.frames), answer.next_page_token)

    return Verb("DetectionService", "QueryDetections", request, decode)


def watch_request(query: DetectionFilter, resume_cursor: int | None) -> detections_pb2.WatchDetectionsRequest:
    return detections_pb2.WatchDetectionsRequest(filter=filter_to_wire(query), resume_cursor=resume_cursor)


@dataclass(frozen=True, slots=True)
class Watched:
    """One message of a watch: an item, or None for a heartbeat; and the cursor to resume from (0: not known)."""

    item: WatchItem | None
    cursor: int


def watched(answer: detections_pb2.WatchDetectionsResponse) -> Watched:
    kind = answer.WhichOneof("item")
    if kind == "frame":
        frame = frame_from_wire(answer.frame)
        return Watched(WatchItem(frame), frame.cursor)
    if kind == "gap":
        return Watched(WatchItem(None, answer.gap.lost_frames), 0)
    return Watched(None, answer.heartbeat.cursor)


def get_model(name: str) -> Verb[ModelInfo]:
    return Verb("ModelService", "GetModel", models_pb2.GetModelRequest(name=model_resource(name)), model_from_wire)


def list_models(page_token: str) -> Verb[Listed[ModelInfo]]:
    request = models_pb2.ListModelsRequest(page_size=PAGE_SIZE, page_token=page_token)

    def decode(answer: models_pb2.ListModelsResponse) -> Listed[ModelInfo]:
        return Listed(tuple(model_from_wire(model) for model in answer.models), answer.next_page_token)

    return Verb("ModelService", "ListModels", request, decode)


def model_cuts(name: str) -> Verb[tuple[CutInfo, ...]]:
    request = models_pb2.ListCutsRequest(name=model_resource(name))

    def decode(answer: models_pb2.ListCutsResponse) -> tuple[CutInfo, ...]:
        return tuple(cut_from_wire(cut) for cut in answer.cuts)

    return Verb("ModelService", "ListCuts", request, decode)


def remove_model(name: str) -> Verb[None]:
    return Verb("ModelService", "RemoveModel", models_pb2.RemoveModelRequest(name=model_resource(name)), _nothing)


def devices() -> Verb[tuple[DeviceInfo, ...]]:
    def decode(answer: engine_pb2.ListDevicesResponse) -> tuple[DeviceInfo, ...]:
        return tuple(device_from_wire(device) for device in answer.devices)

    return Verb("EngineService", "ListDevices", engine_pb2.ListDevicesRequest(), decode)


def plan() -> Verb[PlacedPlan]:
    return Verb("EngineService", "GetPlan", engine_pb2.GetPlanRequest(), plan_from_wire)


def replan() -> Verb[PlacedPlan]:
    return Verb("EngineService", "Replan", engine_pb2.ReplanRequest(), plan_from_wire, SLOW_TIMEOUT_S)


def stats(window_s: float) -> Verb[EngineStats]:
    request = engine_pb2.GetStatsRequest()
    if window_s:
        request.latency_window.CopyFrom(duration(round(window_s * 1e9)))
    return Verb("EngineService", "GetStats", request, stats_from_wire)


def version() -> Verb[str]:
    def decode(answer: engine_pb2.Version) -> str:
        return str(answer.version)

    return Verb("EngineService", "GetVersion", engine_pb2.GetVersionRequest(), decode)


def profile(model: str, force: bool) -> Verb[Progress]:
    """A server stream: `decode` takes one step of it."""
    request = engine_pb2.ProfileRequest(model=model_resource(model), force=force)
    return Verb("EngineService", "Profile", request, progress_from_wire, PROFILE_TIMEOUT_S)
