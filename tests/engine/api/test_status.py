"""Each error leaf over real gRPC and back; what is not in the table never tells its text."""

from __future__ import annotations

import logging
import re

import grpc
import pytest
from fake_control import FakeControl
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from framepool import FramepoolError
from framepool.engine import errors as engine_errors
from framepool.engine.api.errors import InternalError
from framepool.engine.api.redaction import redact_text
from framepool.engine.api.status import LEAVES, LONGEST_MESSAGE, from_status, leaf_of, to_status
from framepool.engine.client import Client
from framepool.engine.control import StreamConfig
from framepool.engine.planning import errors as planning_errors
from framepool.engine.planning.plan import Demand
from framepool.models import errors as model_errors
from framepool.proto import streams_pb2, streams_pb2_grpc
from framepool.streams.errors import SourceError, SourceErrorCode

PLAIN = [
    (engine_errors.InvalidArgumentError, grpc.StatusCode.INVALID_ARGUMENT),
    (engine_errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
    (engine_errors.AlreadyExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (engine_errors.FailedPreconditionError, grpc.StatusCode.FAILED_PRECONDITION),
    (engine_errors.CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (engine_errors.DeviceError, grpc.StatusCode.FAILED_PRECONDITION),
    (engine_errors.DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (engine_errors.EngineStoppedError, grpc.StatusCode.UNAVAILABLE),
    (model_errors.ModelInvalidError, grpc.StatusCode.INVALID_ARGUMENT),
    (model_errors.ModelUnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (model_errors.ModelSpecError, grpc.StatusCode.INVALID_ARGUMENT),
    (model_errors.ModelNotFoundError, grpc.StatusCode.NOT_FOUND),
    (model_errors.ModelExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (model_errors.ExportError, grpc.StatusCode.FAILED_PRECONDITION),
    (planning_errors.PlanningError, grpc.StatusCode.FAILED_PRECONDITION),
    (planning_errors.PlacementError, grpc.StatusCode.FAILED_PRECONDITION),
]


@pytest.mark.parametrize(("kind", "code"), PLAIN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_leaf_comes_back_as_it_was_raised(
    control: FakeControl, client: Client, address: str, kind: type[FramepoolError], code: grpc.StatusCode
) -> None:
    control.raises["get_stream"] = kind("slo_ms is 3 ms; at least 12 ms", field="slo_ms")
    with pytest.raises(FramepoolError) as raised:
        client.get_stream("gate")
    assert type(raised.value) is kind
    assert str(raised.value) == "slo_ms is 3 ms; at least 12 ms"
    assert raised.value.field == "slo_ms"
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as failed:
        streams_pb2_grpc.StreamServiceStub(channel).GetStream(streams_pb2.GetStreamRequest(name="streams/gate"))
    assert failed.value.code() is code


def test_capacity_says_what_would_fit(control: FakeControl, client: Client) -> None:
    control.raises["register_stream"] = engine_errors.CapacityError(
        "no room", field="slo_ms", best_slo_ms=187.25, best_fps=None
    )
    with pytest.raises(engine_errors.CapacityError) as raised:
        client.register_stream(StreamConfig("gate", "a.mp4", "nanodet", 9.0, 5.0))
    assert raised.value.best_slo_ms == 187.25
    assert raised.value.best_fps is None


def test_infeasible_plan_keeps_its_demands(control: FakeControl, client: Client) -> None:
    fastest = {Demand("nanodet", 5.0, 10.0): 41.5, Demand("big", 9.0, 1.0): None}
    control.raises["replan"] = planning_errors.PlanInfeasibleError("too tight", fastest_slo_ms=fastest)
    with pytest.raises(planning_errors.PlanInfeasibleError) as raised:
        client.replan()
    assert raised.value.fastest_slo_ms == fastest


@pytest.mark.parametrize("code", list(SourceErrorCode))
def test_source_errors_keep_their_code(control: FakeControl, client: Client, code: SourceErrorCode) -> None:
    control.raises["get_stream"] = SourceError("gate.mp4 is no video", code=code)
    with pytest.raises(SourceError) as raised:
        client.get_stream("gate")
    assert raised.value.code is code
    assert str(raised.value) == "gate.mp4 is no video"


def test_bad_request_names_the_field(address: str) -> None:
    request = streams_pb2.GetStreamRequest(name="streams/a/b")
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as failed:
        streams_pb2_grpc.StreamServiceStub(channel).GetStream(request)
    status = rpc_status.from_call(failed.value)
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in status.details if detail.Is(bad.DESCRIPTOR))
    assert [violation.field for violation in bad.field_violations] == ["name"]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("framepool", "INVALID_ARGUMENT")


def test_f7_an_unexpected_error_tells_only_an_incident(
    control: FakeControl, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    control.raises["get_stream"] = RuntimeError("cannot open rtsp://viewer:s3cret@10.0.0.7/x")
    with caplog.at_level(logging.ERROR), pytest.raises(InternalError) as raised:
        client.get_stream("gate")
    incident = raised.value.incident
    assert re.fullmatch("[0-9a-f]{12}", incident)
    assert "cannot open" not in str(raised.value)
    assert incident in caplog.text
    assert "cannot open" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "rtsp://viewer:s3cret@cam/x",
        "rtsp://viewer:p@s3cret@cam:554/x",
        "http://viewer:p/s3cret@cam/x?y",
        "http://viewer:p#s3cret@cam",
        "rtsp://s3cret@cam",
    ],
)
def test_f7_a_leaf_that_quotes_a_url_is_redacted(url: str) -> None:
    error = engine_errors.FailedPreconditionError(f"'{url}' failed; so did {url}: timeout")
    message = to_status(error).message
    assert "s3cret" not in message
    assert message.count("***@cam") == 2
    assert message.endswith(": timeout")


def test_redaction_leaves_other_text_alone() -> None:
    text = "mail a@b.example or see http://host/x and rtsp://cam/y?z=1"
    assert redact_text(text) == text


def test_a_long_message_is_bounded() -> None:
    status = to_status(engine_errors.NotFoundError("x" * 10 * LONGEST_MESSAGE))
    assert len(status.message) == LONGEST_MESSAGE
    assert status.ByteSize() < 8000


def test_every_error_of_the_engine_is_in_the_table() -> None:
    kinds = [
        kind
        for module in (engine_errors, model_errors, planning_errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, FramepoolError) and kind is not FramepoolError
    ]
    assert len(kinds) > 15
    assert [kind for kind in kinds if not _mapped(kind)] == []


def _mapped(kind: type[FramepoolError]) -> bool:
    return any(leaf.kind is kind for leaf in LEAVES)


def test_a_subclass_goes_as_its_nearest_parent() -> None:
    class Finer(engine_errors.NotFoundError):
        pass

    leaf = leaf_of(Finer("x"))
    assert leaf is not None
    assert leaf.kind is engine_errors.NotFoundError
    assert leaf_of(FramepoolError("x")) is None


def test_a_foreign_status_is_not_taken_for_ours() -> None:
    status = to_status(engine_errors.NotFoundError("x"))
    status.ClearField("details")
    assert from_status(status) is None
