"""Bad input, over gRPC: a precise error that names the field or file and the cure, and an engine that runs on."""

from __future__ import annotations

import math
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import engine_rig as rig
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from framepool import FramepoolError
from framepool.engine.client import Client
from framepool.engine.client.model_files import ModelSource
from framepool.engine.control import DetectionFilter, StreamState
from framepool.engine.errors import AlreadyExistsError, CapacityError, InvalidArgumentError
from framepool.models.errors import ModelInvalidError, ModelNotFoundError, ModelUnsupportedError
from framepool.streams.errors import SourceError, SourceErrorCode


@pytest.fixture(scope="module")
def served(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.ServedEngine]:
    state = rig.copy_state(measured, tmp_path_factory.mktemp("bad") / "state")
    roots = [str(rig.SAMPLES_DIR), str(tmp_path_factory.getbasetemp())]
    with rig.served(state, rig.onnxruntime_pair(), sources={"file_roots": roots}) as running:
        running.client.register_stream(rig.clip_stream("good", loop=True))
        yield running


@pytest.fixture
def nothing_left() -> None:
    """One engine serves this whole module."""


@pytest.fixture
def client(served: rig.ServedEngine) -> Iterator[Client]:
    """The engine's client; after each test the engine still serves the good stream."""
    before = served.client.stats().totals.completed
    yield served.client
    assert served.process.poll() is None
    assert rig.until(lambda: served.client.stats().totals.completed > before, 10)


def media(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.mp4"
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("this is no video\n" * 100)
        case "cut-off":
            path.write_bytes(rig.CLIP.read_bytes()[:4000])
        case "audio-only":
            path = folder / "audio.wav"
            with wave.open(str(path), "wb") as sound:
                sound.setparams((1, 2, 8000, 8000, "NONE", ""))
                sound.writeframes(b"\0\0" * 8000)
        case "unknown-codec":
            made = folder / "made.avi"
            write_video(made, "mpeg4")
            path = folder / "unknown.avi"
            path.write_bytes(made.read_bytes().replace(b"FMP4", b"ZZZQ"))
    return path


def write_video(path: Path, codec: str) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(5):
            for packet in stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), "rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("empty", SourceErrorCode.INVALID_MEDIA, "empty"),
        ("text", SourceErrorCode.INVALID_MEDIA, "text.mp4"),
        ("cut-off", SourceErrorCode.INVALID_MEDIA, "cut-off.mp4"),
        ("audio-only", SourceErrorCode.NO_VIDEO, "no video"),
        ("unknown-codec", SourceErrorCode.UNSUPPORTED_CODEC, "codec"),
    ],
)
def test_files_that_are_no_video(client: Client, tmp_path: Path, kind: str, code: SourceErrorCode, says: str) -> None:
    """B4, B5, B6: refused at registration, the file named."""
    source = media(tmp_path, kind)
    with pytest.raises(SourceError) as refused:
        client.register_stream(rig.clip_stream("bad", source=str(source)))
    assert refused.value.code is code, refused.value
    assert says in str(refused.value)
    assert source.name in str(refused.value)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("missing.mp4", SourceErrorCode.NOT_FOUND),
        ("concat:a.ts|b.ts", SourceErrorCode.FORBIDDEN_SOURCE),
        ("pipe:0", SourceErrorCode.FORBIDDEN_SOURCE),
        ("-i", SourceErrorCode.INVALID_SOURCE),
        ("/etc/hostname", SourceErrorCode.FORBIDDEN_SOURCE),
        ("rtsp://", SourceErrorCode.INVALID_SOURCE),
        ("http://a:99999/", SourceErrorCode.INVALID_SOURCE),
    ],
)
def test_sources_that_mean_nothing_or_may_not_be_read(client: Client, source: str, code: SourceErrorCode) -> None:
    """F9: only known schemes, only files below the roots, nothing that looks like an option."""
    with pytest.raises(SourceError) as refused:
        client.register_stream(rig.clip_stream("bad", source=source))
    assert refused.value.code is code, refused.value


