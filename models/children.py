"""Work on a model file in a process of its own: what an untrusted file does to a runtime ends there.

Each kind of work is a module run as ``python -m``; its request goes in as JSON on standard input, its answer comes back
as the last line of standard output: {"result": ...} or {"error": kind, "message": ..., "field": ...}.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from framepool import FramepoolError
from framepool.models import errors
from framepool.models.errors import ModelError, ModelInvalidError

_TAIL_CHARACTERS = 300


def run_child(module: str, request: Mapping[str, Any], timeout_s: float, what: str) -> Any:
    """The child's result. Raises the ModelError it raised, or ModelInvalidError where it crashed or took too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    try:
        out, err = process.communicate(json.dumps(request).encode())
    finally:
        expired = not timer.is_alive()
        timer.cancel()
        process.kill()
        process.wait(10)
    if expired:
        raise ModelInvalidError(f"{what} took longer than {timeout_s:g} s and was stopped")
    try:
        answer = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        tail = err.decode(errors="replace").strip()[-_TAIL_CHARACTERS:]
        raise ModelInvalidError(
            f"{what} ended the runtime (code {process.returncode}): {tail or 'no cause given'}"
        ) from None
    if "error" in answer:
        kind = getattr(errors, answer["error"], ModelInvalidError)
        raise kind(answer["message"], field=answer.get("field", ""))
    return answer["result"]


def child_main(work: Callable[[dict[str, Any]], Any]) -> int:
    """The child's side: reads the request, does the work, prints the answer."""
    request = json.loads(sys.stdin.buffer.read())
    try:
        answer: dict[str, Any] = {"result": work(request)}
    except FramepoolError as exc:
        kind = type(exc).__name__ if isinstance(exc, ModelError) else "ModelInvalidError"
        answer = {"error": kind, "message": str(exc), "field": exc.field}
    except Exception as exc:  # the caller must hear the cause, whatever a library raised
        answer = {"error": "ModelInvalidError", "message": f"{type(exc).__name__}: {exc}"[:2000], "field": ""}
    print(json.dumps(answer))
    return 0
