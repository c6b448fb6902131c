"""``framepool config``: what configuration is in force, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Configuration: show.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Configuration: show."""


@app.command("show")
def show(
    config: Annotated[
        Path | None, typer.Option("--config", help="Configuration, TOML.", envvar="FRAMEPOOL_CONFIG")
    ] = None,
) -> None:
    """Print each setting in force and where it comes from."""
    from framepool.engine.config import describe, load_config

    typer.echo(describe(load_config(config)))
