"""A small HTTP port beside the API: ``/metrics`` for Prometheus and ``/healthz``. On loopback unless told otherwise.

Metrics are made from `Control.stats()` when they are asked for and from nothing else, so a removed stream's series are
gone with it. Labels are names of streams, models and devices, never sources. At most `max_requests` requests are
answered at once; the next get 503.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from framepool.engine.api.errors import ServerStartError
from framepool.engine.api.status import to_status
from framepool.engine.control import Control, DeviceInfo, EngineStats, LatencyBreakdown, StreamCounters, StreamState
from framepool.engine.scheduling.events import DropReason

_REQUEST_TIMEOUT_S = 10.0
_PARTS = ("total", "decode", "queueing", "transfer", "inference", "publish", "overhead")
_log = logging.getLogger(__name__)


class EngineCollector(Collector):
    """Metrics of the engine behind `control`, read at each scrape."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def collect(self) -> Iterable[Metric]:
        stats = self._control.stats()
        yield from _engine_metrics(stats)
        yield from _stream_metrics(stats)
        yield from _device_metrics(self._control.devices())

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: registering must not ask the engine."""
        return ()


def _engine_metrics(stats: EngineStats) -> Iterator[Metric]:
    yield InfoMetricFamily("framepool", "Version and policy", {"version": stats.version, "policy": stats.policy})
    yield GaugeMetricFamily("framepool_uptime_seconds", "Seconds since the engine started", stats.uptime_s)
    yield GaugeMetricFamily("framepool_watchers", "Watchers of detections now", stats.watchers)
    yield GaugeMetricFamily("framepool_store_backlog_frames", "Frames that wait to be stored", stats.store_backlog)
    yield GaugeMetricFamily("framepool_store_ok", "1 while the store keeps up", float(stats.store_state == "ok"))
    yield CounterMetricFamily(
        "framepool_store_dropped_frames", "Frames given up because the store was too slow", stats.store_dropped
    )
    yield CounterMetricFamily("framepool_worker_restarts", "Restarts of workers", stats.worker_restarts)
    yield from _counter_metrics("framepool_all", "over all streams ever", (((), stats.totals),), ())


def _stream_metrics(stats: EngineStats) -> Iterator[Metric]:
    labels = ("stream", "model")
    rows = tuple(((stream.name, stream.model), stream.counters) for stream in stats.streams)
    yield from _counter_metrics("framepool_stream", "of the stream", rows, labels)
    gauges = {
        "attainment_ratio": ("Share of frames published within the SLO, last 10 s", "recent_attainment"),
        "goodput_fps": ("Frames per second published within the SLO, last 10 s", "goodput_fps"),
        "slo_milliseconds": ("SLO", "slo_ms"),
        "target_fps": ("Frames per second asked for", "target_fps"),
    }
    for name, (text, attribute) in gauges.items():
        gauge = GaugeMetricFamily(f"framepool_stream_{name}", text, labels=labels)
        for stream in stats.streams:
            gauge.add_metric((stream.name, stream.model), getattr(stream, attribute))
        yield gauge
    state = GaugeMetricFamily("framepool_stream_state", "1 for the state the stream is in", labels=(*labels, "state"))
    latency = GaugeMetricFamily(
        "framepool_stream_latency_milliseconds", "Latency by part, recent frames", labels=(*labels, "part", "quantile")
    )
    for stream in stats.streams:
        for member in StreamState:
            state.add_metric((stream.name, stream.model, member.value), float(member is stream.state))
        for part, quantile, value_ms in _latency_rows(stream.latency):
            latency.add_metric((stream.name, stream.model, part, quantile), value_ms)
    yield state
    yield latency


def _latency_rows(latency: LatencyBreakdown) -> Iterator[tuple[str, str, float]]:
    for part in _PARTS:
        quantiles = getattr(latency, part)
        if quantiles.count:
            yield part, "0.5", quantiles.p50_ms
            yield part, "0.9", quantiles.p90_ms
            yield part, "0.99", quantiles.p99_ms
            yield part, "1", quantiles.max_ms


def _counter_metrics(
    prefix: str, whose: str, rows: Iterable[tuple[tuple[str, ...], StreamCounters]], labels: tuple[str, ...]
) -> Iterator[Metric]:
    counted = {
        "frames_ingested": ("Frames taken in", "ingested"),
        "frames_completed": ("Frames published", "completed"),
        "frames_in_time": ("Frames published within the SLO", "in_time"),
        "decode_errors": ("Packets or frames that could not be decoded", "decode_errors"),
        "reconnects": ("Times a source was opened again", "reconnects"),
    }
    held = tuple(rows)
    for name, (text, attribute) in counted.items():
        counter = CounterMetricFamily(f"{prefix}_{name}", f"{text}, {whose}", labels=labels)
        for values, counters in held:
            counter.add_metric(values, getattr(counters, attribute))
        yield counter
    dropped = CounterMetricFamily(
        f"{prefix}_frames_dropped", f"Frames dropped by reason, {whose}", labels=(*labels, "reason")
    )
    for values, counters in held:
        for reason in DropReason:
            dropped.add_metric((*values, reason.value), counters.dropped.get(reason, 0))
    yield dropped


def _device_metrics(devices: Iterable[DeviceInfo]) -> Iterator[Metric]:
    labels = ("device", "device_class", "emulated")
    busy = GaugeMetricFamily("framepool_device_utilization_ratio", "Busy share of the last 10 s", labels=labels)
    for device in devices:
        busy.add_metric((device.id, device.device_class, str(device.emulated).lower()), device.utilization)
    yield busy


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, max_requests: int) -> None:
        self.registry = registry
        self.room = threading.BoundedSemaphore(max_requests)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.room.acquire(blocking=False):
            try:
                request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            except OSError:
                _log.debug("a refused client was gone already")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a client of the metrics port broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_TIMEOUT_S
    server: _BoundedServer
    server_version = "framepool"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"try /metrics or /healthz\n")
            return
        try:
            page = generate_latest(self.server.registry)
        except Exception as error:  # the edge of this request: told to the caller, logged where it is a fault
            message = to_status(error).message
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{message}\n".encode())
            return
        if path == "/healthz":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        else:
            self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, page)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("metrics: " + format, *args)


class MetricsServer:
    """Owns the HTTP port. `start` returns the port (`port` 0: the system picks) or raises; `stop` is idempotent."""

    def __init__(self, control: Control, *, host: str = "127.0.0.1", port: int, max_requests: int = 8) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(EngineCollector(control))
        self._host = host
        self._port = port
        self._max_requests = max_requests
        self._server: _BoundedServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        try:
            server = _BoundedServer((self._host, self._port), self._registry, self._max_requests)
        except OSError as error:
            raise ServerStartError(
                f"metrics can't listen on {self._host}:{self._port}: {error.strerror}; set another api.http_port",
                field="api.http_port",
            ) from error
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="framepool-metrics", daemon=True
        )
        self._thread.start()
        return int(server.server_address[1])

    def stop(self, timeout_s: float = 2.0) -> None:
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.shutdown()
        server.server_close()
        thread.join(timeout_s)
