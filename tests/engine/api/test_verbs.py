"""Every verb over real gRPC, sync and async: what the engine says arrives as it was said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_control import FakeControl, frame, model_info, placed_plan

from framepool import __version__
from framepool.engine.api.errors import OverloadedError
from framepool.engine.client import AsyncClient, Client
from framepool.engine.client.model_files import CHUNK_BYTES, ModelSource
from framepool.engine.control import DetectionFilter, StreamChanges, StreamConfig, StreamState
from framepool.engine.scheduling.events import ServiceClass

GATE = StreamConfig(
    name="gate",
    source="rtsp://cam.example/1",
    model="nanodet",
    slo_ms=150.0,
    target_fps=12.5,
    username="viewer",
    password="s3cret",
    service_class=ServiceClass.OFFLINE,
    loop=True,
    enabled=False,
    min_score=0.25,
    labels=("person",),
    metadata={"site": "north"},
)


def test_register_passes_the_whole_config_and_shows_no_secret(control: FakeControl, client: Client) -> None:
    info = client.register_stream(GATE)
    assert control.configs == [GATE]
    assert info == control.streams["gate"]
    assert info.config.password == ""
    assert info.config.username == ""
    assert info.state is StreamState.RUNNING


def test_get_list_update_delete(control: FakeControl, client: Client) -> None:
    client.register_stream(GATE)
    assert client.get_stream("gate") == control.streams["gate"]
    assert client.list_streams() == (control.streams["gate"],)
    changes = StreamChanges(slo_ms=99.0, enabled=True, labels=(), metadata={"a": "b"}, password="n3w", loop=False)
    changed = client.update_stream("gate", changes)
    assert control.changes == [changes]
    assert changed.config.slo_ms == 99.0
    assert changed.config.labels == ()
    client.delete_stream("gate")
    assert client.list_streams() == ()


def test_list_follows_pages(control: FakeControl, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("framepool.engine.client.verbs.PAGE_SIZE", 3)
    for index in range(8):
        client.register_stream(StreamConfig(f"s{index}", "a.mp4", "nanodet", 100.0, 5.0))
    assert [info.config.name for info in client.list_streams()] == [f"s{index}" for index in range(8)]
    assert control.calls.count("list_streams") == 3


def test_query_passes_the_filter_and_pages(control: FakeControl, client: Client) -> None:
    control.stored = [frame(cursor) for cursor in range(1, 8)]
    query = DetectionFilter(("gate",), ("person",), 0.5, 1_700_000_000_000_000_001, 1_800_000_000_000_000_002)
    page = client.query_detections(query, page_size=3)
    assert page.frames == tuple(control.stored[:3])
    assert control.queries == [query]
    assert tuple(client.iterate_detections(query, page_size=3)) == tuple(control.stored)


def test_models(control: FakeControl, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    weights = bytes(range(256)) * (CHUNK_BYTES // 100)
    path.write_bytes(weights)
    (tmp_path / "w.bin").write_bytes(b"abc")
    source = ModelSource("mine", path, external_data=("w.bin",), head="yolo", labels=("a", "b"), replace=True)
    added = client.add_model(source)
    upload = control.uploads[0]
    assert (upload.content, upload.external_data) == (weights, {"w.bin": b"abc"})
    assert (upload.name, upload.head, upload.labels, upload.replace) == ("mine", "yolo", ("a", "b"), True)
    assert added == control.models["mine"]
    assert client.get_model("nanodet") == model_info()
    assert [model.name for model in client.list_models()] == ["mine", "nanodet"]
    assert client.model_cuts("nanodet") == control.model_cuts("nanodet")
    client.remove_model("mine")
    assert "mine" not in control.models


def test_engine_verbs(control: FakeControl, client: Client) -> None:
    client.register_stream(GATE)
    assert client.devices() == control.devices()
    assert client.plan() == placed_plan()
    assert client.replan() == placed_plan()
    assert client.stats() == control.stats()
    client.stats(window_s=12.5)
    assert control.stats_window_s == 12.5
    assert client.version() == __version__
    steps = list(client.profile("nanodet", force=True))
    assert [step.done for step in steps] == [1, 2, 3]
    assert steps[-1].what == "nanodet batch 3 force=True"


def test_profile_ends_when_the_client_leaves(control: FakeControl, client: Client) -> None:
    control.profile_steps = 10**9
    steps = client.profile("nanodet")
    assert next(steps).total == 10**9
    steps.close()  # type: ignore[attr-defined]
    control.profile_steps = 1
    while True:  # its next step ends the first one; then there is room for another
        try:
            assert len(list(client.profile("nanodet"))) == 1
            break
        except OverloadedError:
            continue
    assert control.calls.count("profile") == 2


def test_async_client_has_the_same_verbs(control: FakeControl, address: str, tmp_path: Path) -> None:
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert public == {name for name in dir(AsyncClient) if not name.startswith("_")}
    path = tmp_path / "m.onnx"
    path.write_bytes(b"x" * (CHUNK_BYTES + 1))

    async def use() -> None:
        async with AsyncClient(address) as client:
            assert await client.register_stream(GATE) == control.streams["gate"]
            assert await client.get_stream("gate") == control.streams["gate"]
            assert await client.list_streams() == (control.streams["gate"],)
            assert (await client.update_stream("gate", StreamChanges(slo_ms=7.0))).config.slo_ms == 7.0
            control.stored = [frame(cursor) for cursor in range(1, 6)]
            assert [f async for f in client.iterate_detections(page_size=2)] == control.stored
            added = await client.add_model(ModelSource("mine", path, external_data=()))
            assert control.uploads[0].content == path.read_bytes()
            assert added == await client.get_model("mine")
            assert len(await client.list_models()) == 2
            assert len(await client.model_cuts("mine")) == 2
            await client.remove_model("mine")
            assert await client.devices() == control.devices()
            assert await client.plan() == await client.replan() == placed_plan()
            assert await client.stats() == control.stats()
            await client.stats(window_s=1.5)
            assert control.stats_window_s == 1.5
            assert await client.version() == __version__
            assert [step.done async for step in client.profile("nanodet")] == [1, 2, 3]
            watch = client.watch_detections(resume_cursor=3)
            assert [(await anext(watch)).frame, (await anext(watch)).frame] == control.stored[3:]
            await watch.aclose()  # type: ignore[attr-defined]
            await client.delete_stream("gate")

    asyncio.run(use())
    assert control.streams == {}
