"""Printing: tables for people (plain text where there is no terminal), JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

_SECRET_FIELDS = frozenset(("username", "password"))


def to_builtins(value: object) -> Any:
    """`value` (dataclasses, enums, tuples) as what JSON knows, without fields that are write-only."""
    import msgspec

    return _without_secrets(msgspec.to_builtins(value))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items() if key not in _SECRET_FIELDS}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value


def print_json(value: object) -> None:
    """`value` as indented JSON."""
    typer.echo(json.dumps(to_builtins(value), indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """`value` as JSON on one line, sent off at once."""
    typer.echo(json.dumps(to_builtins(value), ensure_ascii=False))
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Rows under their columns; `empty` where there are none."""
    typer.echo(table_text(columns, rows) if rows else empty)


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart, drawn by rich on a terminal and plain elsewhere."""
    if sys.stdout.isatty():
        return _drawn(columns, rows)
    widths = [max(len(line[index]) for line in (columns, *rows)) for index in range(len(columns))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (columns, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


def print_fields(fields: Mapping[str, str]) -> None:
    """One field a line, those without a value left out."""
    shown = {name: value for name, value in fields.items() if value}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name.ljust(width)}  {value}")


def utc_text(unix_ns: int) -> str:
    """Date and time to the millisecond, UTC."""
    moment = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{unix_ns // 1_000_000 % 1000:03d}Z"


def percent(share: float) -> str:
    """A share of 1, never rounded up to 100 %."""
    return "100%" if share >= 1 else f"{int(share * 1000) / 10:.1f}%"
