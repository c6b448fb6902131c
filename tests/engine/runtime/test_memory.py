"""Arenas, slot books, activation pools and their layout: no slot twice, no stale read, nothing left behind."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from framepool.engine.errors import DeviceError
from framepool.engine.runtime.activations import CHUNK_SLOTS, ActivationPool
from framepool.engine.runtime.arena import HEADER_BYTES, Arena, ArenaSpec, shared_memory_dir, sweep_arenas
from framepool.engine.runtime.layout import ALIGN_BYTES, SlotLayout
from framepool.engine.runtime.slots import Lease, SlotBook
from framepool.models.partition import TensorInfo


@pytest.fixture
def prefix() -> Iterator[str]:
    """A name for arenas of this test alone; none may be left."""
    name = f"framepool-test-{uuid.uuid4().hex[:8]}"
    yield name
    left = sorted(path.name for path in shared_memory_dir().glob(f"{name}*"))
    sweep_arenas(name)
    assert left == []


def test_what_one_side_writes_the_other_reads(prefix: str) -> None:
    made = Arena.create(ArenaSpec(prefix, 3, 100))
    try:
        seen = Arena.attach(made.spec)
        for slot in range(3):
            made.stamp(slot, 7 + slot)
            made.payload(slot)[:] = slot + 1
        assert [seen.generation(slot) for slot in range(3)] == [7, 8, 9]
        assert [set(seen.payload(slot).tolist()) for slot in range(3)] == [{1}, {2}, {3}]
        assert len(seen.payload(0)) == 100
    finally:
        made.unlink()


def test_slots_begin_on_cache_lines_and_do_not_overlap() -> None:
    for slot_bytes in (1, 63, 64, 65, 519_168):
        spec = ArenaSpec("x", 4, slot_bytes)
        assert spec.stride_bytes % HEADER_BYTES == 0
        assert HEADER_BYTES + slot_bytes <= spec.stride_bytes < 2 * HEADER_BYTES + slot_bytes
        assert spec.total_bytes == 4 * spec.stride_bytes


def test_a_mapping_outlives_its_name_and_only_the_maker_removes_it(prefix: str) -> None:
    made = Arena.create(ArenaSpec(prefix, 1, 10))
    seen = Arena.attach(made.spec)
    seen.unlink()
    assert made.spec.path.exists()
    made.unlink()
    made.unlink()
    assert not made.spec.path.exists()
    made.payload(0)[:] = 5
    assert seen.payload(0)[9] == 5
    with pytest.raises(FileNotFoundError):
        Arena.attach(made.spec)


def test_an_arena_is_private_and_a_name_is_used_once(prefix: str) -> None:
    made = Arena.create(ArenaSpec(prefix, 1, 10))
    try:
        assert made.spec.path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            Arena.create(made.spec)
    finally:
        made.unlink()


def test_full_shared_memory_is_an_error_that_says_how_much_was_wanted(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceError, match=r"no room for 1536 bytes \(3 slots of 400\).*register fewer streams"):
        Arena.create(ArenaSpec(prefix, 3, 400))


def test_a_sweep_removes_only_its_own(prefix: str) -> None:
    mine = Arena.create(ArenaSpec(f"{prefix}-a-1", 1, 10))
    other = Arena.create(ArenaSpec(f"{prefix}-b-1", 1, 10))
    assert sweep_arenas(f"{prefix}-a") == 1
    assert not mine.spec.path.exists()
    assert other.spec.path.exists()
    other.unlink()


class Books(RuleBasedStateMachine):
    """Leases and releases in any order, stale and foreign ones among them, against a model of what is leased."""

    def __init__(self) -> None:
        super().__init__()
        self.book = SlotBook(4)
        self.held: dict[int, Lease] = {}
        self.past: list[Lease] = []

    @rule()
    def lease(self) -> None:
        got = self.book.lease()
        if len(self.held) == 4:
            assert got is None
            return
        assert got is not None
        assert got.slot not in self.held
        assert all(got.generation > old.generation for old in self.past)
        self.held[got.slot] = got
        self.past.append(got)

    @rule(pick=st.integers(0, 3))
    def release(self, pick: int) -> None:
        lease = self.held.pop(pick, None)
        if lease is not None:
            assert self.book.release(lease)

    @rule(pick=st.integers(0, 100))
    def release_one_that_is_over(self, pick: int) -> None:
        over = [lease for lease in self.past if self.held.get(lease.slot) != lease]
        if over:
            assert not self.book.release(over[pick % len(over)])

    @invariant()
    def every_slot_is_free_or_leased(self) -> None:
        assert (self.book.free, self.book.leased) == (4 - len(self.held), len(self.held))


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestBooks = Books.TestCase


def pool_of(prefix: str, most: int, gone: list[str]) -> ActivationPool:
    names = iter(f"{prefix}-{n}" for n in range(100))
    return ActivationPool(1000, most, lambda: next(names), gone.append)


def test_a_pool_grows_as_it_must_up_to_its_bound(prefix: str) -> None:
    gone: list[str] = []
    pool = pool_of(prefix, CHUNK_SLOTS + 3, gone)
    slots = [pool.lease(1) for _ in range(CHUNK_SLOTS + 3)]
    assert all(slots)
    assert pool.capacity == CHUNK_SLOTS + 3
    assert pool.lease(1) is None
    places = {(slot.arena.name, slot.slot) for slot in slots if slot is not None}
    assert len(places) == CHUNK_SLOTS + 3
    for slot in slots:
        assert slot is not None
        slot.drop()
    pool.close()
    assert gone == [f"{prefix}-0", f"{prefix}-1"]


def test_a_slot_comes_back_with_its_last_holder_and_a_closed_pool_goes_with_its_last_slot(prefix: str) -> None:
    gone: list[str] = []
    pool = pool_of(prefix, 1, gone)
    slot = pool.lease(2)
    assert slot is not None
    slot.hold()
    slot.drop()
    assert pool.lease(1) is None
    pool.close()
    assert gone == []
    slot.drop()
    assert gone == [f"{prefix}-0"]


DTYPES = ("float32", "float16", "uint8", "int64")
tensors = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 7), min_size=0, max_size=3)), min_size=1, max_size=5
)


@given(tensors, st.integers(1, 5))
def test_tensors_of_a_cut_lie_apart_aligned_and_keep_their_values(
    given_tensors: list[tuple[str, list[int]]], rows: int
) -> None:
    infos = [TensorInfo(f"t{9 - i}", dtype, tuple(shape)) for i, (dtype, shape) in enumerate(given_tensors)]
    layout = SlotLayout.of(infos, rows)
    assert layout == SlotLayout.of(infos[::-1], rows)
    payload = np.zeros(layout.total_bytes, np.uint8)
    views = layout.views(payload)
    assert all(offset % ALIGN_BYTES == 0 for offset in layout.offsets)
    rng = np.random.default_rng(0)
    wrote = {}
    for info in infos:
        view = views[info.name]
        assert view.shape == (rows, *info.shape)
        assert view.dtype == info.dtype
        wrote[info.name] = rng.integers(0, 100, view.shape).astype(info.dtype)
        view[...] = wrote[info.name]
    again = layout.views(payload)
    assert all(np.array_equal(again[name], value) for name, value in wrote.items())


def test_a_tensor_of_unknown_shape_can_not_cross() -> None:
    with pytest.raises(ValueError, match="boxes has no static shape"):
        SlotLayout.of([TensorInfo("boxes", "float32", (None, 4))], 1)
