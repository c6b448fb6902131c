"""What one end of a link is spoken for, as intervals: reservations may fill gaps between others. No decisions."""

from __future__ import annotations

from bisect import bisect_left, insort


class Calendar:
    """Disjoint intervals [start, end) in ascending order; those that have passed are forgotten as others come."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []

    def first_gap(self, from_ns: int, length_ns: int) -> int:
        """The earliest start, at `from_ns` or later, of a gap of `length_ns`."""
        at_ns = from_ns
        taken = self.taken
        if not taken or taken[-1][1] <= at_ns:
            return at_ns
        first = max(0, bisect_left(taken, (at_ns,)) - 1)  # the one before may still reach beyond
        for start_ns, end_ns in taken[first:]:
            if start_ns - at_ns >= length_ns:
                break
            if end_ns > at_ns:
                at_ns = end_ns
        return at_ns

    def take(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        """Reserves a gap that `first_gap` found."""
        taken = self.taken
        passed = 0
        while passed < len(taken) and taken[passed][1] <= now_ns:
            passed += 1
        if passed:
            del taken[:passed]
        insort(taken, (start_ns, end_ns))


def common_gap(up: Calendar | None, down: Calendar | None, from_ns: int, length_ns: int) -> int:
    """The earliest start of a gap that both ends have; an end that is None is always free."""
    at_ns = from_ns
    while True:
        later_ns = at_ns if up is None else up.first_gap(at_ns, length_ns)
        if down is not None:
            later_ns = down.first_gap(later_ns, length_ns)
        if later_ns == at_ns:
            return at_ns
        at_ns = later_ns
