"""The child's side of every process the engine starts: configuration, death pipe, signals, title.

A child reads its configuration from standard input and keeps that pipe: when the engine goes, however it goes, the
pipe closes and the child ends by itself at once. Children ignore SIGINT and SIGTERM (a terminal or an init system
sends them to everybody): they obey their engine's `Stop`, and the engine kills what does not.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
from collections.abc import Sequence

ORPHANED_EXIT_CODE = 70
LENGTH = struct.Struct("<I")


def frame_config(config: bytes) -> bytes:
    """The configuration as it is written to a child's standard input."""
    return LENGTH.pack(len(config)) + config


def enter_child(title: str) -> bytes:
    """Makes this process a proper child and returns its configuration (bytes as given to `spawn`)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        import setproctitle
    except ImportError:
        pass
    else:
        setproctitle.setproctitle(title)
    config = _read_exactly(LENGTH.unpack(_read_exactly(LENGTH.size))[0])
    threading.Thread(target=_end_with_parent, name="death-pipe", daemon=True).start()
    return config


def _read_exactly(count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(0, count - len(data))
        if not chunk:
            sys.exit(ORPHANED_EXIT_CODE)
        data += chunk
    return data


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(ORPHANED_EXIT_CODE)


def pin_to_cores(cores: Sequence[int], niceness: int) -> None:
    """Pins the process to `cores` (none given: leaves it alone) and lowers its priority by `niceness`."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if niceness:
        os.nice(niceness)
