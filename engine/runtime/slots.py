"""Books of free and used slots, kept by the engine alone. No shared memory is touched here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot handed out, with the generation that this use of it is known by."""

    slot: int
    generation: int


class SlotBook:
    """Which slots of one arena are free. Invariant: every slot is free or leased, never both.

    Generations start at 1 and grow with each lease of any slot, so no two leases of an arena are alike.
    """

    def __init__(self, slots: int) -> None:
        self._free: deque[int] = deque(range(slots))
        self._leased: dict[int, int] = {}
        self._next_generation = 1
        self.capacity = slots

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def leased(self) -> int:
        return len(self._leased)

    def lease(self) -> Lease | None:
        """A free slot, the longest unused first, or None when all are leased."""
        if not self._free:
            return None
        slot = self._free.popleft()
        generation = self._next_generation
        self._next_generation += 1
        self._leased[slot] = generation
        return Lease(slot, generation)

    def release(self, lease: Lease) -> bool:
        """Takes a lease back; False (and no change) when it is not the slot's current one."""
        if self._leased.get(lease.slot) != lease.generation:
            return False
        del self._leased[lease.slot]
        self._free.append(lease.slot)
        return True
