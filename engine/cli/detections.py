"""``framepool detections``: query what was seen, watch what is seen now."""

from __future__ import annotations

from typing import Annotated

import typer

from framepool.engine.cli.output import print_json, print_json_line, print_table, utc_text
from framepool.engine.cli.session import JsonOption, ServerOption, connect
from framepool.engine.cli.values import moment_unix_ns
from framepool.engine.control import DetectionFilter, DetectionRow, FrameDetections

app = typer.Typer(help="Detections: query, watch.", no_args_is_help=True)

StreamOption = Annotated[list[str] | None, typer.Option("--stream", help="Only this stream; may be given again.")]
ClassOption = Annotated[
    list[str] | None, typer.Option("--class", "--label", help="Only this class; may be given again.")
]
ScoreOption = Annotated[float, typer.Option("--min-score", help="Only this score or more, 0 to 1.")]
_LARGEST_PAGE = 1000


@app.command("query")
def query(
    ctx: typer.Context,
    stream: StreamOption = None,
    since: Annotated[str | None, typer.Option("--since", help="How long ago (5m) or a date and time.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="How long ago (5m) or a date and time.")] = None,
    classes: ClassOption = None,
    min_score: ScoreOption = 0.0,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most frames to print; 0: all.")] = 1000,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print stored detections, oldest first."""
    wanted = DetectionFilter(
        streams=tuple(stream or ()),
        labels=tuple(classes or ()),
        min_score=min_score,
        start_unix_ns=None if since is None else moment_unix_ns(since),
        end_unix_ns=None if until is None else moment_unix_ns(until),
    )
    frames: list[FrameDetections] = []
    more = False
    with connect(ctx, server) as client:
        for frame in client.iterate_detections(wanted, page_size=min(limit or _LARGEST_PAGE, _LARGEST_PAGE)):
            if limit and len(frames) >= limit:
                more = True
                break
            frames.append(frame)
    if as_json:
        print_json(frames)
    else:
        columns = ("TIME", "STREAM", "FRAME", "CLASS", "SCORE", "X1", "Y1", "X2", "Y2")
        rows = [
            (utc_text(frame.capture_unix_ns), frame.stream, str(frame.seq), row.label, _score(row), *_corners(row))
            for frame in frames
            for row in frame.rows
        ]
        print_table(columns, rows, empty="no detections")
    if more:
        typer.echo(f"there are more than {limit} frames; see --limit and --since", err=True)


@app.command("watch")
def watch(
    ctx: typer.Context,
    stream: StreamOption = None,
    classes: ClassOption = None,
    min_score: ScoreOption = 0.0,
    resume: Annotated[int | None, typer.Option("--resume", help="Begin after this cursor.")] = None,
    count: Annotated[int, typer.Option("--count", min=0, help="End after this many frames; 0: never.")] = 0,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print detections as they come, until interrupted. With --json, one object a line."""
    wanted = DetectionFilter(streams=tuple(stream or ()), labels=tuple(classes or ()), min_score=min_score)
    seen = 0
    with connect(ctx, server) as client, client.watch_detections(wanted, resume_cursor=resume) as items:
        for item in items:
            if item.frame is None:
                typer.echo(f"{item.lost} frames were skipped: this watcher was too slow", err=True)
                continue
            if as_json:
                print_json_line(item.frame)
            else:
                typer.echo(_line(item.frame))
            seen += 1
            if count and seen >= count:
                return


def _line(frame: FrameDetections) -> str:
    what = ", ".join(f"{row.label} {_score(row)} [{' '.join(_corners(row))}]" for row in frame.rows)
    late = "" if frame.in_time else " LATE"
    return f"{utc_text(frame.capture_unix_ns)}  {frame.stream}  {frame.latency_ns / 1e6:.0f}ms{late}  {what}"


def _score(row: DetectionRow) -> str:
    return f"{row.score:.2f}"


def _corners(row: DetectionRow) -> tuple[str, ...]:
    return tuple(f"{value:.0f}" for value in row.box)
