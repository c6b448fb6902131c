"""Shared-memory arenas: fixed-size slots that one process creates and others map.

Theory of operation. The engine creates an arena as a file in /dev/shm, reserves its pages at once (a full /dev/shm is
an error here, never a SIGBUS later), and is the only one to unlink it. A slot is a 64-byte header and a payload. The
header's first word is the *generation* for which the payload was written: whoever is told to read slot s also gets the
generation expected, so a message that outlived its slot is detected instead of read as somebody else's picture.
Nobody frees through an arena; the books of free slots (`slots.py`) live in the engine alone, so a process that dies
takes nothing with it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from framepool.engine.errors import DeviceError

HEADER_BYTES = 64
"""One cache line: generation (uint64), the rest reserved."""


def shared_memory_dir() -> Path:
    """Where arenas live: /dev/shm where it exists (Linux), else the temporary folder."""
    shm = Path("/dev/shm")
    return shm if shm.is_dir() else Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class ArenaSpec:
    """What a process needs to map an arena."""

    name: str
    slots: int
    slot_bytes: int

    @property
    def stride_bytes(self) -> int:
        """Distance between slots: header and payload, rounded up to a cache line."""
        return HEADER_BYTES + (self.slot_bytes + HEADER_BYTES - 1) // HEADER_BYTES * HEADER_BYTES

    @property
    def total_bytes(self) -> int:
        return self.stride_bytes * self.slots

    @property
    def path(self) -> Path:
        return shared_memory_dir() / self.name


class Arena:
    """A mapped arena. Create it in the engine with `create`, map it elsewhere with `attach`."""

    def __init__(self, spec: ArenaSpec, mapping: mmap.mmap, owner: bool) -> None:
        self.spec = spec
        self._owner = owner
        self._bytes: NDArray[np.uint8] = np.frombuffer(mapping, dtype=np.uint8)

    @classmethod
    def create(cls, spec: ArenaSpec) -> Arena:
        """Makes and reserves the arena. Raises DeviceError when shared memory has no room for it."""
        fd = os.open(spec.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.ftruncate(fd, spec.total_bytes)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, spec.total_bytes)
            except OSError as exc:
                spec.path.unlink(missing_ok=True)
                if exc.errno not in (errno.ENOSPC, errno.ENOMEM):
                    raise
                raise DeviceError(
                    f"shared memory: no room for {spec.total_bytes} bytes ({spec.slots} slots of {spec.slot_bytes}) in "
                    f"{shared_memory_dir()}; enlarge it or register fewer streams"
                ) from exc
            return cls(spec, mmap.mmap(fd, spec.total_bytes), owner=True)
        finally:
            os.close(fd)

    @classmethod
    def attach(cls, spec: ArenaSpec) -> Arena:
        """Maps an arena somebody else made. Raises FileNotFoundError when it was unlinked."""
        fd = os.open(spec.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return cls(spec, mmap.mmap(fd, spec.total_bytes), owner=False)
        finally:
            os.close(fd)

    def payload(self, slot: int) -> NDArray[np.uint8]:
        """The slot's payload, uint8 [slot_bytes]; a view, valid as long as it is referenced."""
        start = slot * self.spec.stride_bytes + HEADER_BYTES
        return self._bytes[start : start + self.spec.slot_bytes]

    def generation(self, slot: int) -> int:
        """The generation the slot's payload was last written for."""
        start = slot * self.spec.stride_bytes
        return int(self._bytes[start : start + 8].view(np.uint64)[0])

    def stamp(self, slot: int, generation: int) -> None:
        """Marks the slot as written for `generation`; called by the writer before it writes."""
        start = slot * self.spec.stride_bytes
        self._bytes[start : start + 8].view(np.uint64)[0] = generation

    def unlink(self) -> None:
        """Removes the name; mappings stay valid until dropped. Only the creator may call it; twice is harmless."""
        if self._owner:
            self._owner = False
            self.spec.path.unlink(missing_ok=True)


def sweep_arenas(prefix: str) -> int:
    """Unlinks all arenas whose name starts with `prefix` (left by a dead engine); returns how many."""
    count = 0
    for path in shared_memory_dir().glob(prefix + "*"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            count += 1
    return count
