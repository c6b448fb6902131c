"""Latency that is the engine's own, at half of what it can do, live: decode, transfer, queueing and publishing apart.

    python -m framepool.benchmarks.half_load [--streams N] [--seconds S]

Two devices of one core each (OpenVINO, bf16 where the CPU has it, beside onnxruntime fp32), the bundled clip as cameras
of 10 fps with SLO 250 ms, registered at random moments. N streams are registered such that they are half of the plan's
capacity, or as many as --streams says; the table is what `framepool stats` prints.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from framepool.benchmarks.demo import CLIP, FPS, MODEL, SLO_MS, measure, running_engine
from framepool.engine.cli.engine_views import stats_text
from framepool.engine.client import Client
from framepool.engine.control import StreamConfig

PHASE_SEED = 1
BARS_MS = (5.0, 20.0)
"""p50 and p99 of the engine's own latency at half load."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the measurement; 0 where both bars hold for every stream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=0, help="how many streams; 0: half of the capacity")
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args(arguments)
    phases = random.Random(PHASE_SEED)
    with (
        tempfile.TemporaryDirectory(prefix="framepool-bench-") as folder,
        running_engine(Path(folder), split=False) as address,
        Client(address) as client,
    ):
        measure(client)
        base = StreamConfig("camera-0", str(CLIP), MODEL, SLO_MS, FPS, loop=True)
        client.register_stream(base)
        capacity_fps = sum(pipeline.capacity_fps for pipeline in client.plan().plan.pipelines)
        streams = given.streams or max(1, round(capacity_fps / 2 / FPS))
        for number in range(1, streams):
            time.sleep(phases.uniform(0.1, 0.5))
            client.register_stream(replace(base, name=f"camera-{number}"))
        print(f"{streams} streams of {FPS:g} fps; the plan can do {capacity_fps:.0f} fps")
        time.sleep(given.seconds)
        stats = client.stats()
        print(stats_text(stats))
        worst = [
            max(s.latency.overhead.p50_ms for s in stats.streams),
            max(s.latency.overhead.p99_ms for s in stats.streams),
        ]
    good = all(value <= bar for value, bar in zip(worst, BARS_MS, strict=True))
    print(f"the engine's own latency, worst stream: p50 {worst[0]:.1f} ms (bar 5), p99 {worst[1]:.1f} ms (bar 20)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
