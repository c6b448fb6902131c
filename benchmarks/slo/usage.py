"""What an engine's processes use: processor time and memory, by kind of process."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

KINDS = ("engine", "decoder", "stage worker")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since each process's start, and resident bytes, by kind."""

    cpu_s: dict[str, float]
    rss_bytes: dict[str, int]

    @classmethod
    def of(cls, pid: int) -> Usage:
        """The engine `pid` and its children, now. A process that ends meanwhile is left out."""
        cpu_s, rss_bytes = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
        engine = psutil.Process(pid)
        for process in (engine, *engine.children()):
            try:
                kind = "engine" if process.pid == pid else _kind(process)
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.NoSuchProcess:
                continue
            cpu_s[kind] = cpu_s.get(kind, 0.0) + times.user + times.system
            rss_bytes[kind] = rss_bytes.get(kind, 0) + memory.rss
        return cls(cpu_s, rss_bytes)

    def cpu_ms_per_frame(self, before: Usage, frames: int) -> dict[str, float]:
        """Processor milliseconds per frame between two moments."""
        return {
            kind: max(0.0, used - before.cpu_s.get(kind, 0.0)) * 1e3 / max(1, frames)
            for kind, used in self.cpu_s.items()
        }


def stage_workers(pid: int) -> list[psutil.Process]:
    """The engine's stage workers, in the order they were started."""
    found = [child for child in psutil.Process(pid).children() if _kind(child) == "stage worker"]
    return sorted(found, key=lambda process: process.create_time())


def _kind(process: psutil.Process) -> str:
    title = " ".join(process.cmdline())
    return "stage worker" if "stage" in title else "decoder" if "decoder" in title else "other"
