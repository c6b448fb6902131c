"""A stream's source as the user typed it, taken apart: what may be opened, what may be shown, what FFmpeg is given.

Only schemes on an allow-list are opened, each with an FFmpeg protocol list that lets nothing else be reached from
there (a playlist can't name a local file). Files must be regular, and lie under the allowed roots after symbolic links
are followed. A password is kept apart from the first moment on; only `effective_url` puts it back, encoded.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit

from framepool.streams.errors import SourceError, SourceErrorCode, source_error

LONGEST_SHOWN = 200

PROTOCOLS: Mapping[str, str] = MappingProxyType(
    {
        "file": "file",
        "rtsp": "rtsp,rtp,udp,tcp",
        "rtsps": "rtsp,rtsps,rtp,srtp,udp,tcp,tls",
        "http": "http,https,tls,tcp,crypto",
        "https": "http,https,tls,tcp,crypto",
    }
)
"""Schemes that may be opened, each with FFmpeg's `protocol_whitelist`."""

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source that may be opened. `target` is the URL without credentials, or the absolute path of a file."""

    scheme: str
    target: str
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_file(self) -> bool:
        return self.scheme == "file"

    @property
    def redacted(self) -> str:
        """The source as it may be shown: never a user name, password or query."""
        shown = self.target if self.is_file else self.target.split("?", 1)[0]
        return shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 3]}..."

    def effective_url(self) -> str:
        """What FFmpeg opens, credentials encoded. Never log it."""
        if self.is_file:
            return f"file:{self.target}"
        if not self.username and not self.password:
            return self.target
        scheme, _, rest = self.target.partition("://")
        return f"{scheme}://{quote(self.username, safe='')}:{quote(self.password, safe='')}@{rest}"

    @property
    def protocol_whitelist(self) -> str:
        return PROTOCOLS[self.scheme]


def parse_source(
    source: str, username: str = "", password: str = "", *, file_roots: Sequence[Path] | None = None
) -> SourceSpec:
    """Takes a source apart; credentials in the URL give way to those given apart.

    `file_roots`: folders files may lie in (None: anywhere). Raises SourceError: INVALID_SOURCE, FORBIDDEN_SOURCE, or
    NOT_FOUND for a file that is not there.
    """
    text = source.strip()
    if not text or "\x00" in text or "\n" in text or "\r" in text:
        raise SourceError(
            "source is empty or holds a line break; give a URL or the path of a file",
            code=SourceErrorCode.INVALID_SOURCE,
        )
    parts = _SCHEME.fullmatch(text)
    if parts is None or _WINDOWS_DRIVE.match(text):
        return _file(text, file_roots)
    scheme = parts["scheme"].lower()
    if scheme == "file":
        path = unquote(parts["rest"]) if parts["rest"].startswith("//") else parts["rest"]
        return _file(path.removeprefix("//"), file_roots)
    if scheme not in PROTOCOLS:
        raise SourceError(
            f"source: scheme {scheme[:40]!r} may not be opened; use {', '.join(PROTOCOLS)} or the path of a file",
            code=SourceErrorCode.FORBIDDEN_SOURCE,
        )
    return _url(scheme, parts["rest"], username, password)


def _url(scheme: str, rest: str, username: str, password: str) -> SourceSpec:
    if not rest.startswith("//"):
        raise _invalid(scheme)
    bare, url_user, url_password = split_credentials(rest[2:])
    target = f"{scheme}://{bare}"
    try:
        split = urlsplit(target)
        host, _ = split.hostname, split.port
    except ValueError as exc:
        raise _invalid(scheme) from exc
    if not host or any(character.isspace() for character in bare.split("/", 1)[0]):
        raise _invalid(scheme)
    if username or password:
        return SourceSpec(scheme, target, username, password)
    return SourceSpec(scheme, target, url_user, url_password)


def _invalid(scheme: str) -> SourceError:
    return SourceError(
        f"source is no valid {scheme} URL; write {scheme}://host:port/path, and user and password apart",
        code=SourceErrorCode.INVALID_SOURCE,
    )


def split_credentials(rest: str) -> tuple[str, str, str]:
    """What follows ``scheme://`` as (host and path, user, password), whatever unescaped ``@ / # ?`` the password holds.

    The last ``@`` of the authority ends the credentials. Where the authority holds none but reads ``user:word`` with a
    word that is no port, and an ``@`` follows, the password was cut by one of ``/ # ?``: the last ``@`` of all ends it.
    (An ``@`` before one of ``/ # ?`` reads as a host and its path: a password with both must be encoded.)
    """
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        end = authority.rindex("@")
    elif "@" in rest and re.fullmatch(r"[^:\[\]]+:(?!\d+$).*", authority):
        end = rest.rindex("@")
    else:
        return rest, "", ""
    user, _, password = rest[:end].partition(":")
    return rest[end + 1 :], unquote(user), unquote(password)


def _file(text: str, roots: Sequence[Path] | None) -> SourceSpec:
    if text.startswith("-"):
        raise SourceError(
            f"source {text[:60]!r} looks like an option; write ./{text[:60]} for a file of that name",
            code=SourceErrorCode.INVALID_SOURCE,
        )
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
    try:
        path = Path(text).expanduser().resolve(strict=True)
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise source_error(shown, SourceErrorCode.NOT_FOUND) from None
    except (OSError, RuntimeError) as exc:
        raise source_error(shown, SourceErrorCode.INVALID_SOURCE, f"the path can't be followed ({exc})") from None
    if roots is not None and not any(path.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise source_error(
            shown, SourceErrorCode.FORBIDDEN_SOURCE, f"files may only be read below {allowed} (sources.file_roots)"
        )
    if not stat.S_ISREG(mode):
        raise source_error(shown, SourceErrorCode.FORBIDDEN_SOURCE, "it is no regular file; give the path of a file")
    if not path.stat().st_size:
        raise source_error(shown, SourceErrorCode.INVALID_MEDIA, "the file is empty")
    return SourceSpec("file", str(path))
