"""Takes the user and password out of a stream's URL, as people type it: with ``@``, ``/``, ``#`` or ``%`` unescaped.

Only splits; whether the rest is a source that may be opened is for `streams` to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>.*)", re.DOTALL)
_PORT = re.compile(r"\d*")


@dataclass(frozen=True, slots=True)
class SplitSource:
    """`source` without credentials; `username` and `password` decoded, "" where the URL had none."""

    source: str
    username: str = ""
    password: str = field(default="", repr=False)


def split_credentials(source: str) -> SplitSource:
    """`source` and the credentials that were in it.

    Where the part up to the first ``/ ? #`` holds an ``@``, its last one ends the credentials, as the standard has it.
    Where it holds none but looks like ``user:password`` and an ``@`` follows, the password held one of those three
    unescaped, and the last ``@`` of all ends it.
    """
    url = _URL.fullmatch(source)
    if url is None or "@" not in url["rest"]:
        return SplitSource(source)
    rest = url["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        end = authority.rindex("@")
    else:
        _, colon, port = authority.rpartition(":")
        if not colon or _PORT.fullmatch(port) or authority.startswith("["):
            return SplitSource(source)
        end = rest.rindex("@")
    username, _, password = rest[:end].partition(":")
    return SplitSource(url["scheme"] + rest[end + 1 :], unquote(username), unquote(password))
