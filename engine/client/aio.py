"""`AsyncClient`: the engine's verbs for asyncio. The same values, errors and timeouts as `Client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from framepool import FramepoolError
from framepool.engine.api.wire_models import model_from_wire
from framepool.engine.client import verbs
from framepool.engine.client.connection import Connection, error_of
from framepool.engine.client.model_files import ModelSource, messages
from framepool.engine.client.resuming import Resumption
from framepool.engine.control import (
    CutInfo,
    DetectionFilter,
    DetectionPage,
    DeviceInfo,
    EngineStats,
    FrameDetections,
    ModelInfo,
    Progress,
    StreamChanges,
    StreamConfig,
    StreamInfo,
    WatchItem,
)
from framepool.engine.planning.plan import PlacedPlan
from framepool.proto import detections_pb2_grpc, engine_pb2_grpc, models_pb2_grpc, streams_pb2_grpc

Value = TypeVar("Value")


class AsyncClient:
    """A client of the engine at `connection` (or "host:port"), used on one event loop, in an `async with` block."""

    def __init__(self, connection: Connection | str = "") -> None:
        if isinstance(connection, str):
            connection = Connection(connection) if connection else Connection()
        self._connection = connection
        self._credentials = connection.credentials()
        self._channel: Any = None
        self._stubs: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and every call on it. Idempotent."""
        if self._channel is not None:
            await self._channel.close()

    # Streams

    async def register_stream(self, config: StreamConfig) -> StreamInfo:
        return await self._send(verbs.register_stream(config))

    async def get_stream(self, name: str) -> StreamInfo:
        return await self._send(verbs.get_stream(name))

    async def list_streams(self) -> tuple[StreamInfo, ...]:
        return await self._all(verbs.list_streams)

    async def update_stream(self, name: str, changes: StreamChanges) -> StreamInfo:
        return await self._send(verbs.update_stream(name, changes))

    async def delete_stream(self, name: str) -> None:
        await self._send(verbs.delete_stream(name))

    # Detections

    async def query_detections(
        self, query: DetectionFilter | None = None, *, page_size: int = 0, page_token: str = ""
    ) -> DetectionPage:
        """One page of stored detections; `iterate_detections` follows them to the end."""
        return await self._send(verbs.query_detections(query or DetectionFilter(), page_size, page_token))

    async def iterate_detections(
        self, query: DetectionFilter | None = None, *, page_size: int = 0
    ) -> AsyncIterator[FrameDetections]:
        """Every stored frame that `query` selects, oldest first, fetched page by page."""
        token = ""
        while True:
            page = await self.query_detections(query, page_size=page_size, page_token=token)
            for frame in page.frames:
                yield frame
            token = page.next_page_token
            if not token:
                return

    async def watch_detections(
        self, query: DetectionFilter | None = None, *, resume_cursor: int | None = None, give_up_s: float = 60.0
    ) -> AsyncIterator[WatchItem]:
        """Detections as they are published; resumes by itself after a broken connection."""
        resumption = Resumption(resume_cursor, give_up_s, time.monotonic)
        while True:
            try:
                async for message in self._watch_once(query or DetectionFilter(), resumption.cursor):
                    resumption.received(message)
                    if message.item is not None:
                        yield message.item
                return
            except FramepoolError as error:
                await asyncio.sleep(resumption.wait_s(error))

    async def _watch_once(self, query: DetectionFilter, cursor: int | None) -> AsyncIterator[verbs.Watched]:
        """One connection's messages (the call has no deadline, so the server is first seen to answer)."""
        await self.version()
        call = self._stubs["DetectionService"].WatchDetections(
            verbs.watch_request(query, cursor), metadata=self._connection.metadata
        )
        try:
            async for answer in call:
                yield verbs.watched(answer)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        finally:
            call.cancel()

    # Models

    async def add_model(self, source: ModelSource, *, timeout_s: float = verbs.SLOW_TIMEOUT_S) -> ModelInfo:
        """Uploads a model, or names one on the engine's disk; see `ModelSource`. Files are read on a thread."""
        self._open()
        upload = await asyncio.to_thread(messages, source)

        async def parts() -> AsyncIterator[Any]:
            while (part := await asyncio.to_thread(next, upload, None)) is not None:
                yield part

        try:
            answer = await self._stubs["ModelService"].AddModel(
                parts(), timeout=timeout_s, metadata=self._connection.metadata
            )
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        return model_from_wire(answer)

    async def get_model(self, name: str) -> ModelInfo:
        return await self._send(verbs.get_model(name))

    async def list_models(self) -> tuple[ModelInfo, ...]:
        return await self._all(verbs.list_models)

    async def model_cuts(self, name: str) -> tuple[CutInfo, ...]:
        return await self._send(verbs.model_cuts(name))

    async def remove_model(self, name: str) -> None:
        await self._send(verbs.remove_model(name))

    # Engine

    async def devices(self) -> tuple[DeviceInfo, ...]:
        return await self._send(verbs.devices())

    async def profile(self, model: str, *, force: bool = False) -> AsyncIterator[Progress]:
        """Profiles `model` where it was not yet; yields each step as it ends."""
        verb = verbs.profile(model, force)
        call = self._method(verb)(verb.request, timeout=verb.timeout_s, metadata=self._connection.metadata)
        try:
            async for step in call:
                yield verb.decode(step)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        finally:
            call.cancel()

    async def plan(self) -> PlacedPlan:
        return await self._send(verbs.plan())

    async def replan(self) -> PlacedPlan:
        return await self._send(verbs.replan())

    async def stats(self, window_s: float = 0.0) -> EngineStats:
        """Counters and latencies; these over frames published within `window_s` (0: each stream's last 1000)."""
        return await self._send(verbs.stats(window_s))

    async def version(self) -> str:
        """Version of the engine."""
        return await self._send(verbs.version())

    def _open(self) -> None:
        """Opens the channel on the running loop, once."""
        if self._channel is not None:
            return
        connection = self._connection
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(connection.server, options=connection.options)
        else:
            self._channel = grpc.aio.secure_channel(connection.server, self._credentials, options=connection.options)
        self._stubs = {
            "StreamService": streams_pb2_grpc.StreamServiceStub(self._channel),
            "DetectionService": detections_pb2_grpc.DetectionServiceStub(self._channel),
            "ModelService": models_pb2_grpc.ModelServiceStub(self._channel),
            "EngineService": engine_pb2_grpc.EngineServiceStub(self._channel),
        }

    def _method(self, verb: verbs.Verb[Value]) -> Any:
        self._open()
        return getattr(self._stubs[verb.service], verb.method)

    async def _send(self, verb: verbs.Verb[Value]) -> Value:
        timeout_s = verb.timeout_s or self._connection.timeout_s
        try:
            answer = await self._method(verb)(verb.request, timeout=timeout_s, metadata=self._connection.metadata)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        return verb.decode(answer)

    async def _all(self, page: Callable[[str], verbs.Verb[verbs.Listed[Value]]]) -> tuple[Value, ...]:
        items: list[Value] = []
        token = ""
        while True:
            listed = await self._send(page(token))
            items.extend(listed.items)
            token = listed.next_token
            if not token:
                return tuple(items)
