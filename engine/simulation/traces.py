"""Arrival times from trace files: one time a line, and the two published traces of Azure Functions. Pure.

Read are, told apart by their first line:

    a number a line, or a CSV whose first column holds one    seconds
    app,func,end_timestamp,duration                           AzureFunctionsInvocationTrace (2021): starts, in seconds
    HashOwner,HashApp,HashFunction,Trigger,1,2,...,1440       Azure Functions (2019): invocations in each minute, of all
                                                              rows together, spread over it evenly
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable

from framepool.engine.errors import ConfigError

SECONDS_A_COLUMN = 60.0


def read_times(lines: Iterable[str], where: str) -> list[float]:
    """Ascending seconds. Raises ConfigError naming `where` and the line."""
    rows = csv.reader(lines)
    header = [cell.strip() for cell in next(rows, [])]
    if header[:4] == ["app", "func", "end_timestamp", "duration"]:
        times = [_number(row, 2, where, line) - _number(row, 3, where, line) for line, row in enumerate(rows, 2) if row]
    elif header[:4] == ["HashOwner", "HashApp", "HashFunction", "Trigger"]:
        times = _spread(rows, len(header) - 4, where)
    else:
        times = [] if not header or not _is_number(header[0]) else [float(header[0])]
        times += [_number(row, 0, where, line) for line, row in enumerate(rows, 2) if row and row[0].strip()]
    if not times:
        raise ConfigError(f"{where} holds no times; write one number of seconds a line", field="arrivals")
    return sorted(times)


def _spread(rows: Iterable[list[str]], columns: int, where: str) -> list[float]:
    """Invocations a minute of all functions, at even distances within it."""
    counts = [0.0] * columns
    for line, row in enumerate(rows, 2):
        for column in range(min(columns, len(row) - 4)):
            counts[column] += _number(row, column + 4, where, line)
    return [
        (minute + (k + 0.5) / round(count)) * SECONDS_A_COLUMN
        for minute, count in enumerate(counts)
        for k in range(round(count))
    ]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(row: list[str], column: int, where: str, line: int) -> float:
    text = row[column].strip() if column < len(row) else ""
    if not _is_number(text):
        raise ConfigError(f"{where}, line {line}: {text[:40]!r} is no number", field="arrivals")
    return float(text)
