"""The generated code is what the .proto files give, and its names are those of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

import framepool.proto
from framepool.proto import detections_pb2, engine_pb2, generate, models_pb2, streams_pb2


def test_generated_code_is_current() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools (extra dev) is not installed")
    assert generate.stale(Path(framepool.proto.__file__).parent) == []


def test_a_changed_proto_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools (extra dev) is not installed")
    for source in generate.sources(Path(framepool.proto.__file__).parent):
        (tmp_path / source.name).write_text(source.read_text())
    assert "streams_pb2.py" in generate.stale(tmp_path)
    generated = generate.generate(tmp_path, tmp_path / "out")
    for made in generated:
        (tmp_path / made.name).write_bytes(made.read_bytes())
    assert generate.stale(tmp_path) == []
    changed = tmp_path / "streams.proto"
    changed.write_text(changed.read_text().replace("string codec = 29", "string codec_name = 29"))
    (tmp_path / "old_pb2.py").write_text("")
    assert generate.stale(tmp_path) == ["old_pb2.py", "streams_pb2.py", "streams_pb2.pyi"]


def test_every_number_says_its_unit_and_every_field_of_a_service_is_documented() -> None:
    """A field that holds a quantity carries its unit in its name or its comment."""
    for source in generate.sources(Path(framepool.proto.__file__).parent):
        lines = source.read_text().splitlines()
        for index, line in enumerate(lines):
            if line.strip().startswith(("double ", "float ")):
                named = any(unit in line for unit in ("_ms ", "_us ", "_fps ", "_px ", "_s ", "score ", "error "))
                assert named or lines[index - 1].strip().startswith("//"), f"{source.name}:{index + 1}: {line.strip()}"


def test_services_are_in_the_package() -> None:
    for file, service in (
        (streams_pb2, "StreamService"),
        (detections_pb2, "DetectionService"),
        (models_pb2, "ModelService"),
        (engine_pb2, "EngineService"),
    ):
        assert file.DESCRIPTOR.services_by_name[service].full_name == f"framepool.v1.{service}"
