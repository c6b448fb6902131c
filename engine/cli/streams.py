"""``framepool streams``: register cameras, files and URLs, and see how they fare."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from framepool.engine.cli.credentials import (
    AskOption,
    PasswordFileOption,
    UsernameOption,
    absolute_source,
    environment_password,
    given_password,
)
from framepool.engine.cli.output import print_fields, print_json, print_table
from framepool.engine.cli.session import JsonOption, ServerOption, connect
from framepool.engine.cli.stream_views import LIST_COLUMNS, fields, list_row, summary, view
from framepool.engine.cli.values import duration_ms, duration_ns, pairs
from framepool.engine.control import StreamChanges, StreamConfig, StreamInfo, StreamState
from framepool.engine.scheduling.events import ServiceClass

if TYPE_CHECKING:
    from framepool.engine.client import Client

app = typer.Typer(help="Streams: add, list, get, update, rm.", no_args_is_help=True)

_POLL_S = 0.1

SloOption = Annotated[str, typer.Option("--slo", help="Capture to detections published, like 150ms.")]
FpsOption = Annotated[float, typer.Option("--fps", help="Frames per second to analyse.")]
ModelOption = Annotated[str, typer.Option("--model", help="Model to run; see `framepool models list`.")]
LabelOption = Annotated[
    list[str] | None, typer.Option("--class", "--label", help="Publish only this class; may be given again.")
]
MetadataOption = Annotated[list[str] | None, typer.Option("--metadata", help="key=value; may be given again.")]


@app.command("add")
def add(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="rtsp://, rtsps://, http://, https:// or a file.")],
    name: Annotated[str, typer.Option("--name", help="Name of the stream: a-z, 0-9 and '-'.")],
    slo: SloOption,
    fps: FpsOption,
    model: ModelOption,
    username: UsernameOption = None,
    password_file: PasswordFileOption = None,
    ask_password: AskOption = False,
    offline: Annotated[bool, typer.Option("--offline", help="Analyse a file in full; drop nothing.")] = False,
    loop: Annotated[bool, typer.Option("--loop", help="Begin a file again at its end.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="Register it, but do not read it yet.")] = False,
    min_score: Annotated[float, typer.Option("--min-score", help="Least score to publish, 0 to 1.")] = 0.0,
    labels: LabelOption = None,
    metadata: MetadataOption = None,
    wait: Annotated[str, typer.Option("--wait", help="How long to wait for its first state.")] = "5s",
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register a stream and start it."""
    from framepool.engine.api.credentials import split_credentials

    wait_s = duration_ns(wait) / 1e9
    split = split_credentials(source)
    password = given_password(password_file, ask_password)
    config = StreamConfig(
        name=name,
        source=absolute_source(split.source),
        model=model,
        slo_ms=duration_ms(slo),
        target_fps=fps,
        username=split.username if username is None else username,
        password=(split.password or environment_password(source)) if password is None else password,
        service_class=ServiceClass.OFFLINE if offline else ServiceClass.LIVE,
        loop=loop,
        enabled=not disabled,
        min_score=min_score,
        labels=tuple(labels or ()),
        metadata=pairs(metadata or ()),
    )
    with connect(ctx, server) as client:
        _say_if_measured_first(client, model)
        info = _settled(client, client.register_stream(config), wait_s)
    if as_json:
        print_json(view(info))
    else:
        typer.echo(summary(info))


@app.command("list")
def list_(ctx: typer.Context, server: ServerOption = "", as_json: JsonOption = False) -> None:
    """List the streams."""
    with connect(ctx, server) as client:
        streams = client.list_streams()
    if as_json:
        print_json([view(info) for info in streams])
    else:
        rows = [list_row(info) for info in streams]
        print_table(LIST_COLUMNS, rows, empty="no streams; add one with `framepool streams add`")


@app.command("get")
def get(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the stream.")],
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show one stream."""
    with connect(ctx, server) as client:
        info = client.get_stream(name)
    if as_json:
        print_json(view(info))
    else:
        print_fields(fields(info))


@app.command("update")
def update(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the stream.")],
    source: Annotated[str | None, typer.Option("--source", help="New source.")] = None,
    slo: Annotated[str | None, typer.Option("--slo", help="New SLO, like 150ms.")] = None,
    fps: Annotated[float | None, typer.Option("--fps", help="New frames per second.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="New model.")] = None,
    username: UsernameOption = None,
    password_file: PasswordFileOption = None,
    ask_password: AskOption = False,
    loop: Annotated[bool | None, typer.Option("--loop/--no-loop", help="Begin a file again at its end.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Read it, or stop reading it.")] = None,
    min_score: Annotated[float | None, typer.Option("--min-score", help="Least score to publish.")] = None,
    labels: LabelOption = None,
    all_labels: Annotated[bool, typer.Option("--all-classes", help="Publish every class again.")] = False,
    metadata: MetadataOption = None,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change a stream; what is not named stays as it is."""
    from framepool.engine.api.credentials import split_credentials

    if labels and all_labels:
        raise typer.BadParameter("--class and --all-classes exclude each other")
    changes = StreamChanges(
        slo_ms=None if slo is None else duration_ms(slo),
        target_fps=fps,
        model=model,
        username=username,
        password=given_password(password_file, ask_password),
        enabled=enabled,
        min_score=min_score,
        labels=() if all_labels else tuple(labels) if labels else None,
        metadata=pairs(metadata) if metadata else None,
        loop=loop,
    )
    if source is not None:
        split = split_credentials(source)
        changes = replace(changes, source=absolute_source(split.source))
        if split.username and changes.username is None:
            changes = replace(changes, username=split.username)
        if split.password and changes.password is None:
            changes = replace(changes, password=split.password)
    if changes == StreamChanges():
        raise typer.BadParameter("nothing to change; name at least one option")
    with connect(ctx, server) as client:
        info = client.update_stream(name, changes)
    if as_json:
        print_json(view(info))
    else:
        typer.echo(summary(info))


@app.command("rm")
def remove(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names of streams.")],
    server: ServerOption = "",
) -> None:
    """Stop and forget streams. Their stored detections stay until their retention ends."""
    with connect(ctx, server) as client:
        for name in names:
            client.delete_stream(name)
            typer.echo(f"{name}: removed")


def _say_if_measured_first(client: Client, model: str) -> None:
    """A model's first stream waits until the model is measured: says so, lest it look like a hang."""
    unmeasured = any(info.name == model and not info.latency_ms for info in client.list_models())
    if unmeasured:
        typer.echo(f"model {model} is measured on these devices first, once; this takes some seconds", err=True)


def _settled(client: Client, info: StreamInfo, wait_s: float) -> StreamInfo:
    """The stream once it has left CONNECTING, or as it stands after `wait_s`."""
    give_up_s = time.monotonic() + wait_s
    while info.state is StreamState.CONNECTING and time.monotonic() < give_up_s:
        time.sleep(_POLL_S)
        info = client.get_stream(info.config.name)
    return info
