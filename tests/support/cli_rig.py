"""Calls the command line in this process."""

from __future__ import annotations

from typing import Protocol

from typer.testing import CliRunner

from framepool.engine.cli.app import app


class Ended(Protocol):
    """What a command came to."""

    exit_code: int

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...

    @property
    def output(self) -> str: ...


class Run(Protocol):
    """Runs `framepool <arguments>`; `input` is typed."""

    def __call__(self, *arguments: str, input: str | None = None) -> Ended: ...


def run_cli(*arguments: str, input: str | None = None) -> Ended:
    return CliRunner().invoke(app, list(arguments), input=input)
