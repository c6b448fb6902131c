"""Backends by name."""

from __future__ import annotations

from importlib import import_module

from framepool.engine.errors import ConfigError
from framepool.engine.runtime.backends.base import Load

BACKENDS = {
    "onnxruntime": "framepool.engine.runtime.backends.onnxruntime_backend",
    "openvino": "framepool.engine.runtime.backends.openvino_backend",
    "emulated": "framepool.engine.runtime.backends.emulated_backend",
}


def backend_loader(name: str) -> Load:
    """The `load` of the backend `name`; its library is imported now. Raises ConfigError for an unknown name."""
    if name not in BACKENDS:
        raise ConfigError(f"backend {name!r} is unknown; use one of {', '.join(BACKENDS)}", field="devices.backend")
    load: Load = import_module(BACKENDS[name]).load
    return load
