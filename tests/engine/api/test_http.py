"""The metrics port: what is scraped is what the engine says now."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from fake_control import FakeControl
from prometheus_client.parser import text_string_to_metric_families

from framepool.engine.api.errors import ServerStartError
from framepool.engine.api.http import MetricsServer
from framepool.engine.control import StreamConfig
from framepool.engine.errors import EngineStoppedError


@pytest.fixture
def port(control: FakeControl) -> Iterator[int]:
    server = MetricsServer(control, port=0, max_requests=2)
    yield server.start()
    server.stop()
    server.stop()


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, text = fetch(port, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_f17_series_of_a_removed_stream_disappear(control: FakeControl, port: int) -> None:
    """F17: metrics follow the streams; what is gone leaves no series behind."""
    secret = StreamConfig("gate", "rtsp://cam/x", "nanodet", 150.0, 10.0, username="u", password="s3cret")
    control.register_stream(secret)
    found = samples(port)
    gate = (("model", "nanodet"), ("stream", "gate"))
    assert found["framepool_stream_frames_ingested_total", gate] == 10
    assert found["framepool_stream_frames_dropped_total", (gate[0], ("reason", "stale"), gate[1])] == 2
    assert found["framepool_stream_attainment_ratio", gate] == 0.995
    assert found["framepool_all_frames_in_time_total", ()] == 6
    assert found["framepool_worker_restarts_total", ()] == 2
    total = (gate[0], ("part", "total"), ("quantile", "0.99"), gate[1])
    assert found["framepool_stream_latency_milliseconds", total] == 61.25
    assert not any("s3cret" in str(key) or "cam" in str(key) for key in found)
    control.delete_stream("gate")
    assert not any("gate" in str(key) for key in samples(port))


def test_health_and_unknown_paths(control: FakeControl, port: int) -> None:
    assert fetch(port, "/healthz") == (200, "ok\n")
    assert fetch(port, "/etc/passwd")[0] == 404
    control.raises["stats"] = EngineStoppedError("the engine is stopping")
    assert fetch(port, "/healthz") == (503, "the engine is stopping\n")
    control.raises["stats"] = RuntimeError("rtsp://u:s3cret@cam")
    status, text = fetch(port, "/metrics")
    assert status == 503
    assert "incident" in text
    assert "s3cret" not in text


def test_requests_beyond_the_bound_are_refused(control: FakeControl, port: int) -> None:
    control.holds["stats"] = threading.Event()
    waiting = [threading.Thread(target=fetch, args=(port, "/healthz")) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while control.calls.count("stats") < 2:
        pass
    assert fetch(port, "/healthz")[0] == 503
    control.holds["stats"].set()
    for thread in waiting:
        thread.join(10)
    assert fetch(port, "/healthz")[0] == 200


def test_a_taken_port_is_an_error(control: FakeControl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ServerStartError, match="metrics can't listen") as raised:
            MetricsServer(control, port=taken.getsockname()[1]).start()
        assert raised.value.field == "api.http_port"
