"""How a client reaches its server: address, token, TLS, limits; and how what goes wrong on the way becomes an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.rpc import status_pb2

from framepool import FramepoolError
from framepool.engine.api.errors import (
    InternalError,
    OverloadedError,
    TransportError,
    UnauthenticatedError,
    UnreachableError,
)
from framepool.engine.api.options import DEFAULT_SERVER
from framepool.engine.api.status import from_status
from framepool.engine.errors import ConfigError, DeadlineError, InvalidArgumentError

_DETAILS_KEY = "grpc-status-details-bin"
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})|unix:.+")


@dataclass(frozen=True, slots=True)
class Connection:
    """`server` is "host:port"; `timeout_s` bounds each call that names none of its own (also the wait for a server).

    With `token`, every call sends it. With `tls_ca` (or `tls`, for the system's authorities) the channel is encrypted.
    """

    server: str = DEFAULT_SERVER
    token: str = field(default="", repr=False)
    timeout_s: float = 15.0
    tls: bool = False
    tls_ca: Path | None = None
    max_message_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        match = _ADDRESS.fullmatch(self.server)
        if match is None or (match["port"] and not 0 < int(match["port"]) <= 65535):
            raise ConfigError(f"server {self.server[:100]!r} is no address; write host:port", field="server")

    @property
    def options(self) -> list[tuple[str, int]]:
        """Channel options: keepalive finds a dead server also while nothing is asked; no proxy stands in between."""
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.use_local_subchannel_pool", 1),
        ]

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS credentials, or None for a plain channel. ConfigError where the file can't be read."""
        if self.tls_ca is None:
            return grpc.ssl_channel_credentials() if self.tls else None
        try:
            return grpc.ssl_channel_credentials(self.tls_ca.read_bytes())
        except OSError as error:
            raise ConfigError(f"{self.tls_ca} can't be read: {error.strerror}", field="tls_ca") from error


def error_of(failure: Any, server: str) -> FramepoolError:
    """The error that a failed call stands for: the engine's own leaf, or what happened on the way.

    `failure` is a grpc.RpcError that is also a call (sync) or a grpc.aio.AioRpcError.
    """
    for key, value in failure.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            revived = from_status(status_pb2.Status.FromString(value))
            if revived is not None:
                return revived
    code, details = failure.code(), failure.details() or ""
    kinds: dict[grpc.StatusCode, type[TransportError]] = {
        grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
        grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    }
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnreachableError(f"no engine answers at {server}; start one with `framepool serve` or give its address")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(f"{server} gave no answer in time; what was asked may still take effect")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return InvalidArgumentError(f"{server} does not know this call; its version differs: {details}")
    kind = kinds.get(code, InternalError)
    return kind(f"{server} answered {code.name if code else 'nothing'}: {details}")
