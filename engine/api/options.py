"""How the API server is to behave. Data and its checks; nothing is opened here."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from framepool.engine.errors import ConfigError

DEFAULT_PORT = 7707
DEFAULT_HTTP_PORT = 7708
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Settings of the gRPC server. `port` 0: the system picks one.

    `max_message_bytes` bounds one message either way (gRPC's own default of 4 MB cuts off large pages);
    `max_model_bytes` bounds an uploaded model with its external data; a model may be read from the engine's own disk
    only below `model_roots`. `quick_calls` and `slow_calls` bound the threads for calls that only look and for those
    that probe, plan or measure; each lane queues as many again as `queue_factor` times its threads, then refuses.
    A watcher costs no thread. `auth_token`: when set, every call but health must send it as a bearer token.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    max_message_bytes: int = 32 * 1024 * 1024
    max_model_bytes: int = 2 * 1024 * 1024 * 1024
    max_uploads: int = 2
    max_watchers: int = 256
    quick_calls: int = 8
    slow_calls: int = 4
    queue_factor: int = 16
    quick_timeout_s: float = 10.0
    slow_timeout_s: float = 120.0
    profile_timeout_s: float = 3600.0
    heartbeat_s: float = 10.0
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0
    model_roots: tuple[Path, ...] = ()
    auth_token: str = field(default="", repr=False)
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port} is not one of 0 to 65535", field="api.port")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and a key; only one is set", field="api.tls_certificate")
        for name in ("max_message_bytes", "max_model_bytes", "max_uploads", "max_watchers", "quick_calls",
                     "slow_calls", "queue_factor", "quick_timeout_s", "slow_timeout_s", "profile_timeout_s",
                     "heartbeat_s", "keepalive_s", "keepalive_timeout_s"):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0", field=f"api.{name}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
