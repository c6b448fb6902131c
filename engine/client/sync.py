"""`Client`: the engine's verbs from ordinary code. Every call ends within its timeout; threads may share a client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
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


class Client:
    """A client of the engine at `connection` (or "host:port"). Close it, or use it in a `with` block."""

    def __init__(self, connection: Connection | str = "") -> None:
        if isinstance(connection, str):
            connection = Connection(connection) if connection else Connection()
        self._connection = connection
        credentials = connection.credentials()
        if credentials is None:
            self._channel = grpc.insecure_channel(connection.server, options=connection.options)
        else:
            self._channel = grpc.secure_channel(connection.server, credentials, options=connection.options)
        self._stubs: dict[str, Any] = {
            "StreamService": streams_pb2_grpc.StreamServiceStub(self._channel),
            "DetectionService": detections_pb2_grpc.DetectionServiceStub(self._channel),
            "ModelService": models_pb2_grpc.ModelServiceStub(self._channel),
            "EngineService": engine_pb2_grpc.EngineServiceStub(self._channel),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and every call on it. Idempotent."""
        self._channel.close()

    # Streams

    def register_stream(self, config: StreamConfig) -> StreamInfo:
        return self._send(verbs.register_stream(config))

    def get_stream(self, name: str) -> StreamInfo:
        return self._send(verbs.get_stream(name))

    def list_streams(self) -> tuple[StreamInfo, ...]:
        return self._all(verbs.list_streams)

    def update_stream(self, name: str, changes: StreamChanges) -> StreamInfo:
        return self._send(verbs.update_stream(name, changes))

    def delete_stream(self, name: str) -> None:
        self._send(verbs.delete_stream(name))

    # Detections

    def query_detections(
        self, query: DetectionFilter | None = None, *, page_size: int = 0, page_token: str = ""
    ) -> DetectionPage:
        """One page of stored detections; `iterate_detections` follows them to the end."""
        return self._send(verbs.query_detections(query or DetectionFilter(), page_size, page_token))

    def iterate_detections(
        self, query: DetectionFilter | None = None, *, page_size: int = 0
    ) -> Iterator[FrameDetections]:
        """Every stored frame that `query` selects, oldest first, fetched page by page."""
        token = ""
        while True:
            page = self.query_detections(query, page_size=page_size, page_token=token)
            yield from page.frames
            token = page.next_page_token
            if not token:
                return

    def watch_detections(
        self, query: DetectionFilter | None = None, *, resume_cursor: int | None = None, give_up_s: float = 60.0
    ) -> Watch:
        """Detections as they are published; resumes by itself after a broken connection. Close the watch when done."""
        return Watch(
            self._start_watch,
            query or DetectionFilter(),
            Resumption(resume_cursor, give_up_s, time.monotonic),
            self._connection.server,
        )

    # Models

    def add_model(self, source: ModelSource, *, timeout_s: float = verbs.SLOW_TIMEOUT_S) -> ModelInfo:
        """Uploads a model, or names one on the engine's disk; see `ModelSource`."""
        upload = messages(source)
        try:
            answer = self._stubs["ModelService"].AddModel(upload, timeout=timeout_s, metadata=self._connection.metadata)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        return model_from_wire(answer)

    def get_model(self, name: str) -> ModelInfo:
        return self._send(verbs.get_model(name))

    def list_models(self) -> tuple[ModelInfo, ...]:
        return self._all(verbs.list_models)

    def model_cuts(self, name: str) -> tuple[CutInfo, ...]:
        return self._send(verbs.model_cuts(name))

    def remove_model(self, name: str) -> None:
        self._send(verbs.remove_model(name))

    # Engine

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._send(verbs.devices())

    def profile(self, model: str, *, force: bool = False) -> Iterator[Progress]:
        """Profiles `model` where it was not yet; yields each step as it ends."""
        verb = verbs.profile(model, force)
        call = self._method(verb)(verb.request, timeout=verb.timeout_s, metadata=self._connection.metadata)
        try:
            for step in call:
                yield verb.decode(step)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        finally:
            call.cancel()

    def plan(self) -> PlacedPlan:
        return self._send(verbs.plan())

    def replan(self) -> PlacedPlan:
        return self._send(verbs.replan())

    def stats(self, window_s: float = 0.0) -> EngineStats:
        """Counters and latencies; these over frames published within `window_s` (0: each stream's last 1000)."""
        return self._send(verbs.stats(window_s))

    def version(self) -> str:
        """Version of the engine."""
        return self._send(verbs.version())

    def _method(self, verb: verbs.Verb[Value]) -> Any:
        return getattr(self._stubs[verb.service], verb.method)

    def _send(self, verb: verbs.Verb[Value]) -> Value:
        timeout_s = verb.timeout_s or self._connection.timeout_s
        try:
            answer = self._method(verb)(verb.request, timeout=timeout_s, metadata=self._connection.metadata)
        except grpc.RpcError as failure:
            raise error_of(failure, self._connection.server) from None
        return verb.decode(answer)

    def _all(self, page: Callable[[str], verbs.Verb[verbs.Listed[Value]]]) -> tuple[Value, ...]:
        items: list[Value] = []
        token = ""
        while True:
            listed = self._send(page(token))
            items.extend(listed.items)
            token = listed.next_token
            if not token:
                return tuple(items)

    def _start_watch(self, query: DetectionFilter, cursor: int | None) -> Any:
        """A watch call on a server that was just seen to answer (the call itself has no deadline)."""
        self.version()
        return self._stubs["DetectionService"].WatchDetections(
            verbs.watch_request(query, cursor), metadata=self._connection.metadata
        )


class Watch:
    """An iterator of `WatchItem`: frames, and gaps where the reader was too slow. One thread reads; any may close."""

    def __init__(
        self,
        start: Callable[[DetectionFilter, int | None], Any],
        query: DetectionFilter,
        resumption: Resumption,
        server: str,
    ) -> None:
        self._start = start
        self._query = query
        self._resumption = resumption
        self._server = server
        self._closed = threading.Event()
        self._call: Any = None

    @property
    def cursor(self) -> int | None:
        """Where to resume this watch from later; None before anything is known."""
        return self._resumption.cursor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch, also while another thread waits in it. Idempotent."""
        self._closed.set()
        call = self._call
        if call is not None:
            call.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchItem:
        while not self._closed.is_set():
            try:
                message = self._receive()
            except FramepoolError as error:
                if self._closed.is_set():
                    break
                self._closed.wait(self._resumption.wait_s(error))
                continue
            if message is None:
                break
            self._resumption.received(message)
            if message.item is not None:
                return message.item
        raise StopIteration

    def _receive(self) -> verbs.Watched | None:
        """The next message, over a new call where there is none; None where the server ended the watch."""
        try:
            if self._call is None:
                self._call = self._start(self._query, self._resumption.cursor)
                if self._closed.is_set():  # closed while it began
                    self._call.cancel()
            return verbs.watched(next(self._call))
        except StopIteration:
            return None
        except grpc.RpcError as failure:
            self._call = None
            raise error_of(failure, self._server) from None
        except FramepoolError:
            self._call = None
            raise
