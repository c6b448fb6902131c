"""Sources on the network, from real servers on loopback: what they do wrong, and what is made of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import pytest
from media import picture, write_video
from stream_rig import QUICK, Sink, copy_in, play, stream

from framepool.streams import SAMPLES_DIR
from framepool.streams.errors import SourceError, SourceErrorCode
from framepool.streams.probe import probe
from framepool.streams.reports import DecodeState, StreamTask
from framepool.streams.source_url import parse_source
from framepool.streams.worker import DecoderWorker

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def web(answer: Answer) -> Iterator[str]:
    """A web server; the address to put behind ``http://``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):
                answer(self)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def page(status: int, body: bytes = b"<html>log in</html>", kind: str = "text/html", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def mjpeg(frames: int | None, fps: float = 25.0, then: Callable[[], None] = lambda: None) -> Answer:
    """Motion JPEG as cameras send it; `frames` None: for ever."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        request.end_headers()
        index = 0
        while frames is None or index < frames:
            data = cv2.imencode(".jpg", picture(index)[..., ::-1])[1].tobytes()
            request.wfile.write(
                b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(data), data)
            )
            index += 1
            time.sleep(1 / fps)
        then()

    return answer


def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come to hold in time"
        time.sleep(0.01)


def test_a_file_on_a_web_server_is_played_to_its_end_once(tmp_path: Path) -> None:
    body = write_video(tmp_path / "a.mp4", 20, fps=50).read_bytes()
    with web(page(200, body, "video/mp4")) as address:
        sink = play(f"http://{address}/clip.mp4")
    assert sink.levels == list(range(20))
    assert sink.states[-1] is DecodeState.FINISHED


def test_a_camera_of_motion_jpeg_plays_until_it_is_removed() -> None:
    with web(mjpeg(None)) as address, stream(f"http://{address}/video.mjpg", offline=False) as sink:
        until(lambda: len(sink.frames) >= 12)
        assert sink.states == [DecodeState.CONNECTING, DecodeState.RUNNING]
        times = [frame.media_time_ns for frame in sink.frames]
        assert times == sorted(set(times))
        for frame in sink.frames:
            assert frame.capture_ns <= frame.decoded_ns
    assert not sink.drops or {reason for _, reason in sink.drops} == {"overload"}


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [
        (page(404), SourceErrorCode.NOT_FOUND, DecodeState.RECONNECTING),
        (page(401, WWW_Authenticate='Basic realm="cam"'), SourceErrorCode.AUTH, DecodeState.RECONNECTING),
        (page(403), SourceErrorCode.AUTH, DecodeState.RECONNECTING),
        (page(500), SourceErrorCode.NOT_MEDIA, DecodeState.RECONNECTING),
        (page(200), SourceErrorCode.NOT_MEDIA, DecodeState.RECONNECTING),
        (page(200, b"", "video/mp4"), SourceErrorCode.NOT_MEDIA, DecodeState.RECONNECTING),
    ],
    ids=["404", "401", "403", "500", "login page", "nothing"],
)
def test_a3_a5_what_a_server_answers_is_told_by_its_code_without_the_password(
    answer: Answer, code: SourceErrorCode, state: DecodeState
) -> None:
    with web(answer) as address, stream(f"http://viewer:s3cret@{address}/cam", offline=False) as sink:
        until(lambda: sink.reports[-1].state is state)
        report = sink.reports[-1]
        assert report.error_code == code.value
        assert address in report.error
    assert not any("s3cret" in str(report) for report in sink.reports)
    assert sink.frames == []


def test_a3_a_wrong_password_is_not_tried_again_soon() -> None:
    """QUICK waits 50 ms after other errors, a second after this one: cameras lock accounts."""
    asked: list[float] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(time.monotonic())
        page(401, WWW_Authenticate='Basic realm="cam"')(request)

    with web(answer) as address, stream(f"http://u:p@{address}/cam", offline=False) as sink:
        until(lambda: bool(sink.reports) and sink.reports[-1].state is DecodeState.RECONNECTING)
        first = len(asked)
        time.sleep(0.5)
        assert len(asked) == first


def test_a4_nobody_listening_is_tried_again_with_growing_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with stream(f"rtsp://127.0.0.1:{port}/x", offline=False) as sink:
        until(lambda: sum(r.new_reconnects for r in sink.reports) >= 3)
        assert sink.reports[-1].error_code == SourceErrorCode.REFUSED.value
    assert set(sink.states) == {DecodeState.CONNECTING, DecodeState.RECONNECTING}


def test_an_unknown_host_is_unreachable() -> None:
    with stream("http://no-such-host.invalid/x", offline=False) as sink:
        until(lambda: sink.reports[-1].state is DecodeState.RECONNECTING, 15)
        assert sink.reports[-1].error_code == SourceErrorCode.UNREACHABLE.value


@pytest.mark.parametrize("scheme", ["http", "rtsp"])
def test_a1_a_server_that_never_answers_is_given_up_after_its_time(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin_s = time.monotonic()
        with stream(f"{scheme}://127.0.0.1:{mute.getsockname()[1]}/x", offline=False) as sink:
            until(lambda: sink.reports[-1].state is DecodeState.RECONNECTING, 15)
            took_s = time.monotonic() - begin_s
            assert sink.reports[-1].error_code == SourceErrorCode.TIMEOUT.value
    assert 0.5 <= took_s < QUICK.reader.open_s * 5


def test_a2_a_camera_that_goes_quiet_is_stalled_then_asked_again_and_plays_on() -> None:
    quiet = threading.Event()
    asked: list[int] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        if len(asked) == 1:
            mjpeg(10, then=lambda: quiet.wait(20))(request)
        else:
            mjpeg(None)(request)

    try:
        with web(answer) as address, stream(f"http://{address}/cam", offline=False) as sink:
            until(lambda: DecodeState.STALLED in sink.states, 10)
            stalled = next(r for r in sink.reports if r.state is DecodeState.STALLED)
            assert stalled.error_code == SourceErrorCode.TIMEOUT.value
            assert "no frame for" in stalled.error
            before = len(sink.frames)
            until(lambda: len(sink.frames) > before + 5, 15)
            assert sink.states[-1] is DecodeState.RUNNING
            assert len(asked) == 2
            times = [frame.media_time_ns for frame in sink.frames]
            assert times == sorted(set(times))
            assert [f.seq for f in sink.frames] == sorted({f.seq for f in sink.frames})
    finally:
        quiet.set()


def test_a_camera_that_hangs_up_is_asked_again() -> None:
    with web(mjpeg(5)) as address, stream(f"http://{address}/cam", offline=False) as sink:
        until(lambda: sum(r.new_reconnects for r in sink.reports) >= 2)
        assert {r.error_code for r in sink.reports if r.error_code} <= {"ended", "not-media", "timeout"}
    assert len(sink.frames) >= 5


def test_a8_a_camera_that_is_stuck_delays_no_other(tmp_path: Path) -> None:
    """Three mute cameras and a file in one worker: the file's frames come when they are due."""
    made = write_video(tmp_path / "a.mp4", 40, fps=40)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        sink = Sink((48, 64, 3))
        worker = DecoderWorker(sink, QUICK)
        sink.worker = worker
        for number in range(2, 5):
            source = parse_source(f"rtsp://127.0.0.1:{mute.getsockname()[1]}/{number}")
            worker.add(StreamTask(number, f"mute-{number}", source, 100.0, (48, 64, 3), copy_in))
        worker.add(StreamTask(1, "file", parse_source(str(made)), 100.0, (48, 64, 3), copy_in))
        worker.grant(1, range(8))
        until(lambda: any(r.stream_id == 1 and r.state is DecodeState.FINISHED for r in sink.reports))
        late_ms = sorted((f.decoded_ns - f.capture_ns) / 1e6 for f in sink.frames)
        assert worker.stop(10)
    assert len(sink.frames) == 40
    assert late_ms[20] < 50


def test_threads_that_are_stuck_end_with_their_read() -> None:
    before = threading.active_count()
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        stream(f"http://127.0.0.1:{mute.getsockname()[1]}/x", offline=False) as sink,
    ):
        time.sleep(0.1)
        assert sink.worker is not None
        sink.worker.remove(1)
        assert sink.done.wait(QUICK.reader.open_s * 4)
    assert threading.active_count() <= before


