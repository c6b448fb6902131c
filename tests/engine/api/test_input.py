"""Bad input over raw gRPC: refused at the edge with the field's name, and the engine is never asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_control import FakeControl
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.api.checks import stream_id
from framepool.engine.api.status import from_status
from framepool.engine.client import Client
from framepool.engine.client.model_files import ModelSource
from framepool.engine.control import DetectionFilter, StreamChanges, StreamConfig
from framepool.engine.errors import InvalidArgumentError
from framepool.proto import detections_pb2, detections_pb2_grpc, models_pb2, models_pb2_grpc, streams_pb2
from framepool.proto import streams_pb2_grpc as streams_grpc

Call = Callable[[Any], Any]


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address) as opened:
        yield opened


def refused(call: Callable[[], Any]) -> InvalidArgumentError:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = dict(failed.value.trailing_metadata())["grpc-status-details-bin"]
    from google.rpc import status_pb2

    error = from_status(status_pb2.Status.FromString(details))
    assert isinstance(error, InvalidArgumentError)
    return error


def stream(**changes: Any) -> streams_pb2.Stream:
    fields: dict[str, Any] = {"source": "a.mp4", "model": "models/nanodet", "slo_ms": 100.0, "target_fps": 10.0}
    return streams_pb2.Stream(**(fields | changes))


BAD_NAMES = ["", "a/b", "../x", "x" * 10_000, "A", "-a", "a b", "ä", "a\n", "a\0", "x" * 64, "streams/a", "a_b", "a."]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:12]))
def test_bad_stream_names(control: FakeControl, channel: grpc.Channel, name: str) -> None:
    stub = streams_grpc.StreamServiceStub(channel)
    request = streams_pb2.RegisterStreamRequest(stream_id=name, stream=stream())
    error = refused(lambda: stub.RegisterStream(request))
    assert error.field == "stream_id"
    assert "a-z" in str(error)
    assert len(str(error)) < 300
    for call, message in (
        (stub.GetStream, streams_pb2.GetStreamRequest(name=f"streams/{name}")),
        (stub.DeleteStream, streams_pb2.DeleteStreamRequest(name=f"streams/{name}")),
    ):
        assert refused(lambda call=call, message=message: call(message)).field == "name"
    assert control.calls == []


BAD_FIELDS = [
    ("slo_ms", 0.0, "above 0"),
    ("slo_ms", -5.0, "above 0"),
    ("slo_ms", float("nan"), "above 0"),
    ("slo_ms", float("inf"), "3,600,000"),
    ("slo_ms", 3_600_000.5, "3,600,000"),
    ("target_fps", 0.0, "above 0"),
    ("target_fps", -1.0, "above 0"),
    ("target_fps", 1e9, "1000"),
    ("target_fps", float("nan"), "1000"),
    ("min_score", -0.1, "between 0 and 1"),
    ("min_score", 1.5, "between 0 and 1"),
    ("min_score", float("nan"), "between 0 and 1"),
    ("source", "", "empty"),
    ("source", "  ", "empty"),
    ("source", "x" * 4097, "4096"),
    ("source", "a\nb", "control"),
    ("model", "nanodet", "models/"),
    ("model", "models/../x", "a-z"),
    ("model", "", "models/"),
    ("labels", ["x"] * 257, "256"),
    ("labels[0]", ["x" * 129], "128"),
    ("labels[1]", ["a", ""], "empty"),
    ("metadata", {str(i): "" for i in range(65)}, "64"),
    ("metadata", {"": "x"}, "empty"),
    ("password", "x" * 1025, "1024"),
    ("username", "a\r\nb", "control"),
    ("service_class", 7, "LIVE"),
]


@pytest.mark.parametrize(("field", "value", "hint"), BAD_FIELDS, ids=lambda value: repr(value)[:20])
def test_bad_registrations(control: FakeControl, channel: grpc.Channel, field: str, value: Any, hint: str) -> None:
    request = streams_pb2.RegisterStreamRequest(stream_id="gate", stream=stream(**{field.partition("[")[0]: value}))
    error = refused(lambda: streams_grpc.StreamServiceStub(channel).RegisterStream(request))
    assert error.field == f"stream.{field}"
    assert hint in str(error)
    assert control.calls == []


def test_register_by_resource_name(control: FakeControl, channel: grpc.Channel) -> None:
    stub = streams_grpc.StreamServiceStub(channel)
    stub.RegisterStream(streams_pb2.RegisterStreamRequest(stream=stream(name="streams/gate")))
    assert control.configs[0].name == "gate"
    twice = streams_pb2.RegisterStreamRequest(stream_id="door", stream=stream(name="streams/gate"))
    assert refused(lambda: stub.RegisterStream(twice)).field == "stream.name"


@pytest.mark.parametrize("paths", [[], ["name"], ["state"], ["slo_ms", "nonsense"], ["*"], ["counters.ingested"]])
def test_update_masks(control: FakeControl, channel: grpc.Channel, paths: list[str]) -> None:
    request = streams_pb2.UpdateStreamRequest(stream=stream(name="streams/gate"))
    request.update_mask.paths.extend(paths)
    error = refused(lambda: streams_grpc.StreamServiceStub(channel).UpdateStream(request))
    assert error.field == "update_mask"
    assert "slo_ms" in str(error)
    assert control.calls == []


def test_update_checks_only_what_the_mask_names(control: FakeControl, client: Client, channel: grpc.Channel) -> None:
    client.register_stream(StreamConfig("gate", "a.mp4", "nanodet", 100.0, 5.0))
    request = streams_pb2.UpdateStreamRequest(stream=streams_pb2.Stream(name="streams/gate", target_fps=7.0))
    request.update_mask.paths.append("target_fps")
    streams_grpc.StreamServiceStub(channel).UpdateStream(request)
    assert control.changes == [StreamChanges(target_fps=7.0)]
    request.update_mask.paths.append("slo_ms")
    assert refused(lambda: streams_grpc.StreamServiceStub(channel).UpdateStream(request)).field == "stream.slo_ms"


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_page_sizes(control: FakeControl, channel: grpc.Channel, size: int) -> None:
    stub = streams_grpc.StreamServiceStub(channel)
    assert refused(lambda: stub.ListStreams(streams_pb2.ListStreamsRequest(page_size=size))).field == "page_size"
    query = detections_pb2.QueryDetectionsRequest(page_size=size)
    call = detections_pb2_grpc.DetectionServiceStub(channel).QueryDetections
    assert refused(lambda: call(query)).field == "page_size"


def test_page_tokens_from_elsewhere(control: FakeControl, client: Client, channel: grpc.Channel) -> None:
    for name in ("a", "b", "c"):
        client.register_stream(StreamConfig(name, "a.mp4", "nanodet", 100.0, 5.0))
    streams = streams_grpc.StreamServiceStub(channel)
    first = streams.ListStreams(streams_pb2.ListStreamsRequest(page_size=2))
    assert [s.name for s in first.streams] == ["streams/a", "streams/b"]
    client.delete_stream("b")  # the entry the token stands on goes; the next page still follows it
    rest = streams.ListStreams(streams_pb2.ListStreamsRequest(page_size=2, page_token=first.next_page_token))
    assert ([s.name for s in rest.streams], rest.next_page_token) == (["streams/c"], "")
    models = models_pb2_grpc.ModelServiceStub(channel)
    token = first.next_page_token
    assert refused(lambda: models.ListModels(models_pb2.ListModelsRequest(page_token=token))).field == "page_token"
    for forged in ("x", "AAAA", token[:-1], token + "A", "é", "x" * 5000):
        request = streams_pb2.ListStreamsRequest(page_token=forged)
        assert refused(lambda request=request: streams.ListStreams(request)).field == "page_token"
    with pytest.raises(InvalidArgumentError) as raised:
        client.query_detections(page_token=token)
    assert raised.value.field == "page_token"


BAD_FILTERS = [
    ("filter.streams[1]", {"streams": ["streams/a", "b"]}),
    ("filter.streams", {"streams": ["streams/a"] * 257}),
    ("filter.labels", {"labels": ["x"] * 257}),
    ("filter.min_score", {"min_score": 2.0}),
    ("filter.end_time", {"start_time": Timestamp(seconds=10), "end_time": Timestamp(seconds=10)}),
    ("filter.start_time", {"start_time": Timestamp(seconds=-5)}),
    ("filter.start_time", {"start_time": Timestamp(seconds=2**62)}),
    ("filter.end_time", {"end_time": Timestamp(seconds=1, nanos=-1)}),
]


@pytest.mark.parametrize(("field", "fields"), BAD_FILTERS, ids=lambda value: str(value)[:24])
def test_bad_filters(control: FakeControl, channel: grpc.Channel, field: str, fields: dict[str, Any]) -> None:
    stub = detections_pb2_grpc.DetectionServiceStub(channel)
    query = detections_pb2.DetectionFilter(**fields)
    request = detections_pb2.QueryDetectionsRequest(filter=query)
    assert refused(lambda: stub.QueryDetections(request)).field == field
    watch = detections_pb2.WatchDetectionsRequest(filter=query)
    assert refused(lambda: next(stub.WatchDetections(watch))).field == field
    assert control.calls == []


def test_bad_cursor(channel: grpc.Channel) -> None:
    stub = detections_pb2_grpc.DetectionServiceStub(channel)
    watch = detections_pb2.WatchDetectionsRequest(resume_cursor=-1)
    assert refused(lambda: next(stub.WatchDetections(watch))).field == "resume_cursor"


def parts(*messages: dict[str, Any]) -> Iterator[models_pb2.AddModelRequest]:
    for message in messages:
        if "data" in message:
            yield models_pb2.AddModelRequest(chunk=models_pb2.AddModelRequest.Chunk(**message))
        else:
            yield models_pb2.AddModelRequest(header=models_pb2.AddModelRequest.Header(**message))


HEAD = {"model_id": "mine"}
BAD_UPLOADS: list[tuple[str, list[dict[str, Any]]]] = [
    ("header", []),
    ("header", [{"data": b"x"}]),
    ("chunk", [HEAD, HEAD]),
    ("chunk", [HEAD]),
    ("chunk", [HEAD, {"data": b""}]),
    ("chunk.file", [HEAD, {"data": b"x"}, {"file": "../w", "data": b"x"}]),
    ("chunk.file", [HEAD, {"data": b"x"}, {"file": "/etc/passwd", "data": b"x"}]),
    ("chunk.file", [HEAD, {"data": b"x"}, {"file": "a//b", "data": b"x"}]),
    ("chunk", [HEAD, {"data": b"x"}, {"file": "w", "data": b"x"}, {"data": b"y"}]),
    ("chunk", [HEAD, *({"data": b"x" * 1000} for _ in range(11))]),
    ("header.model_id", [{"model_id": "a/b"}, {"data": b"x"}]),
    ("header.spec_toml", [{"model_id": "a", "spec_toml": "x" * 300_000}, {"data": b"x"}]),
    ("header.labels[0]", [{"model_id": "a", "labels": [""]}, {"data": b"x"}]),
    ("header.server_path", [{"model_id": "a", "server_path": "/etc/passwd"}]),
]


@pytest.mark.parametrize(("field", "messages"), BAD_UPLOADS, ids=range(len(BAD_UPLOADS)))
def test_bad_uploads(
    control: FakeControl, serve: Callable[..., str], field: str, messages: list[dict[str, Any]]
) -> None:
    with grpc.insecure_channel(serve(max_model_bytes=10_000)) as channel:
        stub = models_pb2_grpc.ModelServiceStub(channel)
        assert refused(lambda: stub.AddModel(parts(*messages))).field == field
    assert control.uploads == []


def test_server_paths_stay_below_the_model_roots(
    control: FakeControl, serve: Callable[..., str], tmp_path: Path
) -> None:
    root = tmp_path / "models"
    root.mkdir()
    inside, outside = root / "m.onnx", tmp_path / "secret.onnx"
    inside.write_bytes(b"x")
    outside.write_bytes(b"x")
    (root / "link.onnx").symlink_to(outside)
    with Client(serve(model_roots=(root,))) as client:
        client.add_model(ModelSource("mine", server_path=str(inside)))
        assert control.uploads[0].path == inside
        for path in (outside, root / ".." / "secret.onnx", root / "link.onnx", root / "none.onnx", root, "m.onnx"):
            with pytest.raises(InvalidArgumentError) as raised:
                client.add_model(ModelSource("mine", server_path=str(path)))
            assert raised.value.field == "header.server_path"
    assert len(control.uploads) == 1


def test_f3_messages_above_grpcs_default_pass_both_ways(control: FakeControl, client: Client) -> None:
    """F3: a request and a reply of more than 4 MB."""
    from fake_control import frame

    control.stored = [
        frame(cursor, "gate", *(f"label-{i}-{'x' * 100}" for i in range(40))) for cursor in range(1, 1001)
    ]
    page = client.query_detections(DetectionFilter(), page_size=1000)
    assert len(page.frames) == 1000
    assert sum(len(row.label) for f in page.frames for row in f.rows) > 4 * 2**20
    labels = tuple(f"{i}-{'x' * 100}" for i in range(50_000))
    source = ModelSource("mine", Path(__file__), external_data=(), labels=labels)
    assert client.add_model(source).labels == labels


@given(st.text() | st.text("ab-9_/", max_size=70))
def test_only_plain_names_pass(name: str) -> None:
    plain = set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and 1 <= len(name) <= 63
    if plain and not name.startswith("-"):
        assert stream_id(name, "name") == name
    else:
        with pytest.raises(InvalidArgumentError):
            stream_id(name, "name")
