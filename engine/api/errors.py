"""Errors of the way between client and engine; what the engine itself refuses is in `engine.errors`."""

from __future__ import annotations

from framepool import FramepoolError


class TransportError(FramepoolError):
    """Base of errors that say nothing about the request's content."""


class OverloadedError(TransportError):
    """The server has as many calls or watchers under way as it takes; ask again shortly."""


class UnauthenticatedError(TransportError):
    """The server asks for a token, and none or a wrong one was sent."""


class UnreachableError(TransportError):
    """No server answers at the address, or the connection broke."""


class InternalError(TransportError):
    """A fault in the engine; `incident` is the id under which its log tells more."""

    def __init__(self, message: str, *, field: str = "", incident: str = "") -> None:
        super().__init__(message, field=field)
        self.incident = incident


class ServerStartError(TransportError):
    """The server could not start: the port is taken, a certificate can't be read."""
