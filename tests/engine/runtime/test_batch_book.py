"""Open batches: whatever is heard of their hops, in whatever order, every slot comes back once and nobody waits on."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.runtime import batch_book
from framepool.engine.runtime.activations import ActivationPool
from framepool.engine.runtime.arena import shared_memory_dir
from framepool.engine.runtime.batch_book import EXPIRY_NS, BatchBook
from framepool.engine.runtime.feeds import WorkerLink
from framepool.engine.runtime.latency import RecentSums
from framepool.engine.runtime.messages import ArenaRef
from framepool.engine.runtime.slots import Lease
from framepool.engine.scheduling.commands import Dispatch, Hop

STAGES = 3
PIPELINE: Any = SimpleNamespace(id="p", stages=range(STAGES))


class Rig:
    """A book over three stages with a pool of four slots after each but the last."""

    def __init__(self) -> None:
        self.prefix = f"framepool-test-{uuid.uuid4().hex[:8]}"
        names = iter(f"{self.prefix}-{n}" for n in range(100))
        self.workers = {f"w{s}": WorkerLink(f"w{s}", f"w{s}.1", f"/run/{s}", RecentSums(1, 0)) for s in range(STAGES)}
        self.released: list[int] = []
        self.book = BatchBook(self.workers, lambda feed: self.released.append(feed.id))
        self.pools = {
            ("p", s): ActivationPool(64, 4, lambda: next(names), lambda name: None) for s in range(STAGES - 1)
        }
        self.feed: Any = SimpleNamespace(id=5, users=0, ref=ArenaRef("frames", 8, 10))

    def send(self, batch_id: int, frames: int = 2) -> Any:
        live: list[Any] = [
            SimpleNamespace(id=100 * batch_id + i, feed=self.feed, lease=Lease(i, i + 1), transform=(), activation=None,
                            activation_row=0)
            for i in range(frames)
        ]  # fmt: skip
        hops = tuple(Hop(s, f"w{s}", 10 * s, 10 * s, 10 * s + 5, 10 * s + 10) for s in range(STAGES))
        command = Dispatch(batch_id, "p", tuple(f.id for f in live), hops)
        return self.book.open(command, PIPELINE, live, self.pools, 0)

    def leased(self) -> list[int]:
        return [sum(chunk.book.leased for chunk in pool._chunks) for pool in self.pools.values()]

    def close(self) -> None:
        for pool in self.pools.values():
            pool.close()
        assert not list(shared_memory_dir().glob(f"{self.prefix}*"))


def test_an_order_names_every_hop_and_the_slot_it_writes() -> None:
    rig = Rig()
    order = rig.send(1)
    assert [hop.worker_id for hop in order.hops] == ["w0", "w1", "w2"]
    assert [hop.output_arena is None for hop in order.hops] == [False, False, True]
    assert [frame.frame_id for frame in order.frames] == [100, 101]
    assert all(set(link.waiting) == {1} for link in rig.workers.values())
    for hop in range(STAGES):
        rig.book.settle(1, hop, ended=False)
    assert rig.released == [5, 5]
    rig.close()


def test_without_room_nothing_is_booked() -> None:
    rig = Rig()
    orders = [rig.send(n) for n in range(1, 7)]
    assert [order is not None for order in orders] == [True] * 4 + [False] * 2
    assert len(rig.book) == 4
    assert rig.leased() == [4, 4]
    assert rig.feed.users == 8
    for n in range(1, 5):
        rig.book.settle(n, 0, ended=True)
    assert rig.leased() == [0, 0]
    rig.close()


def test_a_worker_that_is_gone_is_not_sent_to() -> None:
    rig = Rig()
    del rig.workers["w2"]
    assert rig.send(1) is None
    assert rig.leased() == [0, 0]
    rig.close()


events = st.lists(
    st.one_of(
        st.tuples(st.just("settle"), st.integers(1, 3), st.integers(0, STAGES - 1), st.booleans()),
        st.tuples(st.just("refuse"), st.integers(1, 3), st.integers(0, STAGES - 1), st.just(False)),
        st.tuples(st.just("lose"), st.integers(0, STAGES - 1), st.just(0), st.just(False)),
    ),
    max_size=15,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_slots_come_back_once_whatever_is_heard(heard: list[tuple[str, int, int, bool]]) -> None:
    rig = Rig()
    for batch_id in (1, 2, 3):
        assert rig.send(batch_id) is not None
    for kind, first, second, ended in heard:
        match kind:
            case "settle":
                rig.book.settle(first, second, ended=ended)
            case "refuse":
                rig.book.settle_from(first, second)
            case "lose":
                rig.book.worker_gone(f"w{first}")
        assert rig.leased() == [len(rig.book)] * (STAGES - 1)
        assert len(rig.released) == 2 * (3 - len(rig.book))
        for link in rig.workers.values():
            assert all(rig.book.get(batch_id) is not None for batch_id in link.waiting)
    rig.book.expire(10 * STAGES + EXPIRY_NS + 1)
    assert len(rig.book) == 0
    assert rig.leased() == [0, 0]
    assert rig.released == [5] * 6
    assert not any(link.waiting for link in rig.workers.values())
    rig.close()


def test_nothing_expires_while_a_worker_may_still_write() -> None:
    rig = Rig()
    rig.send(1)
    rig.book.worker_gone("w0")
    rig.book.expire(10 * STAGES + EXPIRY_NS)
    assert len(rig.book) == 1
    assert not rig.workers["w1"].waiting
    rig.book.expire(10 * STAGES + EXPIRY_NS + 1)
    assert len(rig.book) == 0
    rig.close()
    assert batch_book.HANG_TIMEOUT_NS < EXPIRY_NS