def test_a_probe_says_what_a_source_holds(tmp_path: Path) -> None:
    info = probe(parse_source(str(SAMPLES_DIR / "walkway.mp4")), 20)
    assert (info.width_px, info.height_px, info.codec, info.fps) == (768, 576, "h264", 10.0)
    turned = probe(parse_source(str(write_video(tmp_path / "t.mp4", 3, size=(64, 48), rotation_deg=90))), 20)
    assert (turned.width_px, turned.height_px) == (48, 64)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda p: p.write_text("nothing to see\n" * 99), SourceErrorCode.INVALID_MEDIA),
        (lambda p: p.write_bytes(bytes(range(256)) * 40), SourceErrorCode.INVALID_MEDIA),
        (lambda p: p.write_bytes(b"\x00\x00\x00\x18ftypmp42"), SourceErrorCode.INVALID_MEDIA),
    ],
)
def test_a_probe_refuses_what_is_no_video_and_names_it(
    tmp_path: Path, make: Callable[[Path], object], code: SourceErrorCode
) -> None:
    path = tmp_path / "broken.mp4"
    make(path)
    with pytest.raises(SourceError, match=r"broken\.mp4") as raised:
        probe(parse_source(str(path)), 20)
    assert raised.value.code is code


def test_a_probe_of_a_mute_server_ends_in_time_and_shows_no_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin_s = time.monotonic()
        with pytest.raises(SourceError) as raised:
            probe(parse_source(f"rtsp://u:s3cret@127.0.0.1:{mute.getsockname()[1]}/x"), 1.0)
        assert time.monotonic() - begin_s < 10
    assert raised.value.code is SourceErrorCode.TIMEOUT
    assert "s3cret" not in str(raised.value)
