"""Looks at a source before it is registered, in a process of its own: what a broken file does to FFmpeg ends there.

`python -m framepool.streams.probe` reads the source (with its password) from standard input and prints one JSON line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace

import av

from framepool.streams.errors import SourceError, SourceErrorCode, source_error
from framepool.streams.reader import MediaInfo, Reader, ReaderSettings, displayed_size_px, open_reader
from framepool.streams.source_url import SourceSpec

MOST_PACKETS = 500
"""Packets looked at for a first frame: a file whose first 20 s hold none is no use as a stream."""
START_ALLOWANCE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Answer:
    info: MediaInfo | None
    code: str = ""
    message: str = ""


def probe(spec: SourceSpec, timeout_s: float) -> MediaInfo:
    """What the source holds, one frame of it decoded. Raises SourceError; TIMEOUT when it takes longer."""
    request = {
        "scheme": spec.scheme,
        "target": spec.target,
        "username": spec.username,
        "password": spec.password,
        "timeout_s": timeout_s,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "framepool.streams.probe"],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=timeout_s + START_ALLOWANCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise source_error(spec.redacted, SourceErrorCode.TIMEOUT) from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        detail = f"looking at it ended the decoder (code {done.returncode}); it is damaged in a way that can't be read"
        raise source_error(spec.redacted, SourceErrorCode.INVALID_MEDIA, detail) from None
    if answer["info"] is None:
        raise SourceError(answer["message"], code=SourceErrorCode(answer["code"]))
    return MediaInfo(**answer["info"])


def look(spec: SourceSpec, settings: ReaderSettings) -> MediaInfo:
    """Opens the source here and decodes to its first frame. Raises SourceError."""
    reader = open_reader(spec, settings)
    try:
        return _first_frame(reader, spec)
    finally:
        reader.close()


def _first_frame(reader: Reader, spec: SourceSpec) -> MediaInfo:
    info = reader.info
    for count, packet in enumerate(reader.packets()):
        for decoded in reader.decode(packet):
            return _with_frame(info, decoded.frame)
        if count >= MOST_PACKETS:
            break
    for decoded in reader.decode(None):
        return _with_frame(info, decoded.frame)
    raise source_error(spec.redacted, SourceErrorCode.INVALID_MEDIA, "it opens, but not one frame can be decoded")


def _with_frame(info: MediaInfo, frame: av.VideoFrame) -> MediaInfo:
    width_px, height_px = displayed_size_px(frame)
    return replace(
        info,
        width_px=width_px,
        height_px=height_px,
        rotation_deg=round(frame.rotation),
        interlaced=bool(frame.interlaced_frame),
        pixel_format=frame.format.name,
    )


def main() -> int:
    """Process entry."""
    request = json.loads(sys.stdin.buffer.read())
    timeout_s = float(request["timeout_s"])
    spec = SourceSpec(request["scheme"], request["target"], request["username"], request["password"])
    begin_s = time.monotonic()
    try:
        answer = _Answer(look(spec, ReaderSettings(open_s=timeout_s, read_s=timeout_s)))
    except SourceError as error:
        answer = _Answer(None, error.code.value, str(error))
    except Exception as exc:  # whatever it is, the caller needs an answer, without the source's URL in it
        took_s = time.monotonic() - begin_s
        message = f"source {spec.redacted}: can't be read ({type(exc).__name__} after {took_s:.1f} s)"
        answer = _Answer(None, SourceErrorCode.INVALID_MEDIA.value, message)
    print(json.dumps(asdict(answer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
