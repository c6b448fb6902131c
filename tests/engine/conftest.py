"""What the engine's tests share: a real server on loopback over a fake engine, and small made-up profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from fake_control import FakeControl

from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import ApiServer
from framepool.engine.client import Client, Connection
from framepool.engine.planning.inventory import Device, DeviceClass, Inventory
from framepool.models.profile import BlockProfile, ModelProfile

MakeProfile = Callable[..., ModelProfile]
MakeInventory = Callable[..., Inventory]


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


@pytest.fixture(scope="session")
def make_profile() -> MakeProfile:
    """Profile with blocks of `block_us` per class at batch 1 on a whole device.

    A batch of b takes (1 - gain) * b + gain times as long, a share 1/s takes s ** 0.9 times as long; `seed` adds noise
    of 10 %.
    """

    def make(
        name: str,
        block_us: Mapping[str, list[float]],
        *,
        shares: tuple[int, ...] = (1,),
        max_batch: int = 4,
        gain: float = 0.3,
        edge_bytes: int = 100_000,
        seed: int | None = None,
    ) -> ModelProfile:
        rng = np.random.default_rng(seed)
        blocks = []
        batches = np.arange(1, max_batch + 1)
        for device_class, times_us in block_us.items():
            base = np.array(times_us, dtype=np.float64)
            for share in shares:
                table = base[:, None] * ((1 - gain) * batches + gain) * share**0.9
                if seed is not None:
                    table = table * rng.uniform(0.9, 1.1, table.shape)
                blocks.append(BlockProfile(name, device_class, share, tuple(batches.tolist()), table))
        n_blocks = len(next(iter(block_us.values())))
        edges = tuple(edge_bytes * (i + 1) for i in range(n_blocks + 1))
        return ModelProfile(name, name, n_blocks, edges, tuple(blocks))

    return make


@pytest.fixture(scope="session")
def make_inventory() -> MakeInventory:
    def make(
        counts: Mapping[str, int],
        *,
        shares: tuple[int, ...] = (1,),
        link_gbps: float | None = None,
        devices_per_link: int = 1,
    ) -> Inventory:
        return Inventory(
            tuple(DeviceClass(n, c, link_gbps, devices_per_link, shares) for n, c in counts.items()),
            tuple(Device(f"{n}-{i}", n, i) for n, c in counts.items() for i in range(c)),
        )

    return make
