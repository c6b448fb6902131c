"""The gRPC server: one event loop on a thread of its own, the services of framepool.v1, health and reflection.

`start` is ready or raises; `stop` may be called twice and from any thread. Serves whatever `Control` it is given and
does not own it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from framepool.engine.api.auth import TokenInterceptor
from framepool.engine.api.detection_service import DetectionService
from framepool.engine.api.edge import Edge
from framepool.engine.api.engine_service import EngineService
from framepool.engine.api.errors import ServerStartError
from framepool.engine.api.model_service import ModelService
from framepool.engine.api.options import ApiOptions
from framepool.engine.api.stream_service import StreamService
from framepool.engine.control import Control
from framepool.proto import (
    detections_pb2,
    detections_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
)

SERVICES = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (streams_pb2, "StreamService"),
        (detections_pb2, "DetectionService"),
        (models_pb2, "ModelService"),
        (engine_pb2, "EngineService"),
    )
)
"""Full names of the services, as health and reflection know them."""

_START_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


class ApiServer:
    """Serves `control` as `options` say. One start and one stop in its life."""

    def __init__(self, control: Control, options: ApiOptions) -> None:
        self._control = control
        self._options = options
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quit: asyncio.Event | None = None
        self._health: Any = None
        self._grace_s = 0.0

    def start(self, *, serving: bool = True) -> int:
        """Binds and serves; returns the port. `serving` False: health says NOT_SERVING until `set_serving`.

        ServerStartError where the port is taken or a certificate can't be used.
        """
        with self._lock:
            if self._thread is not None:
                raise RuntimeError("an ApiServer is started once")
            bound: Future[int] = Future()
            thread = threading.Thread(target=self._run, args=(bound, serving), name="framepool-api", daemon=True)
            self._thread = thread
        thread.start()
        port = bound.result(_START_TIMEOUT_S)
        if not self._options.is_loopback and not self._options.auth_token:
            _log.warning("the API listens on %s without a token: whoever reaches it may use it", self._options.host)
        return port

    def set_serving(self, serving: bool) -> None:
        """What health says of every service from now on. From any thread; a no-op when stopped."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._tell_health(serving), loop).result(_START_TIMEOUT_S)

    def stop(self, grace_s: float = 2.0) -> None:
        """Refuses new calls, ends watchers, gives calls under way `grace_s` to end, then cancels them. Idempotent."""
        with self._lock:
            thread, loop, quit_event = self._thread, self._loop, self._quit
            self._grace_s = grace_s
        if thread is None:
            return
        if loop is not None and quit_event is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(quit_event.set)
            except RuntimeError:  # closed since: another stop was first
                _log.debug("the API server was stopped already")
        if thread is not threading.current_thread():
            thread.join(grace_s + _START_TIMEOUT_S)

    def _run(self, bound: Future[int], serving: bool) -> None:
        try:
            asyncio.run(self._serve(bound, serving))
        except Exception as error:
            if bound.done():
                _log.exception("the API server ended unexpectedly")
            else:
                bound.set_exception(error)

    async def _serve(self, bound: Future[int], serving: bool) -> None:
        options = self._options
        self._loop = asyncio.get_running_loop()
        self._quit = asyncio.Event()
        edge = Edge(options)
        detections = DetectionService(self._control, edge)
        server = grpc.aio.server(
            interceptors=(TokenInterceptor(options.auth_token),) if options.auth_token else (),
            options=_channel_options(options),
        )
        streams_pb2_grpc.add_StreamServiceServicer_to_server(StreamService(self._control, edge), server)
        detections_pb2_grpc.add_DetectionServiceServicer_to_server(detections, server)
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(self._control, edge), server)
        engine_pb2_grpc.add_EngineServiceServicer_to_server(EngineService(self._control, edge), server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME), server
        )
        await self._tell_health(serving)
        try:
            port = _bind(server, options)
            await server.start()
            bound.set_result(port)
            await self._quit.wait()
            await self._health.enter_graceful_shutdown()
            detections.stop()
        finally:
            await server.stop(self._grace_s)
            edge.close()

    async def _tell_health(self, serving: bool) -> None:
        kinds = health_pb2.HealthCheckResponse
        status = kinds.SERVING if serving else kinds.NOT_SERVING
        if self._health is not None:
            for service in ("", *SERVICES):
                await self._health.set(service, status)


def _channel_options(options: ApiOptions) -> list[tuple[str, Any]]:
    """Without reuse of ports, a second engine on the same port is told; keepalive ends watchers whose host is gone."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.keepalive_time_ms", round(options.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(options.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
    ]


def _bind(server: Any, options: ApiOptions) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.port}"
    try:
        if options.tls_certificate is not None and options.tls_key is not None:
            pair = (options.tls_key.read_bytes(), options.tls_certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except OSError as error:
        raise ServerStartError(
            f"TLS certificate or key can't be read: {error.strerror} ({error.filename}); see api.tls_certificate",
            field="api.tls_certificate",
        ) from error
    except RuntimeError as error:
        raise _not_bound(address) from error
    if port == 0:
        raise _not_bound(address)
    return int(port)


def _not_bound(address: str) -> ServerStartError:
    return ServerStartError(
        f"the API can't listen on {address}: the port is taken or the address is not this machine's; "
        "stop what listens there or set another api.port",
        field="api.port",
    )
