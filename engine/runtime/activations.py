"""Activation slots: where the tensors of a cut lie between two stage workers. Owned by the engine's data plane.

A pool per (model, cut, batch); it grows by whole arenas as batches overlap and is closed when no plan uses the cut
any more and the last slot is back. A slot is held by whoever may still write or read it: the batch whose hop writes it
and, between two dispatches, every frame whose activations lie in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from framepool.engine.runtime.arena import Arena, ArenaSpec
from framepool.engine.runtime.messages import ArenaRef
from framepool.engine.runtime.slots import Lease, SlotBook

CHUNK_SLOTS = 8
"""Slots that a pool grows by."""


@dataclass(slots=True)
class _Chunk:
    arena: Arena
    ref: ArenaRef
    book: SlotBook


class ActivationSlot:
    """One leased slot with the number of its holders; `drop` by the last of them gives it back."""

    __slots__ = ("_chunk", "_holders", "_lease", "_pool", "rows")

    def __init__(self, pool: ActivationPool, chunk: _Chunk, lease: Lease, rows: int) -> None:
        self._pool = pool
        self._chunk = chunk
        self._lease = lease
        self._holders = 1
        self.rows = rows

    @property
    def arena(self) -> ArenaRef:
        return self._chunk.ref

    @property
    def slot(self) -> int:
        return self._lease.slot

    @property
    def generation(self) -> int:
        return self._lease.generation

    def hold(self) -> None:
        self._holders += 1

    def drop(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._chunk.book.release(self._lease)
            self._pool.returned()


class ActivationPool:
    """Slots of `slot_bytes` for one cut. `name_arena` yields a fresh arena name, `on_gone` hears of removed ones."""

    def __init__(
        self, slot_bytes: int, max_slots: int, name_arena: Callable[[], str], on_gone: Callable[[str], None]
    ) -> None:
        self._slot_bytes = slot_bytes
        self._max_slots = max_slots
        self._name_arena = name_arena
        self._on_gone = on_gone
        self._chunks: list[_Chunk] = []
        self._leased = 0
        self._closing = False

    @property
    def capacity(self) -> int:
        return sum(chunk.book.capacity for chunk in self._chunks)

    def grow(self) -> bool:
        """Adds an arena; False at the pool's bound. Raises DeviceError when shared memory is full."""
        slots = min(CHUNK_SLOTS, self._max_slots - self.capacity)
        if slots <= 0:
            return False
        spec = ArenaSpec(self._name_arena(), slots, self._slot_bytes)
        arena = Arena.create(spec)
        self._chunks.append(_Chunk(arena, ArenaRef(spec.name, slots, spec.slot_bytes), SlotBook(slots)))
        return True

    def lease(self, rows: int) -> ActivationSlot | None:
        """A slot for a batch of `rows`, held once; None when the pool is at its bound."""
        while True:
            for chunk in self._chunks:
                lease = chunk.book.lease()
                if lease is not None:
                    self._leased += 1
                    return ActivationSlot(self, chunk, lease, rows)
            if not self.grow():
                return None

    def returned(self) -> None:
        """A slot came back."""
        self._leased -= 1
        if self._closing and not self._leased:
            self._unlink()

    def close(self) -> None:
        """Removes the arenas as soon as no slot is in use."""
        self._closing = True
        if not self._leased:
            self._unlink()

    def _unlink(self) -> None:
        for chunk in self._chunks:
            chunk.arena.unlink()
            self._on_gone(chunk.ref.name)
        self._chunks = []
