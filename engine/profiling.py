"""Profiles: measured when first needed, one device class after another, and kept on disk.

A profile is kept under (model digest, number of blocks, fingerprint of the class): backend and its version, provider,
precision, hardware, cores. Every block and the whole model are measured at each batch size; block times are scaled so
that they add up to the whole, batch sizes between the measured ones are interpolated. Shares of a device that have
cores of their own are measured so; others take the whole's time, times the number of shares.

A CPU device is measured while all others work: cores share caches, memory and often an execution unit, and a latency
that holds only beside idle neighbours would promise what can't be kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from framepool.engine.config import ProfilesSection
from framepool.engine.control import Progress
from framepool.engine.errors import DeviceError
from framepool.engine.hardware import Hardware
from framepool.engine.runtime.child import frame_config
from framepool.engine.runtime.devices import DeviceSettings, StageSettings, cpu_model_name
from framepool.engine.runtime.profile_child import ProfileAnswer, ProfileJob
from framepool.engine.stage_files import StageFiles, edge
from framepool.models.partition import Partition
from framepool.models.profile import BlockProfile, ModelProfile
from framepool.models.registry import ModelEntry

ANSWER_TIMEOUT_S = 300.0
"""Longest wait for one stage to be loaded and measured."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Target:
    """One class and share to measure, on one of the class's devices."""

    device: DeviceSettings
    share: int
    times_share: bool
    """Latency is that of the whole device, times `share`."""

    @property
    def fingerprint(self) -> str:
        device = self.device
        runtime = "" if device.emulated else _runtime_version(device.backend)
        hardware = device.hardware or (cpu_model_name() if device.on_cpu else "")
        parts = (device.backend, runtime, device.provider, device.precision, hardware, str(len(device.cores)))
        return "|".join((*parts, f"share {1 if self.times_share else self.share}"))


def _runtime_version(backend: str) -> str:
    for name in {"onnxruntime": ("onnxruntime-gpu", "onnxruntime")}.get(backend, (backend,)):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return ""


class Profiles:
    """Kept profiles below `root`, and the measuring of those that are missing. One measurement at a time."""

    def __init__(self, root: Path, stages: StageFiles, hardware: Hardware, settings: ProfilesSection) -> None:
        self._root = root
        self._stages = stages
        self._hardware = hardware
        self._settings = settings
        self._lock = threading.Lock()

    def get(self, entry: ModelEntry, partition: Partition) -> ModelProfile | None:
        """The model's profile on every class of the engine, or None where one was never measured."""
        blocks = []
        for target in self._targets():
            kept = self._kept(entry, partition, target)
            if kept is None:
                return None
            batch_sizes, latency_us, source = kept
            if target.device.on_cpu:
                latency_us = latency_us + self._settings.batch_overhead_ms * 1e3 / partition.n_blocks
            if target.times_share:
                latency_us = latency_us * target.share
            blocks.append(
                BlockProfile(
                    partition.model_digest, target.device.device_class, target.share, batch_sizes, latency_us, source
                )
            )
        return ModelProfile(
            entry.name, partition.model_digest, partition.n_blocks, edge_bytes(partition), tuple(blocks)
        )

    def whole_model_ms(self, entry: ModelEntry, partition: Partition) -> dict[str, float]:
        """Batch-1 latency of the whole model by class; classes never measured are absent."""
        found = {}
        for target in self._targets():
            kept = self._kept(entry, partition, target) if target.share == 1 else None
            if kept is not None:
                found[target.device.device_class] = float(kept[1][:, 0].sum()) / 1e3
        return found

    def measure(self, entry: ModelEntry, partition: Partition, force: bool) -> Iterator[Progress]:
        """Measures what is missing (everything, with `force`). Raises DeviceError with the cause."""
        with self._lock:
            targets = {target.fingerprint: target for target in self._targets() if not target.device.emulated}
            due = [t for t in targets.values() if force or self._kept(entry, partition, t) is None]
            per_target = partition.n_blocks + (1 if partition.n_blocks > 1 else 0)
            total = len(due) * per_target
            for done, target in enumerate(due):
                yield from self._measure(entry, partition, target, done * per_target, total)
            yield Progress(total, total, "done")

    def _targets(self) -> list[_Target]:
        targets = []
        for device_class in self._hardware.inventory.classes:
            device = self._hardware.any_device(device_class.name)
            for share in device_class.shares:
                own_cores = device.on_cpu and len(device.cores) >= share and len(device.cores) % share == 0
                targets.append(_Target(device, share, share > 1 and not own_cores))
        return targets

    def _batch_sizes(self, entry: ModelEntry, device: DeviceSettings) -> list[int]:
        sizes = self._settings.batch_sizes if device.on_cpu else self._settings.gpu_batch_sizes
        most = entry.spec.max_batch if entry.spec.batch_safe else 1
        return [size for size in sizes if not most or size <= most]

    def _measure(
        self, entry: ModelEntry, partition: Partition, target: _Target, done: int, total: int
    ) -> Iterator[Progress]:
        n = partition.n_blocks
        ranges = [(0, n)] + ([(i, i + 1) for i in range(n)] if n > 1 else [])
        sizes = self._batch_sizes(entry, target.device)
        stages = []
        for first, last in ranges:
            yield Progress(done, total, f"{entry.name} on {target.device.device_class}: cutting stages")
            stages.append(
                StageSettings(
                    str(self._stages.path(entry, partition, first, last)),
                    edge(partition.stage_inputs(first)),
                    edge(partition.stage_outputs(last)),
                    sizes[-1],
                    1 if target.times_share else target.share,
                )
            )
        job = ProfileJob(target.device, tuple(stages), tuple(sizes), self._settings.seconds_per_batch)
        answers: dict[int, list[float]] = {}
        with self._neighbours_busy(stages[0], target.device):
            for index, us in _run_job(job):
                answers[index] = us
                done += 1
                first, last = ranges[index]
                what = "whole model" if index == 0 else f"block {first} of {n}"
                yield Progress(done, total, f"{entry.name} on {target.device.device_class}: {what}")
        whole = np.array(answers[0])
        blocks = np.array([answers[i] for i in range(1, len(ranges))]) if n > 1 else whole[None, :]
        self._keep(entry, partition, target, *_filled(sizes, blocks * (whole / blocks.sum(axis=0))))

    @contextmanager
    def _neighbours_busy(self, whole: StageSettings, measured: DeviceSettings) -> Iterator[None]:
        """Keeps every other CPU device busy with the same model meanwhile."""
        running: list[_ProfileProcess] = []
        try:
            for device in self._hardware.devices:
                if (
                    device.on_cpu
                    and not device.emulated
                    and measured.on_cpu
                    and not set(device.cores) & set(measured.cores)
                ):
                    job = ProfileJob(device, (whole,), (1,), 0.0, keep_busy=True)
                    running.append(_ProfileProcess(job))
            for process in running:
                process.answer()
            yield
        finally:
            for process in running:
                process.close()

    def _file(self, partition: Partition, target: _Target) -> Path:
        key = f"{partition.model_digest}|{[c.tensors for c in partition.cuts]}|{target.fingerprint}"
        return self._root / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"

    def _kept(
        self, entry: ModelEntry, partition: Partition, target: _Target
    ) -> tuple[tuple[int, ...], NDArray[np.float64], str] | None:
        if target.device.emulated:
            return self._emulated(entry, partition, target)
        try:
            kept = json.loads(self._file(partition, target).read_text())
            latency_us = np.array(kept["latency_us"], dtype=np.float64)
        except (OSError, ValueError, KeyError, TypeError):  # damaged: as if it were not there
            return None
        if kept.get("format") != _FORMAT or latency_us.ndim != 2 or latency_us.shape[0] != partition.n_blocks:
            return None
        return tuple(range(1, latency_us.shape[1] + 1)), latency_us, "measured"

    def _emulated(
        self, entry: ModelEntry, partition: Partition, target: _Target
    ) -> tuple[tuple[int, ...], NDArray[np.float64], str] | None:
        model = self._hardware.emulated_class(target.device.device_class)
        kept = self._kept(entry, partition, _Target(model, 1, False))
        if kept is None:
            return None
        return kept[0], kept[1] * target.device.emulated_scale, "emulated"

    def _keep(
        self,
        entry: ModelEntry,
        partition: Partition,
        target: _Target,
        batch_sizes: tuple[int, ...],
        latency_us: NDArray[np.float64],
    ) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        value = {
            "format": _FORMAT,
            "model": entry.name,
            "model_digest": partition.model_digest,
            "class": target.device.device_class,
            "fingerprint": target.fingerprint,
            "measured_unix_s": round(time.time()),
            "batch_sizes": list(batch_sizes),
            "latency_us": [[round(us, 2) for us in row] for row in latency_us.tolist()],
        }
        with tempfile.NamedTemporaryFile("w", dir=self._root, suffix=".tmp", delete=False) as file:
            json.dump(value, file, indent=1)
        Path(file.name).replace(self._file(partition, target))


