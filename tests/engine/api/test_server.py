"""The server itself: start and stop, health, reflection, token, TLS, deadlines and overload."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from fake_control import FakeControl
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from framepool import FramepoolError
from framepool.engine.api.errors import OverloadedError, ServerStartError, UnauthenticatedError, UnreachableError
from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import SERVICES, ApiServer
from framepool.engine.client import Client, Connection
from framepool.engine.client.model_files import ModelSource
from framepool.engine.control import StreamConfig
from framepool.engine.errors import ConfigError, DeadlineError, EngineStoppedError
from framepool.proto import streams_pb2, streams_pb2_grpc

GATE = StreamConfig("gate", "a.mp4", "nanodet", 100.0, 5.0)


def test_health_and_reflection(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", *SERVICES):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        listed = database.get_services()
        assert set(SERVICES) <= set(listed)
        assert "grpc.health.v1.Health" in listed
        file = database.FindFileContainingSymbol("framepool.v1.StreamService")
        assert [method.name for method in file.service[0].method][:2] == ["RegisterStream", "GetStream"]


def test_health_follows_set_serving(control: FakeControl) -> None:
    server = ApiServer(control, ApiOptions(port=0))
    port = server.start(serving=False)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            kinds = health_pb2.HealthCheckResponse
            assert health.Check(health_pb2.HealthCheckRequest()).status == kinds.NOT_SERVING
            server.set_serving(True)
            assert health.Check(health_pb2.HealthCheckRequest(service=SERVICES[0])).status == kinds.SERVING
    finally:
        server.stop()


def test_a_taken_port_is_an_error_that_names_it(control: FakeControl, address: str) -> None:
    port = int(address.rpartition(":")[2])
    second = ApiServer(control, ApiOptions(port=port))
    with pytest.raises(ServerStartError, match=address) as raised:
        second.start()
    assert raised.value.field == "api.port"
    second.stop()


def test_stop_is_idempotent_and_frees_port_and_threads(control: FakeControl) -> None:
    before = set(threading.enumerate())
    server = ApiServer(control, ApiOptions(port=0))
    server.stop()
    port = server.start()
    with Client(f"127.0.0.1:{port}") as client:
        client.register_stream(GATE)
    server.stop()
    server.stop()
    server.set_serving(True)
    again = ApiServer(control, ApiOptions(port=port))
    assert again.start() == port
    again.stop()
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("framepool")]
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


def test_start_and_stop_many_times(control: FakeControl) -> None:
    for _ in range(20):
        server = ApiServer(control, ApiOptions(port=0))
        with Client(f"127.0.0.1:{server.start()}") as client:
            assert client.list_streams() == ()
        server.stop()


def test_a_token_is_asked_for(serve: Callable[..., str], control: FakeControl, tmp_path: Path) -> None:
    address = serve(auth_token="tok-123")
    path = tmp_path / "m.onnx"
    path.write_bytes(b"x")
    for token in ("", "tok-124", "tok-1234", "é"):
        if not token.isascii():
            continue
        with Client(Connection(address, token=token)) as client:
            for call in (
                client.list_streams,
                lambda client=client: next(client.watch_detections()),
                lambda client=client: list(client.profile("nanodet")),
                lambda client=client: client.add_model(ModelSource("mine", path, external_data=())),
            ):
                with pytest.raises(UnauthenticatedError) as raised:
                    call()
                assert "tok" not in str(raised.value).replace("token", "")
    assert control.calls == []
    with Client(Connection(address, token="tok-123")) as client:
        assert client.list_streams() == ()
    with grpc.insecure_channel(address) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert "tok-123" not in repr(ApiOptions(auth_token="tok-123"))
    assert "tok-123" not in repr(Connection(address, token="tok-123"))


def test_a_call_that_takes_too_long_is_answered_and_others_too(control: FakeControl, serve: Callable[..., str]) -> None:
    """A1: a register that hangs in the engine holds up neither its own client nor the calls of others."""
    control.holds["register_stream"] = threading.Event()
    with Client(serve(slow_timeout_s=0.3)) as client:
        with pytest.raises(DeadlineError, match=r"0\.3 s"):
            client.register_stream(GATE)
        assert client.list_streams() == ()


def test_the_clients_deadline_counts(control: FakeControl, address: str) -> None:
    control.holds["get_stream"] = threading.Event()
    with Client(Connection(address, timeout_s=0.2)) as client, pytest.raises(DeadlineError):
        client.get_stream("gate")


def test_overload_is_refused_at_once_and_lanes_are_apart(control: FakeControl, serve: Callable[..., str]) -> None:
    hold = control.holds["register_stream"] = threading.Event()
    with Client(serve(slow_calls=1, queue_factor=1)) as client, ThreadPoolExecutor(8) as pool:
        under_way = [pool.submit(client.register_stream, GATE) for _ in range(6)]
        refused = [_error(future) for future in _first_done(under_way, 4)]
        assert all(isinstance(error, OverloadedError) for error in refused)
        assert client.list_streams() == ()
        hold.set()
        ended = [_error(future) for future in under_way]
        assert ended.count(None) == 1


def _first_done(futures: list, count: int) -> Iterator:  # type: ignore[type-arg]
    end_s = time.monotonic() + 10
    while sum(future.done() for future in futures) < count and time.monotonic() < end_s:
        time.sleep(0.01)
    yield from (future for future in futures if future.done())


def _error(future) -> BaseException | None:  # type: ignore[no-untyped-def]
    return future.exception(timeout=10)


def test_stop_ends_watchers_and_calls_under_way(control: FakeControl) -> None:
    control.holds["get_stream"] = threading.Event()
    server = ApiServer(control, ApiOptions(port=0))
    with Client(f"127.0.0.1:{server.start()}") as client, ThreadPoolExecutor(2) as pool:
        call = pool.submit(client.get_stream, "gate")
        watch = pool.submit(lambda: next(client.watch_detections(give_up_s=0.0)))
        while not control.subscriptions or "get_stream" not in control.calls:
            time.sleep(0.01)
        server.stop(0.1)
        assert isinstance(watch.exception(20), UnreachableError | EngineStoppedError)
        assert isinstance(call.exception(20), FramepoolError)
        control.holds["get_stream"].set()
    assert not control.subscriptions


def test_f8_no_answer_ever_holds_a_secret(control: FakeControl, address: str) -> None:
    """F7, F8: what was registered with a password never shows it in any message, nor does an error about it."""
    with grpc.insecure_channel(address) as channel:
        stub = streams_pb2_grpc.StreamServiceStub(channel)
        stream = streams_pb2.Stream(
            source="rtsp://viewer:s3/cr@et@cam.example:554/x", model="models/nanodet", slo_ms=9.0, target_fps=5.0
        )
        answers = [stub.RegisterStream(streams_pb2.RegisterStreamRequest(stream_id="gate", stream=stream))]
        assert control.configs[0].source == "rtsp://cam.example:554/x"
        assert (control.configs[0].username, control.configs[0].password) == ("viewer", "s3/cr@et")
        stream.name, stream.password = "streams/gate", "s3cret"
        request = streams_pb2.UpdateStreamRequest(stream=stream)
        request.update_mask.paths.append("password")
        answers.append(stub.UpdateStream(request))
        assert control.changes[0].password == "s3cret"
        assert "s3cret" not in repr(control.changes[0])
        answers.append(stub.GetStream(streams_pb2.GetStreamRequest(name="streams/gate")))
        answers.extend(stub.ListStreams(streams_pb2.ListStreamsRequest()).streams)
        shown = "".join(map(str, answers))
        assert "cam.example" in shown
        for secret in ("s3/cr", "s3cret", "et@", "viewer"):
            assert secret not in shown
        stream.slo_ms = -1
        stream.password = "s3cret\n"
        with pytest.raises(grpc.RpcError) as failed:
            stub.RegisterStream(streams_pb2.RegisterStreamRequest(stream_id="door", stream=stream))
        assert "s3cret" not in str(failed.value)
        assert "s3/cr" not in str(failed.value)


def test_options_are_checked() -> None:
    for wrong in ({"port": -1}, {"port": 70000}, {"max_watchers": 0}, {"tls_key": Path("k")}, {"quick_timeout_s": 0}):
        with pytest.raises(ConfigError) as raised:
            ApiOptions(**wrong)  # type: ignore[arg-type]
        assert raised.value.field.startswith("api.")
    for server in ("nohost", "a:b", "a:0", "a:99999", "http://a:1", "a:1/x", ""):
        with pytest.raises(ConfigError):
            Connection(server)


def test_a_missing_certificate_is_an_error_that_names_it(control: FakeControl, tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    server = ApiServer(control, ApiOptions(port=0, tls_certificate=missing, tls_key=missing))
    with pytest.raises(ServerStartError, match=r"none\.pem"):
        server.start()
    server.stop()
