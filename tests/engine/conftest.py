"""A real server on loopback over a fake engine, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fake_control import FakeControl

from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import ApiServer
from framepool.engine.client import Client, Connection


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def serve(control: FakeControl) -> Iterator[Callable[..., str]]:
    """Starts servers over `control`; returns their address."""
    servers: list[ApiServer] = []

    def start(**options: object) -> str:
        server = ApiServer(control, ApiOptions(port=0, **options))  # type: ignore[arg-type]
        servers.append(server)
        return f"127.0.0.1:{server.start()}"

    yield start
    for hold in control.holds.values():
        hold.set()
    for server in servers:
        server.stop(0.1)


@pytest.fixture
def address(serve: Callable[..., str]) -> str:
    return serve()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(Connection(address, timeout_s=10)) as opened:
        yield opened
