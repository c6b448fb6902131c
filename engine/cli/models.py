"""``framepool models``: add, show, cut and export models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from framepool.engine.cli.files import read_labels, read_text
from framepool.engine.cli.output import print_fields, print_json, print_table
from framepool.engine.cli.session import JsonOption, ServerOption, connect
from framepool.engine.control import ModelInfo

app = typer.Typer(help="Models: add, list, show, cuts, rm, export.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]
Weights = Literal["default", "random"]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace a model of that name.")]


@app.command("add")
def add(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="ONNX file on this machine (on the engine's with --on-server).")],
    name: Annotated[str, typer.Option("--name", help="Name of the model; else the file's.")] = "",
    labels: Annotated[str, typer.Option("--labels", help="File with one label a line, or a,b,c.")] = "",
    head: Annotated[str, typer.Option("--head", help="Kind of head that decodes the outputs.")] = "",
    spec: Annotated[
        Path | None, typer.Option("--spec", help="TOML that overrides what the file says; else the one beside it.")
    ] = None,
    on_server: Annotated[bool, typer.Option("--on-server", help="PATH is on the engine's machine.")] = False,
    replace: ReplaceOption = False,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Add a model; it is checked by a dry run before it is accepted."""
    from framepool.engine.client.model_files import ModelSource

    beside = path.with_suffix(".toml")
    if spec is None and not on_server and beside.is_file():
        spec = beside
    source = ModelSource(
        name=name or model_name(path.stem),
        path=None if on_server else path,
        server_path=str(path) if on_server else "",
        spec_toml=read_text(spec) if spec else "",
        head=head,
        labels=read_labels(labels) if labels else (),
        replace=replace,
    )
    with connect(ctx, server) as client:
        info = client.add_model(source)
    _print_added(info, as_json)


@app.command("list")
def list_(ctx: typer.Context, server: ServerOption = "", as_json: JsonOption = False) -> None:
    """List the models."""
    with connect(ctx, server) as client:
        models = client.list_models()
    if as_json:
        print_json(models)
        return
    columns = ("NAME", "TASK", "HEAD", "INPUT", "BATCH", "BLOCKS", "CLASSES", "LATENCY", "ORIGIN")
    rows = [
        (
            info.name,
            info.task,
            info.head,
            _input(info),
            _batch(info),
            str(info.n_blocks),
            str(len(info.labels)),
            _latency(info) or "not profiled",
            info.origin,
        )
        for info in models
    ]
    print_table(columns, rows, empty="no models; add one with `framepool models add`")


@app.command("show")
def show(ctx: typer.Context, name: NameArgument, server: ServerOption = "", as_json: JsonOption = False) -> None:
    """Show one model."""
    with connect(ctx, server) as client:
        info = client.get_model(name)
    if as_json:
        print_json(info)
        return
    print_fields(
        {
            "name": info.name,
            "task": info.task,
            "head": info.head,
            "input": _input(info),
            "batch": _batch(info) + ("" if info.batch_safe else " (frames of a batch influence each other)"),
            "blocks": str(info.n_blocks),
            "classes": ", ".join(info.labels),
            "latency": _latency(info) or "not profiled",
            "opset": str(info.opset),
            "digest": info.digest,
            "origin": info.origin,
            "license": info.license,
            "built in": "yes" if info.builtin else "",
        }
    )


@app.command("cuts")
def cuts(ctx: typer.Context, name: NameArgument, server: ServerOption = "", as_json: JsonOption = False) -> None:
    """Show where a model may be cut, and what crosses each cut."""
    with connect(ctx, server) as client:
        found = client.model_cuts(name)
    if as_json:
        print_json(found)
        return
    columns = ("BEFORE BLOCK", "BYTES A FRAME", "EXACT", "TENSORS")
    rows = [
        (
            str(cut.block),
            f"{cut.bytes_per_frame:,}",
            "yes" if cut.exact else f"within {cut.max_abs_error:.1g}",
            ", ".join(cut.tensors),
        )
        for cut in found
    ]
    print_table(columns, rows, empty=f"{name} can't be cut")


@app.command("rm")
def remove(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names of models.")],
    server: ServerOption = "",
) -> None:
    """Remove models that no stream uses."""
    with connect(ctx, server) as client:
        for name in names:
            client.remove_model(name)
            typer.echo(f"{name}: removed")


@app.command("export")
def export(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a torchvision model, like resnet50.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the ONNX file and its spec.")] = Path(),
    weights: Annotated[Weights, typer.Option("--weights", help="default (downloads them) or random.")] = "default",
    add_it: Annotated[bool, typer.Option("--add", help="Add it to the engine when it is exported.")] = False,
    replace: ReplaceOption = False,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Export a torchvision model to ONNX (needs the extra `export`)."""
    from framepool.models.export import export_model

    exported = export_model(name, out, weights=weights)
    if not add_it:
        if as_json:
            print_json({"path": str(exported.path)})
        else:
            typer.echo(f"{exported.path}: exported; add it with `framepool models add {exported.path}`")
        return
    from framepool.engine.client.model_files import ModelSource

    source = ModelSource(model_name(name), exported.path, spec_toml=exported.spec_toml, replace=replace)
    with connect(ctx, server) as client:
        _print_added(client.add_model(source), as_json)


def model_name(stem: str) -> str:
    """A model's name from a file's: lower case, what is not a-z, 0-9, '-' or '_' becomes '-'."""
    return re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_")[:63]


def _print_added(info: ModelInfo, as_json: bool) -> None:
    if as_json:
        print_json(info)
        return
    typer.echo(
        f"{info.name}: {info.task} with head {info.head}, {_input(info)}, "
        f"{len(info.labels)} classes, {info.n_blocks} blocks, batch {_batch(info)}"
    )


def _input(info: ModelInfo) -> str:
    return f"{info.input_width_px}x{info.input_height_px}"


def _batch(info: ModelInfo) -> str:
    return str(info.max_batch) if info.max_batch else "any"


def _latency(info: ModelInfo) -> str:
    return ", ".join(f"{latency_ms:.1f}ms {device_class}" for device_class, latency_ms in info.latency_ms.items())
