"""What every verb needs to reach the engine, and the options that say so. The client is loaded only when it is used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framepool.engine.cli.files import read_secret

if TYPE_CHECKING:
    from framepool.engine.client import Client

ServerOption = Annotated[str, typer.Option("--server", help="Address of the engine, host:port.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Session:
    """Where the engine is and how it is spoken to, from the options before the verb."""

    server: str = ""
    token_file: Path | None = None
    tls_ca: Path | None = None


def connect(ctx: typer.Context, server: str = "") -> Client:
    """A client as the options say; `server` is the verb's own option and goes first."""
    from framepool.engine.api.options import DEFAULT_SERVER
    from framepool.engine.client import Client, Connection

    session = ctx.find_object(Session) or Session()
    token = read_secret(session.token_file) if session.token_file else os.environ.get("FRAMEPOOL_TOKEN", "")
    return Client(Connection(server or session.server or DEFAULT_SERVER, token=token, tls_ca=session.tls_ca))
