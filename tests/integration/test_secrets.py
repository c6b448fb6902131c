"""F7, F8: a stream's password is in no log, list, error, metric, process title or database dump."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from pathlib import Path

import engine_rig as rig
import psutil
import pytest

from framepool import FramepoolError
from framepool.engine.client import Client
from framepool.engine.control import StreamChanges, StreamState

PASSWORD = "s3cr3t/p@ss#w^rd"
ENCODED = "s3cr3t%2Fp%40ss%23w%5Erd"
LOGIN = "cam-reader"


def places(running: rig.ServedEngine, seen: list[str]) -> dict[str, str]:
    """All text the engine gave out, by where."""
    children = [psutil.Process(running.process.pid), *running.children()]
    dump = "\n".join(sqlite3.connect(running.state_dir / "framepool.db").iterdump())
    files = {
        f"file {path.name}": path.read_bytes().decode("latin-1")
        for path in running.state_dir.glob("framepool.db*")
    }  # fmt: skip
    return {
        "log": "".join(running.log),
        "answers": "\n".join(seen),
        "titles": "\n".join(" ".join(child.cmdline()) for child in children),
        "dump": dump,
        **files,
    }


def test_f7_f8_passwords_appear_nowhere(state_dir: Path) -> None:
    seen: list[str] = []
    with rig.served(state_dir, rig.onnxruntime_pair(), api={"http_port": 0}) as running:
        client = running.client
        urls = {
            "refused": f"rtsp://{LOGIN}:{ENCODED}@127.0.0.1:1/cam",
            "raw": f"rtsp://{LOGIN}:{PASSWORD}@127.0.0.1:1/cam",
            "http": f"http://{LOGIN}:{ENCODED}@127.0.0.1:1/x.ts?token=1",
            "host": f"rtsps://{LOGIN}:{ENCODED}@no-such-host.invalid/cam",
        }
        for name, url in urls.items():
            seen.append(repr(client.register_stream(rig.clip_stream(name, source=url, target_fps=1))))
        seen.append(
            repr(
                client.register_stream(
                    rig.clip_stream(
                        "apart", source="rtsp://127.0.0.1:1/c", target_fps=1, username=LOGIN, password=PASSWORD
                    )
                )
            )
        )
        assert rig.until(lambda: all(s.state is StreamState.RECONNECTING for s in client.list_streams()), 20), (
            client.list_streams()
        )
        seen.append(repr(client.update_stream("apart", StreamChanges(password=PASSWORD + "2"))))
        seen.append(refusal(client, f"gopher://{LOGIN}:{ENCODED}@127.0.0.1/"))
        seen.append(refusal(client, f"rtsp://{LOGIN}:{ENCODED}@:notaport/"))
        seen += [repr(client.list_streams()), repr(client.get_stream("raw")), repr(client.stats()), repr(client.plan())]
        seen.append(metrics(running))
        for where, text in places(running, seen).items():
            for secret in (PASSWORD, ENCODED, "s3cr3t"):
                assert secret not in text, (where, text[max(0, text.find(secret) - 80) : text.find(secret) + 40])
        assert "127.0.0.1:1/cam" in "\n".join(seen)
    with rig.served(state_dir, rig.onnxruntime_pair()) as again:  # and the password is still known
        assert rig.until(lambda: len(again.client.list_streams()) == 5, 10)
        assert "s3cr3t" not in "".join(again.log)


def refusal(client: Client, source: str) -> str:
    with pytest.raises(FramepoolError) as refused:
        client.register_stream(rig.clip_stream("bad", source=source))
    return f"{refused.value!r} {refused.value} {refused.value.field}"


def metrics(running: rig.ServedEngine) -> str:
    """The metrics page; its port is in the log."""
    ports = [json.loads(line).get("http_port") for line in running.log if '"event": "serving"' in line]
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
