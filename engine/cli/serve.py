"""``framepool serve``: runs the engine in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Adds the verb to the root."""
    app.command("serve")(serve)


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", help="Configuration, TOML.", envvar="FRAMEPOOL_CONFIG")
    ] = None,
) -> None:
    """Start the engine and serve until SIGTERM or Ctrl-C; frames under way are finished first."""
    from framepool.engine.serve import run

    run(config)
