"""Pages of a short list that the engine gives whole: keyset tokens over the names, stable while entries come and go.

A token holds what it belongs to and the last name shown, with a checksum: one from elsewhere is refused, not guessed
at. (Pages of detections are the store's own.)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from framepool.engine.api import checks
from framepool.engine.errors import InvalidArgumentError

Item = TypeVar("Item")
_CHECK_BYTES = 6


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page, in the order of names; `next_token` is "" on the last one."""

    items: tuple[Item, ...]
    next_token: str


def page_of(
    items: Sequence[Item], name_of: Callable[[Item], str], *, collection: str, page_size: int, page_token: str
) -> Page[Item]:
    """The page of `items` after the one that gave `page_token` ("": the first)."""
    size = checks.page_size(page_size)
    after = _opened(collection, checks.page_token(page_token)) if page_token else ""
    rest = [item for item in sorted(items, key=name_of) if name_of(item) > after]
    shown = tuple(rest[:size])
    return Page(shown, _sealed(collection, name_of(shown[-1])) if len(rest) > size else "")


def _check(collection: str, name: str) -> bytes:
    return hashlib.blake2b(f"{collection}\0{name}".encode(), digest_size=_CHECK_BYTES).digest()


def _sealed(collection: str, name: str) -> str:
    return base64.urlsafe_b64encode(_check(collection, name) + name.encode()).decode().rstrip("=")


def _opened(collection: str, token: str) -> str:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        name = raw[_CHECK_BYTES:].decode()
    except (binascii.Error, ValueError):
        name, raw = "", b""
    if not name or raw[:_CHECK_BYTES] != _check(collection, name):
        raise InvalidArgumentError(
            f"page_token {checks.shown(token)} was not given out for a page of {collection}; begin with an empty one",
            field="page_token",
        )
    return name