def edge_bytes(partition: Partition) -> tuple[int, ...]:
    """Bytes per sample that enter each block and, last, leave the model (0 where the outputs' shapes are unknown)."""
    first = sum(tensor.bytes_per_sample or 0 for tensor in partition.inputs)
    last = sum(tensor.bytes_per_sample or 0 for tensor in partition.outputs)
    return (first, *(cut.bytes_per_sample for cut in partition.cuts), last)


def _filled(sizes: Sequence[int], latency_us: NDArray[np.float64]) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """Every batch size from 1 to the largest, those between the measured ones interpolated."""
    every = np.arange(1, sizes[-1] + 1)
    return tuple(every.tolist()), np.stack([np.interp(every, sizes, row) for row in latency_us])


def _run_job(job: ProfileJob) -> Iterator[tuple[int, list[float]]]:
    """Runs the profiling process; yields (stage, microseconds by batch size). Raises DeviceError."""
    process = _ProfileProcess(job)
    try:
        for _ in job.stages:
            answer = process.answer()
            yield answer.stage, answer.us
    finally:
        process.close()


class _ProfileProcess:
    """A running `profile_child`. Close it whatever happens."""

    def __init__(self, job: ProfileJob) -> None:
        self._device = job.device
        self._process = subprocess.Popen(
            [sys.executable, "-m", "framepool.engine.runtime.profile_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="framepool-profile-reader", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # ended at its start: `answer` says so
            self._process.stdin.write(frame_config(msgspec.msgpack.encode(job)))
            self._process.stdin.flush()

    def answer(self) -> ProfileAnswer:
        """The next answer. Raises DeviceError with the cause where there is none."""
        until_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty as exc:
                raise DeviceError(f"device {self._device.id}: not measured within {ANSWER_TIMEOUT_S:g} s") from exc
            if not line:
                raise DeviceError(f"device {self._device.id}: the profiling process ended before it was done")
            if line.startswith(b"{"):
                answer = msgspec.json.decode(line, type=ProfileAnswer)
                if answer.error:
                    raise DeviceError(f"device {self._device.id} could not be profiled: {answer.error}")
                return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")
