"""Takes credentials out of free text that others wrote (library messages, child output) before it is kept."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/?#\"'<>]*@|(?P<s2>[a-z]+s?://)[^\s\"'<>]*@")


def redact_text(text: str) -> str:
    """`text` with the user:password part of every URL in it replaced by `***`."""
    return _CREDENTIALS.sub(lambda found: f"{found.group('scheme') or found.group('s2')}***@", text)
