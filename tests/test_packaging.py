"""What is installed is what the tree holds, and the set-up on a fresh machine asks for it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from framepool.engine.config import EngineConfig, load_config
from framepool.engine.errors import DeviceError
from framepool.engine.runtime.backends import onnxruntime_backend

ROOT = Path(__file__).parent.parent


def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def test_every_package_is_listed() -> None:
    listed = set(project()["tool"]["setuptools"]["packages"])  # type: ignore[index]
    found = {"framepool"}
    for folder in ("engine", "models", "proto", "streams", "benchmarks"):
        for path in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join(("framepool", *path.parent.relative_to(ROOT).parts)))
    assert listed == found


def test_the_bundled_files_are_there() -> None:
    for path in ("models/zoo/nanodet.onnx", "models/zoo/nanodet_int8.onnx", "models/zoo/movenet.onnx",
                 "streams/samples/walkway.mp4", "streams/samples/walkway_truth.json", "NOTICE", "LICENSE"):  # fmt: skip
        assert (ROOT / path).stat().st_size > 0
    assert len(list((ROOT / "licenses").iterdir())) >= 2


def test_ci_runs_what_people_run() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("check", "test", "test-export"):
        assert f"make {target}\n" in script
        assert f"\n{target}:" in makefile


def test_both_runtimes_at_once_are_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_backend.metadata, "version", lambda name: "1.0")
    with pytest.raises(DeviceError, match=r"uninstall both, then install framepool\[gpu\]"):
        onnxruntime_backend.check_single_runtime()


def test_no_runtime_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise onnxruntime_backend.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(onnxruntime_backend.metadata, "version", version)
    with pytest.raises(DeviceError, match=r"install framepool\[cpu\]"):
        onnxruntime_backend.check_single_runtime()


def test_the_example_configuration_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docs/framepool.toml` names every setting with its default, so it can't go stale."""
    for name in ("XDG_STATE_HOME",):
        monkeypatch.delenv(name, raising=False)
    example = load_config(ROOT / "docs" / "framepool.toml").config
    default = EngineConfig()
    for section in EngineConfig.model_fields:
        if section != "devices":
            assert getattr(example, section) == getattr(default, section), section
    with (ROOT / "docs" / "framepool.toml").open("rb") as file:
        written = tomllib.load(file)
    optional = {"event_log", "tls_certificate", "tls_key", "state_dir"}
    for section, info in EngineConfig.model_fields.items():
        if section != "devices":
            keys = set(info.annotation.model_fields)  # type: ignore[union-attr]
            assert keys - optional <= set(written[section]), section
