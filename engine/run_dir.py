"""One engine per state directory: its lock, the folder of its sockets, and the names of its shared memory.

What a dead engine left behind is known by name, so the next start with the same state removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

from framepool.engine.errors import FailedPreconditionError
from framepool.engine.runtime.arena import sweep_arenas


class RunDir:
    """Taken at construction, given back by `release`. Raises FailedPreconditionError where another engine has it."""

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (state_dir / "engine.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            self._lock.close()
            raise FailedPreconditionError(
                f"another engine runs with state directory {state_dir}; stop it or set another engine.state_dir"
            ) from exc
        digest = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:8]
        self._prefix = f"framepool-{digest}-"
        self.path = Path(tempfile.gettempdir()) / f"framepool-{os.getuid()}-{digest}"
        self._numbers = itertools.count(1)
        self.swept_arenas = sweep_arenas(self._prefix)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700)

    @property
    def engine_endpoint(self) -> str:
        """Where the engine listens for its children."""
        return f"{self.path}/engine"

    def name_arena(self) -> str:
        """A fresh name for an arena of this engine."""
        return f"{self._prefix}{next(self._numbers)}"

    def release(self) -> None:
        """Removes what this engine named and frees the lock. The last thing an engine does."""
        sweep_arenas(self._prefix)
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
