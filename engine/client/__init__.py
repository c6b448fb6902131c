"""The Python client: `Client` (sync) and `AsyncClient`, with the engine's verbs, values and errors.

    from framepool.engine.client import Client, DetectionFilter, StreamConfig

    with Client("127.0.0.1:7707") as engine:
        engine.register_stream(StreamConfig(name="gate", source="gate.mp4", model="nanodet", slo_ms=150, target_fps=10))
        for item in engine.watch_detections(DetectionFilter(streams=("gate",))):
            ...

Values are those of `framepool.engine.control`; errors are the leaves the engine raised (`framepool.engine.errors` and
its kin) or those of the way there (`framepool.engine.api.errors`).
"""

from framepool.engine.client.aio import AsyncClient
from framepool.engine.client.connection import Connection
from framepool.engine.client.model_files import ModelSource
from framepool.engine.client.sync import Client
from framepool.engine.control import DetectionFilter, StreamChanges, StreamConfig

__all__ = ["AsyncClient", "Client", "Connection", "DetectionFilter", "ModelSource", "StreamChanges", "StreamConfig"]
