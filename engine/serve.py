"""``framepool serve``: configuration, logging, the engine and its API in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import structlog

from framepool.engine.api.http import MetricsServer
from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import ApiServer
from framepool.engine.config import ApiSection, EngineConfig, load_config
from framepool.engine.core import Engine
from framepool.engine.logs import configure_logging

log = structlog.get_logger("framepool.serve")


def run(config_path: Path | None) -> None:
    """Serves until a signal. Raises FramepoolError where it could not start."""
    config = load_config(config_path).config
    configure_logging(config.engine.log_level, config.engine.log_format)
    serve(config, _signals())


def serve(config: EngineConfig, stop: threading.Event) -> None:
    """Serves `config` until `stop` is set. Raises FramepoolError where it can't start."""
    engine = Engine(config)
    api = ApiServer(engine, api_options(config.api))
    metrics = (
        MetricsServer(engine, host=config.api.host, port=config.api.http_port) if config.api.http_port >= 0 else None
    )
    try:
        port = api.start(serving=False)
        engine.start()
        http_port = metrics.start() if metrics is not None else None
        api.set_serving(True)
        log.info(
            "serving", host=config.api.host, port=port, http_port=http_port, state_dir=str(config.engine.state_dir)
        )
        while not stop.wait(1.0):
            pass
        log.info("stopping: frames under way finish first", at_most_s=config.engine.drain_s)
    finally:
        api.stop()
        if metrics is not None:
            metrics.stop()
        engine.stop()
        log.info("stopped")


def api_options(section: ApiSection) -> ApiOptions:
    return ApiOptions(
        host=section.host,
        port=section.port,
        max_watchers=section.max_watchers,
        auth_token=section.auth_token.get_secret_value(),
        tls_certificate=section.tls_certificate,
        tls_key=section.tls_key,
    )


def _signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
