"""The command line as its users call it, against a real server over a fake engine."""

from __future__ import annotations

import pytest
from cli_rig import Run, run_cli


@pytest.fixture
def run(address: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `framepool <arguments>` with the server's address in the environment."""
    for name in ("FRAMEPOOL_TOKEN", "FRAMEPOOL_TLS_CA", "FRAMEPOOL_STREAM_PASSWORD", "FRAMEPOOL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FRAMEPOOL_SERVER", address)

    return run_cli
