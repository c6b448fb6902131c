"""Small media for tests, made with PyAV (no ffmpeg binary): each frame's brightness says which one it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 64, 48


def picture(index: int, width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    """Gray of level 5 x (index mod 50), with a bright left half so that turns and mirrors show."""
    rgb = np.full((height, width, 3), 5 * (index % 50), dtype=np.uint8)
    rgb[: height // 4, : width // 2] = 255
    return rgb


def write_video(
    path: Path,
    frames: int = 20,
    *,
    codec: str = "libx264",
    fps: int = 25,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    pix_fmt: str = "yuv420p",
    stamps: Iterable[float] | None = None,
    options: dict[str, str] | None = None,
    container_format: str | None = None,
    rotation_deg: int = 0,
    make: Callable[[int, int, int], NDArray[np.uint8]] = picture,
) -> Path:
    """A video file; `stamps` (seconds) makes its rate variable."""
    with av.open(str(path), "w", format=container_format) as container:
        stream = container.add_stream(codec, rate=fps, options=options or {})
        stream.width, stream.height, stream.pix_fmt = size[0], size[1], pix_fmt
        stream.codec_context.thread_count = 1
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        if rotation_deg:
            stream.set_display_rotation(rotation_deg)
        times = list(stamps) if stamps is not None else [i / fps for i in range(frames)]
        for index, at_s in enumerate(times):
            frame = av.VideoFrame.from_ndarray(make(index, *size), "rgb24")
            frame.pts, frame.time_base = round(at_s * 1000), Fraction(1, 1000)
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def write_audio(path: Path, seconds: float = 1.0) -> Path:
    """Sound without a picture."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        samples = np.zeros((1, int(8000 * seconds)), dtype=np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.sample_rate = 8000
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    return path


def without_stamps(path: Path, out: Path) -> Path:
    """The bare H.264 byte stream of an mp4: no container, no stamps."""
    with av.open(str(path)) as source, out.open("wb") as file:
        stream = source.streams.video[0]
        context = av.BitStreamFilterContext("h264_mp4toannexb", stream)
        for packet in source.demux(stream):
            if packet.size:
                for filtered in context.filter(packet):
                    file.write(bytes(filtered))
    return out
