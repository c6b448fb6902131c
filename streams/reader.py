"""Opens one source and yields its decoded frames, with finite waits and through damage. One thread at a time.

Every open and read has a timeout. Decoding is by packet: what can't be decoded is counted and skipped. Nothing before
the first key frame is given out, and the decoder is flushed at the end. Decoding runs on the calling thread alone:
frame threads would delay each picture by as many frames, and many cameras would want many threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import av
import av.error
from av.stream import Disposition

from framepool.streams.errors import SourceError, SourceErrorCode, classify, source_error
from framepool.streams.source_url import SourceSpec

Packet: TypeAlias = "av.Packet[Any]"

MOST_PENDING = 256
"""Arrival times kept for packets whose frames have not come out of the decoder yet."""
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Waits in seconds. `read_s` bounds the silence of a live source before it is opened anew."""

    open_s: float = 10.0
    read_s: float = 15.0
    probe_bytes: int = 2_000_000
    probe_s: float = 3.0


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What a source says of itself. `fps` and `duration_s` are 0.0 where it does not say, or not credibly."""

    width_px: int
    height_px: int
    fps: float
    codec: str
    duration_s: float
    rotation_deg: int = 0
    interlaced: bool = False
    pixel_format: str = ""


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """A frame out of the decoder. `arrived_ns` is when its packet came (monotonic)."""

    frame: av.VideoFrame
    arrived_ns: int


class Reader:
    """An open source. Close it; it is no iterator twice."""

    def __init__(self, container: av.container.InputContainer, stream: av.VideoStream, spec: SourceSpec) -> None:
        self._container = container
        self._stream = stream
        self._spec = spec
        self.damaged_packets = 0
        self.cut_off = False
        self._seen_key = False
        self._arrivals: dict[int, int] = {}
        stream.codec_context.thread_count = 1

    @property
    def info(self) -> MediaInfo:
        context = self._stream.codec_context
        duration = self._container.duration
        rate = self._stream.average_rate
        return MediaInfo(
            width_px=context.width,
            height_px=context.height,
            fps=float(rate) if rate and 0.05 <= rate <= 1000 else 0.0,
            codec=context.name,
            duration_s=duration / 1e6 if duration and duration > 0 else 0.0,
            pixel_format=context.pix_fmt or "",
        )

    @property
    def nominal_fps(self) -> Fraction | None:
        """The rate the header states; a hint at best."""
        return self._stream.average_rate or self._stream.guessed_rate

    @property
    def is_finite(self) -> bool:
        """Whether the source has an end of its own: a file, here or on a web server."""
        return self._spec.is_file or (
            self._spec.scheme in ("http", "https") and bool(self._container.duration and self._container.duration > 0)
        )

    @property
    def start_ns(self) -> int | None:
        """Stamp of the first frame in nanoseconds of the source's own clock, where the header says."""
        return self.packet_ns(self._stream.start_time)

    def packet_ns(self, stamp: int | None) -> int | None:
        """A stamp of this source in nanoseconds of its own clock."""
        if stamp is None or not self._stream.time_base:
            return None
        return int(stamp * self._stream.time_base * _NS)

    def seek(self, media_time_ns: int) -> bool:
        """Goes to the key frame at or before a time from the start; False where the source can't."""
        start_ns = self.start_ns or 0
        try:
            self._container.seek((media_time_ns + start_ns) // 1000, backward=True)
        except (av.error.FFmpegError, OSError):
            return False
        return True

    def packets(self) -> Iterator[Packet]:
        """Packets of the video stream and last one to flush the decoder. Raises SourceError where reading fails."""
        try:
            for packet in self._container.demux(self._stream):
                if packet.size == 0:
                    break  # the demuxer's own flush packet: ours follows in any case
                yield packet
        except (av.error.FFmpegError, OSError) as exc:
            if not self._spec.is_file or not self._seen_key:
                raise self._broken_off(exc) from None
            self.cut_off = True

    def _broken_off(self, exc: BaseException) -> SourceError:
        """Why reading failed: what was connected is not unreachable, it hung up."""
        error = classify(exc, self._spec.redacted, is_file=self._spec.is_file)
        if error.code is SourceErrorCode.UNREACHABLE:
            return source_error(self._spec.redacted, SourceErrorCode.ENDED)
        return error

    def decode(self, packet: Packet | None) -> list[DecodedFrame]:
        """Frames that come out when `packet` goes in (None: the last ones)."""
        now_ns = time.monotonic_ns()
        if packet is not None:
            if packet.is_corrupt:
                self.damaged_packets += 1
            if packet.pts is not None:
                self._arrivals[packet.pts] = now_ns
                if len(self._arrivals) > MOST_PENDING:
                    del self._arrivals[next(iter(self._arrivals))]
        try:
            frames = self._stream.codec_context.decode(packet)
        except av.error.EOFError:
            return []
        except (av.error.FFmpegError, ValueError):
            self.damaged_packets += 1
            return []
        found = []
        for frame in frames:
            if not isinstance(frame, av.VideoFrame):
                continue
            self._seen_key = self._seen_key or frame.key_frame or not frame.is_corrupt
            if not self._seen_key or frame.width < 1 or frame.height < 1:
                continue
            if frame.time_base is None:  # frames that come out only at the end are given none
                frame.time_base = self._stream.time_base
            arrived_ns = self._arrivals.pop(frame.pts, now_ns) if frame.pts is not None else now_ns
            found.append(DecodedFrame(frame, arrived_ns))
        return found

    def close(self) -> None:
        self._container.close()


def open_reader(spec: SourceSpec, settings: ReaderSettings) -> Reader:
    """Opens the source. Raises SourceError with the code that says why not."""
    options: dict[str, str] = {
        "protocol_whitelist": spec.protocol_whitelist,
        "probesize": str(settings.probe_bytes),
        "analyzeduration": str(round(settings.probe_s * 1e6)),
    }
    if spec.scheme in ("rtsp", "rtsps"):
        options["rtsp_transport"] = "tcp"
        options["allowed_media_types"] = "video"
    begin_s = time.monotonic()
    try:
        container = av.open(
            spec.effective_url(),
            options=options,
            timeout=(settings.open_s, settings.read_s),
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, OSError, ValueError) as exc:
        if not spec.is_file and time.monotonic() - begin_s >= settings.open_s:  # whatever breaking it off is called
            raise source_error(spec.redacted, SourceErrorCode.TIMEOUT) from None
        raise classify(exc, spec.redacted, is_file=spec.is_file) from None
    try:
        return Reader(container, _video_stream(container, spec), spec)
    except BaseException:
        container.close()
        raise


def _video_stream(container: Any, spec: SourceSpec) -> av.VideoStream:
    """The first real video stream: attached pictures (cover art) are none."""
    codes = SourceErrorCode
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        what = "only a cover picture" if container.streams.video else _contents(container)
        raise source_error(spec.redacted, codes.NO_VIDEO, f"it has no video stream ({what})")
    stream: av.VideoStream = streams[0]
    if stream.codec_context is None:
        raise source_error(
            spec.redacted, codes.UNSUPPORTED_CODEC, "its video codec is unknown here; re-encode it as H.264 or H.265"
        )
    context = stream.codec_context
    if container.format.name in ("tty", "ansi"):
        raise source_error(spec.redacted, codes.NOT_MEDIA if not spec.is_file else codes.INVALID_MEDIA,
                           "it is a text, not a video")  # fmt: skip
    if context.width < 1 or context.height < 1:
        raise source_error(spec.redacted, codes.INVALID_MEDIA, f"its {context.name} video has no picture size")
    return stream


def _contents(container: Any) -> str:
    kinds = sorted({stream.type for stream in container.streams})
    return f"only {', '.join(kinds)}" if kinds else "no streams at all"


def permanent_for(error: SourceError, spec: SourceSpec) -> bool:
    """Whether the source is given up: what can't change, and anything that is wrong with a file."""
    return error.permanent or spec.is_file


def displayed_size_px(frame: av.VideoFrame) -> tuple[int, int]:
    """Width and height as displayed."""
    if round(frame.rotation) % 180:
        return frame.height, frame.width
    return frame.width, frame.height
