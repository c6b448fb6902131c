"""The root of the command line: its groups, the options all verbs share, and how errors end a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from framepool import FramepoolError, __version__
from framepool.benchmarks import cli as bench
from framepool.engine.cli import config, detections, engine, models, serve, streams
from framepool.engine.cli.session import Session

INTERRUPTED = 130


class _Root(TyperGroup):
    """Ends a command that failed with one line on stderr and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FramepoolError as error:
            from framepool.engine.cli.exits import explain

            told = explain(error)
            typer.echo(f"framepool: {told.message}", err=True)
            raise typer.Exit(told.code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of our output left, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    cls=_Root,
    help="Cameras in, detections out, each stream with a latency SLO.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(streams.app, name="streams")
app.add_typer(detections.app, name="detections")
app.add_typer(models.app, name="models")
app.add_typer(config.app, name="config")
app.add_typer(bench.app, name="bench")
serve.add_to(app)
engine.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"framepool {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    server: Annotated[str, typer.Option(help="Address of the engine, host:port.", envvar="FRAMEPOOL_SERVER")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the server's token (or set FRAMEPOOL_TOKEN).")
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Certificate authority of the server; turns on TLS.", envvar="FRAMEPOOL_TLS_CA")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    ctx.obj = Session(server=server, token_file=token_file, tls_ca=tls_ca)
