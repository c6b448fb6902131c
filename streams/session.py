"""One stream's life on one thread: connect, play, notice trouble, connect again; every ingested frame told once.

    CONNECTING -> RUNNING -> (STALLED) -> RECONNECTING -> RUNNING ...        a live source, for ever
                     \\-> FINISHED | FINISHED_WITH_ERRORS                     a file that was read to its end
    CONNECTING -> FAILED                                                     what trying again can't help

Capture time: for a live source when the frame's packet arrived; for a file when the frame is due. A file is fed to its
decoder packet by packet at each packet's decoding time, as a camera would send it, so that decoding counts.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from framepool.streams.backoff import Backoff, BackoffSettings
from framepool.streams.errors import SourceError, SourceErrorCode, classify, source_error
from framepool.streams.pacing import FpsGate, Pacer
from framepool.streams.picture import PictureConverter
from framepool.streams.port import FrameSink, SlotPort
from framepool.streams.reader import (
    DecodedFrame,
    Packet,
    Reader,
    ReaderSettings,
    displayed_size_px,
    open_reader,
    permanent_for,
)
from framepool.streams.reports import DecodeState, FrameNotice, StreamReport, StreamTask
from framepool.streams.timeline import Timeline

NS = 1_000_000_000
REPORT_PERIOD_NS = 2 * NS
STALE_NS = NS
"""A paced file's frame that comes out so long after it was due is given up before conversion: so the stream catches
up instead of falling behind for good."""
STALL_INTERVALS = 5
FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """`stall_s`: silence after which a live source reads STALLED (or five of its own intervals, if longer)."""

    reader: ReaderSettings = field(default_factory=ReaderSettings)
    backoff: BackoffSettings = field(default_factory=BackoffSettings)
    stall_s: float = 3.0


class StreamSession:
    """See the module docstring. `run` is the thread's body; `stop` and `watch` are called by others."""

    def __init__(self, task: StreamTask, port: SlotPort, sink: FrameSink, settings: SessionSettings) -> None:
        self._task = task
        self._port = port
        self._sink = sink
        self._settings = settings
        self._stop = threading.Event()
        self._converter = PictureConverter()
        self._gate = FpsGate(task.target_fps, task.phase_ns)
        self._backoff = Backoff(settings.backoff, random.Random(task.stream_id))
        resumes = task.resume_media_ns >= 0
        self._timeline = Timeline(None, start_ns=task.resume_media_ns + NS // 1000 if resumes else 0)
        self._seq = task.first_seq
        self._state = DecodeState.CONNECTING
        self._error: SourceError | None = None
        self._reader: Reader | None = None
        self._finite = False
        self._size_px = (0, 0)
        self._codec = ""
        self._new_errors = 0
        self._new_reconnects = 0
        self._total_errors = 0
        self._last_frame_ns = 0
        self._reported_ns = 0
        self._rate_from: tuple[int, int] | None = None
        self._fps = 0.0
        self._report_lock = threading.Lock()

    # Called by others

    def stop(self) -> None:
        """Ends the session; its thread may need until its read times out."""
        self._stop.set()
        self._port.close()

    def watch(self, now_ns: int) -> None:
        """Notices a live source that went quiet (called now and then by the worker)."""
        if self._state is not DecodeState.RUNNING or not self._last_frame_ns or self._finite:
            return
        quiet_ns = now_ns - self._last_frame_ns
        limit_ns = max(self._settings.stall_s * NS, STALL_INTERVALS * self._timeline.interval_ns)
        if quiet_ns > limit_ns:
            self._tell(DecodeState.STALLED, self._error_of_silence(quiet_ns))

    def _error_of_silence(self, quiet_ns: int) -> SourceError:
        detail = f"no frame for {quiet_ns / NS:.1f} s, though the connection is open"
        return source_error(self._task.source.redacted, SourceErrorCode.TIMEOUT, detail)

    # The thread

    def run(self) -> None:
        """Plays the source until it ends for good or `stop`."""
        try:
            self._run()
        except Exception as exc:  # a fault of ours must be seen as this stream's, not end the process
            cause = SourceError(
                f"source {self._task.source.redacted}: internal fault ({type(exc).__name__})",
                code=SourceErrorCode.INVALID_MEDIA,
            )
            self._tell(DecodeState.FAILED, cause)
            raise
        finally:
            self._port.close()
            self._sink.ended(self._task.stream_id)

    def _run(self) -> None:
        self._tell(DecodeState.CONNECTING)
        while not self._stop.is_set():
            try:
                finished = self._play_once()
            except SourceError as error:
                if permanent_for(error, self._task.source):
                    self._tell(DecodeState.FAILED, error)
                    return
                self._new_reconnects += 1
                self._tell(DecodeState.RECONNECTING, error)
                self._stop.wait(self._backoff.next_s(auth=error.code is SourceErrorCode.AUTH))
                continue
            if finished:
                return

    def _play_once(self) -> bool:
        """Opens and plays to the end; True when that was the end for good. Raises SourceError."""
        task = self._task
        reader = open_reader(task.source, self._settings.reader)
        self._reader = reader
        self._finite = reader.is_finite
        try:
            info = reader.info
            self._codec, self._size_px = info.codec, (info.width_px, info.height_px)
            self._timeline.restart(reader.nominal_fps)
            played = self._play(reader)
            if self._stop.is_set():
                return True
            if not reader.is_finite:
                raise source_error(task.source.redacted, SourceErrorCode.ENDED)
            if not played:
                raise source_error(task.source.redacted, SourceErrorCode.INVALID_MEDIA, "not one frame can be decoded")
            if task.loop:
                return False
            self._port.flush(FLUSH_S)
            self._finish(reader)
            return True
        finally:
            self._new_errors += reader.damaged_packets
            self._total_errors += reader.damaged_packets
            self._reader = None
            reader.close()

    def _finish(self, reader: Reader) -> None:
        if not self._total_errors + reader.damaged_packets and not reader.cut_off:
            self._tell(DecodeState.FINISHED)
            return
        detail = (
            f"the file ends early or is damaged: {self._seq - self._task.first_seq} frames were read, "
            f"{self._total_errors + reader.damaged_packets} packets could not be decoded"
        )
        error = source_error(self._task.source.redacted, SourceErrorCode.INVALID_MEDIA, detail)
        self._tell(DecodeState.FINISHED_WITH_ERRORS, error)

    def _play(self, reader: Reader) -> int:
        """Plays an open source to its end; returns how many frames came out of the decoder."""
        skip_to_ns = self._begin(reader)
        task = self._task
        pacer = Pacer(task.target_fps, task.phase_ns) if reader.is_finite and not task.offline else None
        if reader.is_finite:
            self._gate = FpsGate(task.target_fps)  # its phase is that of its start
        played = 0
        for packet in reader.packets():
            if self._stop.is_set():
                return played
            if pacer is not None and not self._await_packet(reader, packet, pacer, skip_to_ns):
                return played
            for decoded in reader.decode(packet):
                played += 1
                self._take(reader, decoded, pacer, skip_to_ns)
        if not self._stop.is_set():
            for decoded in reader.decode(None):
                played += 1
                self._take(reader, decoded, pacer, skip_to_ns)
        return played

    def _begin(self, reader: Reader) -> int:
        """Goes to where a file is resumed; returns the media time before which frames are passed over."""
        task = self._task
        resumes = task.resume_media_ns >= 0 and reader.is_finite and not task.loop
        if not resumes:
            return -1
        reader.seek(task.resume_media_ns)
        self._timeline = Timeline(reader.nominal_fps, start_ns=0)
        self._timeline.align(reader.start_ns or 0)
        return task.resume_media_ns

    def _await_packet(self, reader: Reader, packet: Packet, pacer: Pacer, skip_to_ns: int) -> bool:
        """Waits until a camera would have sent the packet; False when stopped."""
        stamp_ns = reader.packet_ns(packet.dts)
        media_ns = None if stamp_ns is None else self._timeline.predict(stamp_ns, reader.start_ns)
        if media_ns is None or media_ns <= skip_to_ns:
            return True
        return self._sleep_until(pacer.due_ns(media_ns, time.monotonic_ns()))

    def _sleep_until(self, due_ns: int) -> bool:
        while not self._stop.is_set():
            left_ns = due_ns - time.monotonic_ns()
            if left_ns <= 0:
                return True
            self._stop.wait(left_ns / NS)
        return False

    def _take(self, reader: Reader, decoded: DecodedFrame, pacer: Pacer | None, skip_to_ns: int) -> None:
        """One decoded frame: stamp, choose, wait until due, convert, hand over."""
        frame = decoded.frame
        stamp = self._timeline.stamp(frame.pts, frame.time_base)
        now_ns = time.monotonic_ns()
        self._last_frame_ns = now_ns
        self._count_rate(now_ns)
        self._size_px = displayed_size_px(frame)
        if self._state is not DecodeState.RUNNING:
            self._backoff.reset()
            self._tell(DecodeState.RUNNING)
        elif now_ns - self._reported_ns > REPORT_PERIOD_NS:
            self._tell(DecodeState.RUNNING)
        interval_ns = self._timeline.interval_ns
        if stamp.media_time_ns <= skip_to_ns or not self._gate.takes(
            stamp.media_time_ns, interval_ns, decoded.arrived_ns
        ):
            return
        capture_ns = decoded.arrived_ns
        if pacer is not None:
            capture_ns = pacer.due_ns(stamp.media_time_ns, now_ns)
            if not self._sleep_until(capture_ns):
                return
        self._ingest(decoded, capture_ns, stamp.media_time_ns, synthetic=stamp.synthetic)

    def _ingest(self, decoded: DecodedFrame, capture_ns: int, media_time_ns: int, *, synthetic: bool) -> None:
        task = self._task
        late_ns = time.monotonic_ns() - capture_ns
        if not task.offline and late_ns > STALE_NS:
            self._drop(capture_ns, "stale")
            return
        out = self._port.take(0.2)
        while out is None:
            if self._stop.is_set():
                return
            out = self._port.take(0.2)
        try:
            picture = self._converter.rgb(decoded.frame)
            transform = task.preprocess(picture, out)
        except Exception:  # whatever a picture does to the libraries costs that frame, not the stream
            self._new_errors += 1
            self._drop(capture_ns, "error")
            return
        now_ns = time.monotonic_ns()
        seq, self._seq = self._seq, self._seq + 1
        notice = FrameNotice(
            stream_id=task.stream_id,
            seq=seq,
            slot=-1,
            capture_ns=capture_ns if not task.offline else now_ns,
            decoded_ns=now_ns,
            capture_unix_ns=time.time_ns() - (now_ns - capture_ns),
            media_time_ns=media_time_ns,
            width_px=picture.shape[1],
            height_px=picture.shape[0],
            transform=transform,
            synthetic=synthetic,
        )
        self._port.deliver(notice, out)

    def _drop(self, capture_ns: int, reason: str) -> None:
        seq, self._seq = self._seq, self._seq + 1
        self._sink.dropped(self._task.stream_id, seq, capture_ns, reason)

    def _count_rate(self, now_ns: int) -> None:
        """Measures the rate at which frames come, over about five seconds."""
        if self._rate_from is None:
            self._rate_from = (now_ns, 0)
            return
        since_ns, count = self._rate_from
        count += 1
        if now_ns - since_ns > 5 * NS:
            self._fps = count * NS / (now_ns - since_ns)
            self._rate_from = (now_ns, 0)
        else:
            self._rate_from = (since_ns, count)
            if not self._fps or now_ns - since_ns > NS:
                self._fps = count * NS / max(1, now_ns - since_ns)

    def _tell(self, state: DecodeState, error: SourceError | None = None) -> None:
        with self._report_lock:
            self._state, self._error = state, error
            self._reported_ns = time.monotonic_ns()
            if self._reader is not None:
                self._new_errors += self._reader.damaged_packets
                self._total_errors += self._reader.damaged_packets
                self._reader.damaged_packets = 0
            errors, self._new_errors = self._new_errors, 0
            reconnects, self._new_reconnects = self._new_reconnects, 0
            report = StreamReport(
                stream_id=self._task.stream_id,
                state=state,
                error_code=error.code.value if error is not None else "",
                error=str(error) if error is not None else "",
                width_px=self._size_px[0],
                height_px=self._size_px[1],
                codec=self._codec,
                measured_fps=round(self._fps, 3),
                new_decode_errors=errors,
                new_reconnects=reconnects,
            )
        self._sink.state(report)


def failed_report(stream_id: int, redacted: str, exc: BaseException) -> StreamReport:
    """The report of a stream that could not even be begun."""
    error = classify(exc, redacted, is_file=False)
    return StreamReport(stream_id, DecodeState.FAILED, error.code.value, str(error))
