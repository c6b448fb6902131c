"""What a decoder worker tells: frames, states, and what it is told to decode. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from framepool.streams.source_url import SourceSpec

Preprocess = Callable[[NDArray[np.uint8], NDArray[np.uint8]], tuple[float, ...]]
"""(picture uint8 [h, w, 3] RGB, model input uint8 [H, W, 3] to fill) -> the transform, as numbers."""


class DecodeState(StrEnum):
    """A stream as its decoder sees it."""

    CONNECTING = "connecting"
    RUNNING = "running"
    STALLED = "stalled"
    RECONNECTING = "reconnecting"
    FINISHED = "finished"
    FINISHED_WITH_ERRORS = "finished-with-errors"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StreamTask:
    """A stream to decode. `shape` is the model input's [H, W, 3]; frames are numbered from `first_seq`.

    A file is read from after `resume_media_ns` (-1: from its start); live sources only go on counting from there.
    `offline` reads as fast as slots come and drops nothing; else a file is played at its own speed. `phase_ns` is when
    within the period of `target_fps` its frames should come (see pacing; -1: whenever).
    """

    stream_id: int
    name: str
    source: SourceSpec
    target_fps: float
    shape: tuple[int, int, int]
    preprocess: Preprocess
    offline: bool = False
    loop: bool = False
    first_seq: int = 0
    resume_media_ns: int = -1
    phase_ns: int = -1


@dataclass(frozen=True, slots=True)
class FrameNotice:
    """A frame in its slot. `_ns` are CLOCK_MONOTONIC but for `capture_unix_ns` (wall clock) and `media_time_ns` (from
    the media's first frame). `synthetic`: the source gave no time stamp. `decoded_ns`: when the slot was filled."""

    stream_id: int
    seq: int
    slot: int
    capture_ns: int
    decoded_ns: int
    capture_unix_ns: int
    media_time_ns: int
    width_px: int
    height_px: int
    transform: tuple[float, ...]
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A stream's state. Texts hold no credentials. `new_` counts since the last report."""

    stream_id: int
    state: DecodeState
    error_code: str = ""
    error: str = ""
    width_px: int = 0
    height_px: int = 0
    codec: str = ""
    measured_fps: float = 0.0
    new_decode_errors: int = 0
    new_reconnects: int = 0
