"""Where a stream's user, password and file come from on the command line; a password is no option of its own.

Arguments of a process can be read by others on its machine: a password given in the URL is taken out before it travels,
but a file, the environment or a prompt keeps it from being seen at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from framepool.engine.cli.files import read_secret

PASSWORD_VARIABLE = "FRAMEPOOL_STREAM_PASSWORD"

UsernameOption = Annotated[str | None, typer.Option("--username", help="User of the source.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", help=f"File whose first line is the password (or set {PASSWORD_VARIABLE})."),
]
AskOption = Annotated[bool, typer.Option("--ask-password", help="Ask for the source's password.")]


def given_password(path: Path | None, ask: bool) -> str | None:
    """The password from the file or the prompt that was asked for; None where neither was."""
    if path is not None:
        return read_secret(path)
    if ask:
        return str(typer.prompt("Password", hide_input=True))
    return None


def environment_password(source: str) -> str:
    """The password in the environment, for sources that are URLs; "" where there is none."""
    return os.environ.get(PASSWORD_VARIABLE, "") if "://" in source else ""


def absolute_source(source: str) -> str:
    """A file of this machine by its full path: the engine has another working directory."""
    return str(Path(source).absolute()) if "://" not in source and Path(source).exists() else source
