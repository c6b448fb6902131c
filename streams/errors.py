"""Why a source can't be played, as one error with a code that says what to do about it.

PyAV's and FFmpeg's own texts hold the whole URL, password included, so none of them is ever passed on: `classify`
looks at the kind of error and writes a text of our own around the redacted source.
"""

from __future__ import annotations

from enum import StrEnum

import av
import av.error

from framepool import FramepoolError


class SourceErrorCode(StrEnum):
    """What is wrong with a source."""

    INVALID_SOURCE = "invalid-source"  # not a URL or path that can mean anything
    FORBIDDEN_SOURCE = "forbidden-source"  # a scheme or place that may not be read
    REFUSED = "refused"  # nobody listens there
    UNREACHABLE = "unreachable"  # no route, no such host
    TIMEOUT = "timeout"  # connected, or not, but nothing came
    AUTH = "auth"  # user or password wrong or missing
    NOT_FOUND = "not-found"  # no such file, no such path on the server
    NOT_MEDIA = "not-media"  # what came is no media: a login page, a text file
    NO_VIDEO = "no-video"  # media without a video stream
    INVALID_MEDIA = "invalid-media"  # media that is damaged beyond opening, an empty file
    UNSUPPORTED_CODEC = "unsupported-codec"
    ENDED = "ended"  # a live source closed the connection
    BUSY = "busy"  # too many probes or decoders at once


PERMANENT = frozenset(
    {
        SourceErrorCode.INVALID_SOURCE,
        SourceErrorCode.FORBIDDEN_SOURCE,
        SourceErrorCode.NO_VIDEO,
        SourceErrorCode.UNSUPPORTED_CODEC,
    }
)
"""Trying again can't help, whatever the source."""

_CURES = {
    SourceErrorCode.REFUSED: "nobody listens there; check host and port",
    SourceErrorCode.UNREACHABLE: "the host can't be reached; check its name and the network",
    SourceErrorCode.TIMEOUT: "no answer in time; check that the camera sends",
    SourceErrorCode.AUTH: "user name or password is wrong or missing",
    SourceErrorCode.NOT_FOUND: "there is no such file or path; check it",
    SourceErrorCode.NOT_MEDIA: "what came is no video; check that it is a media URL or file and not a page or text",
    SourceErrorCode.INVALID_MEDIA: "it can't be opened as video; it is empty, cut off or damaged",
    SourceErrorCode.ENDED: "the source closed the connection",
}


class SourceError(FramepoolError):
    """A source can't be played. `code` says why; messages never hold a password."""

    def __init__(self, message: str, *, code: SourceErrorCode, field: str = "source") -> None:
        super().__init__(message, field=field)
        self.code = code

    @property
    def permanent(self) -> bool:
        """Whether trying again can't help."""
        return self.code in PERMANENT


def source_error(redacted: str, code: SourceErrorCode, detail: str = "") -> SourceError:
    """The error of `code` for the source shown as `redacted`."""
    return SourceError(f"source {redacted}: {detail or _CURES[code]}", code=code)


def classify(exc: BaseException, redacted: str, *, is_file: bool) -> SourceError:
    """What PyAV raised, as ours. `redacted` is the source as it may be shown."""
    if isinstance(exc, SourceError):
        return exc
    return source_error(redacted, _code_of(exc, is_file))


def _code_of(exc: BaseException, is_file: bool) -> SourceErrorCode:
    codes = SourceErrorCode
    match exc:
        case av.error.HTTPUnauthorizedError() | av.error.HTTPForbiddenError():
            return codes.AUTH
        case av.error.HTTPNotFoundError() | FileNotFoundError():
            return codes.NOT_FOUND
        case av.error.HTTPError():
            return codes.NOT_MEDIA
        case av.error.DecoderNotFoundError() | av.error.DemuxerNotFoundError():
            return codes.UNSUPPORTED_CODEC
        case av.error.ExitError() | TimeoutError():
            return codes.TIMEOUT
        case ConnectionRefusedError():
            return codes.REFUSED
        case av.error.EOFError() | EOFError():
            return codes.INVALID_MEDIA if is_file else codes.ENDED
        case PermissionError():
            return codes.AUTH if not is_file else codes.FORBIDDEN_SOURCE
        case ConnectionError():
            return codes.ENDED
        case av.error.InvalidDataError():
            return codes.INVALID_MEDIA if is_file else codes.NOT_MEDIA
        case av.error.ProtocolNotFoundError():
            return codes.FORBIDDEN_SOURCE
        case OSError() if "401" in str(exc) and "authoriz" in str(exc).lower():
            return codes.AUTH
        case OSError():
            return codes.INVALID_MEDIA if is_file else codes.UNREACHABLE
    return codes.INVALID_MEDIA if is_file else codes.NOT_MEDIA
