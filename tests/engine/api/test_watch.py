"""Watching over real gRPC: woken at once, gone when the client is, bounded, resumed without loss."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import grpc
import pytest
from fake_control import FakeControl, frame

from framepool.engine.api.errors import OverloadedError, UnreachableError
from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import ApiServer
from framepool.engine.client import AsyncClient, Client
from framepool.engine.control import DetectionFilter
from framepool.engine.errors import EngineStoppedError
from framepool.proto import detections_pb2, detections_pb2_grpc


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Whether `condition` came true within `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


def test_frames_come_as_they_are_published(control: FakeControl, client: Client) -> None:
    with client.watch_detections(DetectionFilter(streams=("gate",))) as watch:
        reader = threading.Thread(target=lambda: got.append(next(watch)))
        got: list[object] = []
        reader.start()
        assert until(lambda: len(control.subscriptions) == 1)
        control.publish(frame(1, "door"))
        control.publish(frame(2, "gate"))
        reader.join(10)
        assert [item.frame for item in got] == [frame(2, "gate")]  # type: ignore[attr-defined]
        assert watch.cursor == 2
    assert until(lambda: not control.subscriptions)


def test_f1_watchers_of_a_quiet_stream_go_with_their_clients(control: FakeControl, address: str) -> None:
    """F1: four clients watch a stream that says nothing, then leave: no handler and no subscription stays."""
    channels = [grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    calls = [
        detections_pb2_grpc.DetectionServiceStub(channel).WatchDetections(detections_pb2.WatchDetectionsRequest())
        for channel in channels
    ]
    assert [next(call).WhichOneof("item") for call in calls] == ["heartbeat"] * 4
    assert len(control.subscriptions) == 4
    calls[0].cancel()
    calls[1].cancel()
    assert until(lambda: len(control.subscriptions) == 2)
    for channel in channels[2:]:  # the connection breaks without a word
        channel.close()
    assert until(lambda: not control.subscriptions)
    for channel in channels[:2]:
        channel.close()


def test_f2_watchers_beyond_the_limit_are_refused_and_others_answered(
    control: FakeControl, serve: Callable[..., str]
) -> None:
    """F2: watchers hold no thread, the limit refuses at once, and every other call is answered meanwhile."""
    address = serve(max_watchers=5, quick_calls=2, queue_factor=1)
    with Client(address) as client:
        watches = [client.watch_detections() for _ in range(5)]
        readers = [threading.Thread(target=lambda watch=watch: list(watch)) for watch in watches]
        for reader in readers:
            reader.start()
        assert until(lambda: len(control.subscriptions) == 5)
        with pytest.raises(OverloadedError, match="5 watchers"):
            next(client.watch_detections())
        assert client.list_streams() == ()
        watches[0].close()
        assert until(lambda: len(control.subscriptions) == 4)
        with client.watch_detections(resume_cursor=0) as again:
            control.publish(frame(1))
            item = next(again)
            assert item.frame == frame(1)
        for watch in watches:
            watch.close()
        for reader in readers:
            reader.join(10)
            assert not reader.is_alive()
    assert until(lambda: not control.subscriptions)


def test_f5_a_slow_reader_gets_a_gap_and_holds_nobody_back(control: FakeControl, address: str) -> None:
    """F5: one reader stands still while large frames pour in; it is told what it lost, the other loses nothing."""
    control.subscription_capacity = 50
    big = tuple(f"{index}-{'x' * 1000}" for index in range(100))
    total = 300
    with Client(address) as slow_client, Client(address) as quick_client:
        slow, quick = slow_client.watch_detections(), quick_client.watch_detections()
        quick_seen: list[int] = []

        def read_quickly() -> None:
            for item in quick:
                if item.frame is not None:
                    quick_seen.append(item.frame.cursor)
                    if item.frame.cursor == total:
                        return

        reader = threading.Thread(target=read_quickly)
        reader.start()
        control.publish(frame(1))
        assert until(lambda: bool(quick_seen) or _publish_again(control))
        slow_first = threading.Thread(target=lambda: next(slow))
        slow_first.start()
        assert until(lambda: len(control.subscriptions) == 2)
        control.publish(frame(2))
        slow_first.join(10)
        for cursor in range(3, total + 1):
            control.publish(frame(cursor, "gate", *big))
            assert until(lambda cursor=cursor: quick_seen[-1] == cursor)
        reader.join(10)
        assert quick_seen[-1] == total
        got = lost = 0
        for item in slow:
            if item.frame is None:
                lost += item.lost
            else:
                got += 1
                if item.frame.cursor == total:
                    break
        assert lost > 0
        assert got + lost == total - 2
        slow.close()
        quick.close()


def _publish_again(control: FakeControl) -> bool:
    control.publish(frame(1))
    return False


def test_a_quiet_watch_is_kept_alive_by_heartbeats_with_its_position(
    control: FakeControl, serve: Callable[..., str]
) -> None:
    address = serve(heartbeat_s=0.05)
    with grpc.insecure_channel(address) as channel:
        stub = detections_pb2_grpc.DetectionServiceStub(channel)
        call = stub.WatchDetections(detections_pb2.WatchDetectionsRequest())
        assert [next(call).WhichOneof("item") for _ in range(4)] == ["heartbeat"] * 4
        next(iter(control.subscriptions)).position = 77
        assert until(lambda: next(call).heartbeat.cursor == 77)
        call.cancel()


def restarted(control: FakeControl, port: int) -> ApiServer:
    server = ApiServer(control, ApiOptions(port=port))
    server.start()
    return server


def test_a_watch_resumes_after_the_engine_was_gone(control: FakeControl) -> None:
    first = ApiServer(control, ApiOptions(port=0))
    port = first.start()
    with Client(f"127.0.0.1:{port}") as client, client.watch_detections(resume_cursor=0) as watch:
        control.publish(frame(1))
        assert next(watch).frame == frame(1)
        first.stop(0.0)
        control.publish(frame(2))
        second = restarted(control, port)
        assert next(watch).frame == frame(2)
        control.publish(frame(3))
        assert next(watch).frame == frame(3)
        second.stop(0.0)
    assert control.calls.count("watch_detections") == 2


def test_a_quiet_watch_resumes_from_its_heartbeat(control: FakeControl) -> None:
    """What was published while the engine was away comes, although no frame had come before."""
    first = ApiServer(control, ApiOptions(port=0, heartbeat_s=0.05))
    port = first.start()
    control.stored = [frame(cursor) for cursor in range(1, 11)]
    with Client(f"127.0.0.1:{port}") as client, client.watch_detections() as watch:
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.append(next(watch).frame))
        reader.start()
        assert until(lambda: len(control.subscriptions) == 1)
        next(iter(control.subscriptions)).position = 10
        assert until(lambda: watch.cursor == 10)
        first.stop(0.0)
        control.publish(frame(11))
        second = restarted(control, port)
        reader.join(20)
        assert got == [frame(11)]
        second.stop(0.0)


def test_an_async_watch_resumes_too(control: FakeControl) -> None:
    first = ApiServer(control, ApiOptions(port=0))
    port = first.start()

    async def use() -> None:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            watch = client.watch_detections(resume_cursor=0)
            control.publish(frame(1))
            assert (await anext(watch)).frame == frame(1)
            await asyncio.to_thread(first.stop, 0.0)
            control.publish(frame(2))
            second = await asyncio.to_thread(restarted, control, port)
            assert (await anext(watch)).frame == frame(2)
            await watch.aclose()  # type: ignore[attr-defined]
            await asyncio.to_thread(second.stop, 0.0)

    asyncio.run(use())
    assert not control.subscriptions


def test_an_async_watch_ends_with_its_task(control: FakeControl, address: str) -> None:
    async def use() -> None:
        async with AsyncClient(address) as client:

            async def read() -> None:
                async for _ in client.watch_detections():
                    pass

            task = asyncio.create_task(read())
            while not control.subscriptions:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while control.subscriptions:
                await asyncio.sleep(0.005)
            assert await client.list_streams() == ()

    asyncio.run(asyncio.wait_for(use(), 20))


def test_a_watch_of_nobody_is_told_at_once() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        next(client.watch_detections())


def test_a_watch_gives_up_after_its_time(control: FakeControl) -> None:
    server = ApiServer(control, ApiOptions(port=0))
    with Client(f"127.0.0.1:{server.start()}") as client:
        watch = client.watch_detections(resume_cursor=0, give_up_s=0.2)
        control.publish(frame(1))
        next(watch)
        server.stop(0.0)
        with pytest.raises((UnreachableError, EngineStoppedError)):
            next(watch)


def test_an_ended_subscription_is_told_as_such(control: FakeControl, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = detections_pb2_grpc.DetectionServiceStub(channel)
        call = stub.WatchDetections(detections_pb2.WatchDetectionsRequest())
        next(call)
        next(iter(control.subscriptions)).end()
        with pytest.raises(grpc.RpcError) as failed:
            next(call)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


def test_f1_a_client_that_leaves_before_its_subscription_is_there_leaves_none_behind(
    control: FakeControl, address: str
) -> None:
    """F1: the engine is slow to subscribe; the client has gone meanwhile."""
    control.holds["watch_detections"] = threading.Event()
    with grpc.insecure_channel(address) as channel:
        stub = detections_pb2_grpc.DetectionServiceStub(channel)
        call = stub.WatchDetections(detections_pb2.WatchDetectionsRequest())
        assert until(lambda: "watch_detections" in control.calls)
        call.cancel()
    control.holds["watch_detections"].set()
    assert until(lambda: control.closed_subscriptions == 1)
    assert not control.subscriptions
