"""The demo (``make demo``): a real clip, two streams, two unlike device classes, from registration to detections.

Starts an engine of its own (state in a temporary folder), measures the model, registers two streams of the bundled clip
over gRPC, prints detections and attainment as they come, saves an annotated picture, compares with the persons that
were marked by eye, and ends with exit code 0 if everything held. SPLIT=1 asks for a two-stage pipeline over both
classes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from framepool.benchmarks.own_engine import own_engine
from framepool.engine.client import Client
from framepool.engine.control import DetectionFilter, EngineStats, FrameDetections, StreamConfig, StreamState, WatchItem
from framepool.engine.hardware import allowed_cores
from framepool.engine.runtime.backends.openvino_backend import cpu_has_bf16
from framepool.engine.runtime.data_plane import ENDED_STATES
from framepool.streams import SAMPLES_DIR

CLIP = SAMPLES_DIR / "walkway.mp4"
OUTPUT = Path("demo-output")
MODEL = "nanodet"
STREAMS = ("entrance", "exit")
SLO_MS = 250.0
FPS = 10.0
PICTURE_FRAME = 100
LEAST_ATTAINMENT = 0.99
LEAST_IOU = 0.5
LEAST_SCORE = 0.45
RUN_TIMEOUT_S = 90.0

console = Console(soft_wrap=True, highlight=False)


@dataclass(slots=True)
class Seen:
    """Frames that the watcher got, by stream and number."""

    frames: dict[tuple[str, int], FrameDetections] = field(default_factory=dict)
    lost: int = 0


def engine_settings(*, split: bool) -> dict[str, Any]:
    """Two device classes on this machine's first two cores; one where there is but one core."""
    precision = "bf16" if cpu_has_bf16() else "fp32"
    cores = allowed_cores()
    devices = [("openvino", precision, cores[0])]
    if len(cores) > 1:
        devices.append(("onnxruntime", "fp32", cores[1]))
    settings: dict[str, Any] = {"profiles": {"seconds_per_batch": 0.1}}
    if split and len(devices) > 1:
        settings["planner"] = {"min_stages": 2, "distinct_classes": True}
    settings["devices"] = [
        {"class": f"{backend}-{kind}", "backend": backend, "precision": kind, "cores": [core]}
        for backend, kind, core in devices
    ]
    return settings


@contextmanager
def running_engine(folder: Path, *, split: bool) -> Iterator[str]:
    """The demo's engine; yields its address."""
    with own_engine(engine_settings(split=split), folder) as engine:
        yield engine.address


def measure(client: Client) -> None:
    """Profiles the model on both classes, with a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=False) as bar:
        task = bar.add_task("measuring the model", total=1.0)
        for step in client.profile(MODEL):
            bar.update(task, completed=step.done, total=step.total, description=step.what)


def collect(watch: Iterable[WatchItem], seen: Seen) -> None:
    """Collects frames and prints one line a second and stream."""
    printed: dict[str, float] = {}
    for item in watch:
        if item.frame is None:
            seen.lost += item.lost
            continue
        frame = item.frame
        seen.frames[frame.stream, frame.seq] = frame
        now_s = time.monotonic()
        if now_s - printed.get(frame.stream, 0.0) >= 1.0:
            printed[frame.stream] = now_s
            rows = ", ".join(f"{row.label} {row.score:.2f}" for row in frame.rows[:6])
            console.print(f"  {frame.stream:<9} frame {frame.seq:>3}  {frame.latency_ns / 1e6:5.1f} ms  {rows}")


def follow(client: Client) -> EngineStats:
    """Waits for both files' ends, printing attainment as it comes."""
    until_s = time.monotonic() + RUN_TIMEOUT_S
    while True:
        time.sleep(3.0)
        stats = client.stats()
        parts = [
            f"{s.name} {s.counters.attainment:.1%} of {s.counters.ingested} (p50 {s.latency.total.p50_ms:.0f} ms, "
            f"p99 {s.latency.total.p99_ms:.0f} ms)"
            for s in stats.streams
        ]
        console.print("attainment: " + " · ".join(parts))
        if all(s.state in ENDED_STATES and not s.counters.in_flight for s in stats.streams):
            return stats
        if time.monotonic() > until_s:
            raise SystemExit("the streams did not end in time")


def truth() -> dict[int, list[tuple[float, ...]]]:
    """Persons marked by eye: boxes by frame number."""
    marked = json.loads((SAMPLES_DIR / "walkway_truth.json").read_text(encoding="utf-8"))
    return {int(number): [tuple(box) for box in boxes] for number, boxes in marked["frames"].items()}


def iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Overlap of two boxes, x1 y1 x2 y2."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def compare(seen: Seen, stream: str) -> tuple[int, int, int]:
    """(persons found, persons marked, persons that are none) over the marked frames of a stream."""
    found = marked = false = 0
    for number, boxes in truth().items():
        frame = seen.frames.get((stream, number))
        persons = [] if frame is None else [r for r in frame.rows if r.label == "person" and r.score >= LEAST_SCORE]
        marked += len(boxes)
        found += sum(any(iou(box, row.box) >= LEAST_IOU for row in persons) for box in boxes)
        false += sum(all(iou(box, row.box) < LEAST_IOU for box in boxes) for row in persons)
    return found, marked, false


def save_picture(seen: Seen) -> Path:
    """Draws what was found in one frame."""
    frame = seen.frames[STREAMS[0], PICTURE_FRAME]
    with av.open(str(CLIP)) as container:
        for number, decoded in enumerate(container.decode(video=0)):
            if number == PICTURE_FRAME:
                picture = decoded.to_ndarray(format="bgr24").astype(np.uint8)
                break
    for row in frame.rows:
        x1, y1, x2, y2 = (round(value) for value in row.box)
        cv2.rectangle(picture, (x1, y1), (x2, y2), (80, 220, 80), 2)
        cv2.putText(
            picture,
            f"{row.label} {row.score:.2f}",
            (x1, max(12, y1 - 4)),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.45,
            (80, 220, 80),
            1,
        )
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"walkway-{PICTURE_FRAME}.jpg"
    cv2.imwrite(str(path), picture)
    return path


def show_plan(client: Client) -> int:
    """Prints the plan; returns the most stages of a pipeline."""
    plan = client.plan().plan
    for pipeline in plan.pipelines:
        stages = " -> ".join(f"blocks {s.first_block}-{s.last_block} on {s.device_class}" for s in pipeline.stages)
        console.print(f"  {stages}: {pipeline.latency_us / 1e3:.0f} ms a frame, up to {pipeline.capacity_fps:.0f} fps")
    return max(len(pipeline.stages) for pipeline in plan.pipelines)


def sum_up(stats: EngineStats, seen: Seen, stages: int, *, split: bool) -> bool:
    """Prints each figure with its verdict; True when all hold."""
    verdicts: list[tuple[bool, str]] = []
    for stream in stats.streams:
        counters = stream.counters
        text = f"{stream.name}: attainment {counters.attainment:.2%} of {counters.ingested} frames (at least 99 %)"
        verdicts.append((counters.attainment >= LEAST_ATTAINMENT and counters.ingested == 300, text))
        found, marked, false = compare(seen, stream.name)
        text = f"{stream.name}: {found} of {marked} marked persons found, {false} false"
        verdicts.append((found == marked and not false, text))
    totals = stats.totals
    balanced = totals.ingested == totals.completed + totals.dropped_total
    text = f"ingested {totals.ingested} = completed {totals.completed} + dropped {totals.dropped_total}"
    verdicts.append((balanced, text))
    if split:
        verdicts.append((stages == 2 or len(allowed_cores()) < 2, f"pipeline of {stages} stages over both classes"))
    for good, text in verdicts:
        console.print(f"  {'ok  ' if good else 'FAIL'} {text}")
    return all(good for good, _ in verdicts)


def main() -> int:
    """Runs the demo; 0 when all figures hold."""
    split = os.environ.get("SPLIT", "") not in ("", "0")
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="framepool-demo-") as folder:
        console.print("starting an engine with two unlike device classes ...")
        with running_engine(Path(folder), split=split) as address, Client(address) as client:
            for device in client.devices():
                console.print(
                    f"  {device.id}: {device.backend} {device.precision} on core {device.cores} ({device.hardware})"
                )
            measure(client)
            watch = client.watch_detections(DetectionFilter(streams=STREAMS))
            watcher = threading.Thread(target=collect, args=(watch, seen), daemon=True)
            watcher.start()
            for name in STREAMS:
                client.register_stream(StreamConfig(name, str(CLIP), MODEL, SLO_MS, FPS))
            console.print(f"two streams of {CLIP.name} at {FPS:g} fps, SLO {SLO_MS:g} ms; the plan:")
            stages = show_plan(client)
            stats = follow(client)
            failed = [s for s in stats.streams if s.state is not StreamState.FINISHED]
            watch.close()
            watcher.join(5)
            picture = save_picture(seen)
    console.print(f"annotated picture: {picture}")
    good = sum_up(stats, seen, stages, split=split) and not failed
    console.print("all figures hold" if good else "some figures do not hold")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
