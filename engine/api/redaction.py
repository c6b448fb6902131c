"""The last guard before text leaves the engine: credentials of URLs are taken out of messages and logs.

Those who write messages keep secrets out of them; this catches what a library's text brings along.
"""

from __future__ import annotations

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_END_OF_URL = re.compile(r"[\s\"'<>|]")


def redact_text(text: str) -> str:
    """`text` with everything between a URL's scheme and its last ``@`` replaced by ``***``.

    A password may hold ``/``, ``#``, ``:`` or ``@`` unescaped, so the last ``@`` of the URL ends it; a path that holds
    one loses its host too, which is the safe side.
    """
    parts: list[str] = []
    at = 0
    while found := _SCHEME.search(text, at):
        parts.append(text[at : found.end()])
        end = _END_OF_URL.search(text, found.end())
        stop = end.start() if end else len(text)
        following = _SCHEME.search(text, found.end(), stop)
        url = text[found.end() : following.start() if following else stop]
        at = found.end()
        if "@" in url:
            parts.append("***@")
            at += url.rindex("@") + 1
    parts.append(text[at:])
    return "".join(parts)
