"""What a simulation run yields: counts per stream, and, on request, one row a frame and one row a stage of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from framepool.engine.outcomes import OutcomeCounts, goodput_fps, total
from framepool.engine.scheduling.events import DropReason


@dataclass(frozen=True, slots=True)
class FrameRow:
    """How a frame ended. `dropped` is None for a completed one."""

    frame_id: int
    stream_id: int
    model: str
    capture_ns: int
    deadline_ns: int
    end_ns: int
    in_time: bool
    dropped: DropReason | None


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of one batch that ran: predicted beside measured."""

    batch_id: int
    pipeline_id: str
    stage: int
    worker_id: str
    frames: tuple[int, ...]
    predicted_start_ns: int
    predicted_end_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """`streams` by stream id; `busy_ns` by worker id; `skipped` frames found no slot and were never ingested."""

    streams: Mapping[int, OutcomeCounts]
    frames: tuple[FrameRow, ...]
    stages: tuple[StageRow, ...]
    busy_ns: Mapping[str, int]
    skipped: Mapping[int, int]
    refused: int
    end_ns: int

    @property
    def totals(self) -> OutcomeCounts:
        return total(self.streams.values())

    def goodput_fps(self, elapsed_ns: int) -> float:
        return goodput_fps(self.totals.in_time, elapsed_ns)
