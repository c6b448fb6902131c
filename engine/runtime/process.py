"""The engine's side of a child process: start it, hear its end, stop it for certain.

    spawn -> (ready handshake, seen by the data plane) -> exit, watched by one thread a child

The thread that reads the child's standard error is also the one that reaps it and calls `on_exit`, so no child is
ever without an owner. Lines on standard error become log lines, bounded in length, with credentials removed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

import structlog

from framepool.engine.runtime.child import frame_config
from framepool.engine.runtime.redaction import redact_text

log = structlog.get_logger("framepool.process")

MAX_LOG_LINE_BYTES = 2000
"""Longer lines of a child's standard error are cut."""


class ChildProcess:
    """One running child. Created by `spawn`; owned by whoever called it."""

    def __init__(self, child_id: str, process: subprocess.Popen[bytes], on_exit: Callable[[int], None]) -> None:
        self.child_id = child_id
        self._process = process
        self._on_exit = on_exit
        self._thread = threading.Thread(target=self._watch, name=f"watch-{child_id}", daemon=True)

    @classmethod
    def spawn(cls, child_id: str, module: str, config: bytes, on_exit: Callable[[int], None]) -> ChildProcess:
        """Starts `python -m module` with `config` on its standard input. `on_exit(returncode)` comes from the watch
        thread, exactly once."""
        process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        child = cls(child_id, process, on_exit)
        child._thread.start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # died already: the watch thread reports it
            process.stdin.write(frame_config(config))
            process.stdin.flush()
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def _watch(self) -> None:
        stderr: IO[bytes] | None = self._process.stderr
        assert stderr is not None
        while line := stderr.readline(MAX_LOG_LINE_BYTES):
            text = redact_text(line.decode(errors="replace").rstrip())
            if text:
                log.info("child says", child=self.child_id, text=text)
        code = self._process.wait()
        stderr.close()
        self._close_pipe()
        self._on_exit(code)

    def end(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for the child to end by itself, then closes its pipe, then kills it; reaps it."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._close_pipe()
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
        self._close_pipe()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def kill(self) -> None:
        """Ends the child at once."""
        self._process.kill()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
