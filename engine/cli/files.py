"""Files that options name: secrets, label lists, specs. A file that can't be read is a usage error that names it."""

from __future__ import annotations

from pathlib import Path

import typer

_LARGEST_BYTES = 4 * 1024 * 1024


def read_text(path: Path) -> str:
    """The text of a small file."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise typer.BadParameter(f"{path} has more than {_LARGEST_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not UTF-8 text") from error


def read_secret(path: Path) -> str:
    """The first line of `path`, without its end of line."""
    lines = read_text(path).splitlines()
    if not lines or not lines[0]:
        raise typer.BadParameter(f"{path} is empty; its first line must be the secret")
    return lines[0]


def read_labels(text: str) -> tuple[str, ...]:
    """Labels from a file with one a line, or from ``a,b,c``."""
    path = Path(text)
    parts = read_text(path).splitlines() if path.is_file() else text.split(",")
    labels = tuple(part.strip() for part in parts if part.strip())
    if not labels:
        raise typer.BadParameter(f"{text!r} holds no labels; name a file with one a line, or write a,b,c")
    return labels