def test_a4_an_unreachable_host_is_registered_and_says_why(client: Client) -> None:
    """A4: a camera that is away now may come; the others run on meanwhile."""
    info = client.register_stream(rig.clip_stream("away", source="rtsp://127.0.0.1:1/cam"))
    assert info.state in (StreamState.CONNECTING, StreamState.RECONNECTING)
    assert rig.until(lambda: client.get_stream("away").state is StreamState.RECONNECTING, 15)
    info = client.get_stream("away")
    assert info.last_error_code == SourceErrorCode.REFUSED
    assert "127.0.0.1:1" in info.last_error
    client.delete_stream("away")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slo_ms": 0.0}, "slo"),
        ({"slo_ms": -5.0}, "slo"),
        ({"target_fps": 0.0}, "target_fps"),
        ({"target_fps": -1.0}, "target_fps"),
        ({"target_fps": 1e9}, "target_fps"),
        ({"target_fps": math.nan}, "target_fps"),
        ({"name": "a/b"}, "stream_id"),
        ({"name": "x" * 10_000}, "stream_id"),
        ({"name": ""}, "stream_id"),
        ({"min_score": 1.5}, "min_score"),
        ({"labels": ("dragon",)}, "labels"),
    ],
)
def test_values_that_can_never_be_right(client: Client, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        client.register_stream(rig.clip_stream(**{"name": "bad", **changes}))
    assert field in f"{refused.value.field} {refused.value}"
    assert len(str(refused.value)) < 400


def test_an_slo_below_the_fastest_model_is_refused_with_what_would_fit(client: Client) -> None:
    with pytest.raises(CapacityError) as refused:
        client.register_stream(rig.clip_stream("bad", slo_ms=2.0))
    assert refused.value.field.endswith("slo_ms")
    assert refused.value.best_slo_ms is not None
    assert 2.0 < refused.value.best_slo_ms <= 250.0
    fits = client.register_stream(rig.clip_stream("fits", slo_ms=refused.value.best_slo_ms))
    client.delete_stream(fits.config.name)


def test_more_fps_than_the_devices_have_is_refused_with_what_would_fit(client: Client) -> None:
    with pytest.raises(CapacityError) as refused:
        client.register_stream(rig.clip_stream("bad", target_fps=900.0))
    assert refused.value.best_fps is not None
    assert 10.0 < refused.value.best_fps < 900.0
    assert f"{refused.value.best_fps:g} fps" in str(refused.value)


def test_a_name_that_is_taken_and_a_model_that_is_not_there(client: Client) -> None:
    with pytest.raises(AlreadyExistsError, match="good"):
        client.register_stream(rig.clip_stream("good"))
    with pytest.raises(ModelNotFoundError, match="nanodet"):
        client.register_stream(rig.clip_stream("bad", model="yolo99"))


def test_a_page_token_from_elsewhere(client: Client) -> None:
    assert rig.until(lambda: bool(client.query_detections(DetectionFilter(), page_size=1).next_page_token), 10)
    token = client.query_detections(DetectionFilter(), page_size=1).next_page_token
    other = DetectionFilter(labels=("car",))
    for wrong, query in (("garbage", DetectionFilter()), (token, other), (token[:-2] + "AA", DetectionFilter())):
        with pytest.raises(InvalidArgumentError) as refused:
            client.query_detections(query, page_size=1, page_token=wrong)
        assert refused.value.field == "page_token"


def onnx_file(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.onnx"
    shape: list[int | str] = ["n", 3, 8, 8]
    node = helper.make_node("Relu", ["x"], ["y"])
    opset, domains = 17, []
    match kind:
        case "truncated":
            whole = (Path(rig.SAMPLES_DIR).parent.parent / "models" / "zoo" / "movenet.onnx").read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            return path
        case "text":
            path.write_text("no model")
            return path
        case "empty":
            path.write_bytes(b"")
            return path
        case "opset":
            opset = 99
        case "rank":
            shape = ["n", 3]
        case "custom-op":
            node = helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")
            domains = [helper.make_opsetid("acme", 1)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *domains], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("truncated", ModelInvalidError, "bad.onnx"),
        ("text", ModelInvalidError, "bad.onnx"),
        ("empty", InvalidArgumentError, "empty"),
        ("opset", ModelUnsupportedError, "99"),
        ("rank", ModelInvalidError, "2 axes"),
        ("custom-op", ModelUnsupportedError, "acme:Frobnicate"),
    ],
)
def test_onnx_files_that_can_not_be_served(
    client: Client, tmp_path: Path, kind: str, error: type[FramepoolError], says: str
) -> None:
    """D4, D5: refused with the reason, nothing of it stays."""
    before = {model.name for model in client.list_models()}
    with pytest.raises(error) as refused:
        client.add_model(ModelSource("bad", onnx_file(tmp_path, kind)))
    assert says in str(refused.value)
    assert {model.name for model in client.list_models()} == before


def test_nothing_of_a_refused_model_stays(served: rig.ServedEngine) -> None:
    models = served.state_dir / "models"
    assert not list(models.glob(".partial*"))
    assert sorted(path.name for path in models.iterdir()) == ["movenet", "nanodet", "nanodet_int8"]
