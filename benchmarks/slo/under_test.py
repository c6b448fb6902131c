"""The engine that is measured: one of the harness's own, made from a few options, or one that runs elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framepool.benchmarks import MeasurementError
from framepool.benchmarks.own_engine import own_engine
from framepool.engine.cli.models import model_name
from framepool.engine.client import Client, ModelSource
from framepool.engine.config import load_config

PLANS: Mapping[str, Mapping[str, Any]] = {
    "np": {"max_stages": 1},
    "ppipe": {"restrict_sequences": True},
    "framepool": {},
}
"""Planner settings by what --plan calls them: whole models only, PPipe's templates, all."""

_DEVICE = re.compile(
    r"(?:(?P<count>\d+)\*)?(?:emulated:(?P<emulates>[a-z0-9._-]+?)(?::x(?P<scale>[\d.]+))?"
    r"|(?P<backend>onnxruntime|openvino)-(?P<precision>fp32|bf16|fp16|int8))(?:@(?P<cores>[\d+-]+))?"
)


@dataclass(frozen=True, slots=True)
class Model:
    """What is measured: a model that the engine has, or an ONNX file that it is given under `name`."""

    name: str
    path: Path | None

    @classmethod
    def of(cls, text: str) -> Model:
        """From a name or a path that ends in .onnx. Raises MeasurementError where there is no such file."""
        if not text.endswith(".onnx"):
            return cls(text, None)
        path = Path(text)
        if not path.is_file():
            raise MeasurementError(f"model {text}: there is no such file")
        return cls(model_name(path.stem), path)


@dataclass(frozen=True, slots=True)
class UnderTest:
    """A client of the engine, and its process where that is on this machine."""

    client: Client
    pid: int | None


def device_sections(texts: Sequence[str]) -> list[dict[str, Any]]:
    """``[[devices]]`` from texts like ``openvino-bf16@0``, ``onnxruntime-fp32@2-5``, ``50*emulated:openvino-bf16:x2``.

    An emulated class is named after what it emulates and its scale. Raises MeasurementError naming the text.
    """
    sections: list[dict[str, Any]] = []
    for text in texts:
        match = _DEVICE.fullmatch(text)
        if match is None:
            raise MeasurementError(
                f"device {text!r} is not understood; write BACKEND-PRECISION@CORES (openvino-bf16@0, "
                "onnxruntime-fp32@2-5) or COUNT*emulated:CLASS:xSCALE"
            )
        section: dict[str, Any]
        if match["emulates"]:
            scale = float(match["scale"] or 1.0)
            section = {
                "class": f"emulated-{match['emulates']}-x{scale:g}",
                "backend": "emulated",
                "emulates": match["emulates"],
                "scale": scale,
                "shares": [1],
            }
        else:
            name = f"{match['backend']}-{match['precision']}"
            section = {"class": name, "backend": match["backend"], "precision": match["precision"]}
        if match["count"]:
            section["count"] = int(match["count"])
        if match["cores"]:
            section["cores"] = _cores(match["cores"], text)
        sections.append(section)
    return sections


def _cores(text: str, device: str) -> list[int]:
    cores: list[int] = []
    for part in text.split("+"):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise MeasurementError(f"device {device!r}: cores are written 0, 0-3 or 0+2")
        cores += range(int(first), int(last or first) + 1)
    return cores


def own_settings(
    *,
    policy: str,
    plan: str,
    devices: Sequence[str],
    base: Path | None,
    source: str,
    slo_margin: float | None,
    event_log: Path | None = None,
) -> dict[str, Any]:
    """Sections for an engine of the harness's own: those of the file `base`, with what the options say on top."""
    settings: dict[str, Any] = load_config(base).from_file if base is not None else {}
    planner = {**settings.get("planner", {}), **PLANS[plan], "admit_all": True}
    if slo_margin is not None:
        planner["slo_margin"] = slo_margin
    settings = {**settings, "planner": planner}
    if policy:
        settings["scheduler"] = {**settings.get("scheduler", {}), "policy": policy}
    if event_log is not None:
        settings["scheduler"] = {**settings.get("scheduler", {}), "event_log": str(event_log)}
    if devices:
        settings["devices"] = device_sections(devices)
    if "://" not in source:
        folder = str(Path(source).resolve().parent)
        sources = settings.get("sources", {})
        settings["sources"] = {**sources, "file_roots": [*sources.get("file_roots", ()), folder]}
    return settings


@contextmanager
def under_test(settings: Mapping[str, Any], target: str, model: Model, folder: Path) -> Iterator[UnderTest]:
    """The engine at `target` ("host:port"), or, where that is "", one with `settings` and its state in `folder`; its
    model measured."""
    if target:
        with Client(target) as client:
            yield _ready(UnderTest(client, None), model)
        return
    with own_engine(settings, folder) as engine, Client(engine.address) as client:
        yield _ready(UnderTest(client, engine.pid), model)


def _ready(engine: UnderTest, model: Model) -> UnderTest:
    if model.path is not None:
        engine.client.add_model(ModelSource(model.name, model.path, replace=True))
    for _ in engine.client.profile(model.name):
        pass
    return engine
