"""``framepool devices``, ``profile``, ``plan`` and ``stats``: the engine itself."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framepool.engine.cli.engine_views import (
    DEVICE_COLUMNS,
    PLAN_COLUMNS,
    device_row,
    plan_rows,
    plan_summary,
    stats_text,
)
from framepool.engine.cli.output import print_json, print_json_line, print_table
from framepool.engine.cli.planning import PlanPolicy, plan_cluster, simulate
from framepool.engine.cli.session import JsonOption, ServerOption, connect
from framepool.engine.cli.values import duration_ns

if TYPE_CHECKING:
    from framepool.engine.client import Client

_SHORTEST_INTERVAL_S = 0.1
CLEAR_SCREEN = "\x1b[H\x1b[2J"


def add_to(app: typer.Typer) -> None:
    """Adds the verbs to the root."""
    app.command("devices")(devices)
    app.command("profile")(profile)
    app.command("plan")(plan)
    app.command("simulate")(simulate)
    app.command("stats")(stats)


def devices(ctx: typer.Context, server: ServerOption = "", as_json: JsonOption = False) -> None:
    """Show the devices and what runs on them."""
    with connect(ctx, server) as client:
        found = client.devices()
    if as_json:
        print_json(found)
    else:
        print_table(DEVICE_COLUMNS, [device_row(device) for device in found], empty="no devices")


def profile(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Models; none: all.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again what was measured before.")] = False,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Measure models on every device class that has no profile of them yet. With --json, one object a line."""
    with connect(ctx, server) as client:
        chosen = names or [info.name for info in client.list_models()]
        for name in chosen:
            if sys.stderr.isatty() and not as_json:
                _profile_with_bar(client, name, force)
            else:
                _profile_with_lines(client, name, force, as_json)
        profiled = [client.get_model(name) for name in chosen]
    if as_json:
        for info in profiled:
            print_json_line({"model": info.name, "latency_ms": info.latency_ms})
        return
    rows = [
        (info.name, device_class, f"{latency_ms:.2f}ms")
        for info in profiled
        for device_class, latency_ms in info.latency_ms.items()
    ]
    print_table(("MODEL", "DEVICE CLASS", "LATENCY"), rows, empty="nothing was profiled: there are no devices")


def _profile_with_bar(client: Client, name: str, force: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(escape(name), total=None)
        for step in client.profile(name, force=force):
            bar.update(task, total=step.total, completed=step.done, description=escape(f"{name}: {step.what}"))
        bar.update(task, description=escape(f"{name}: done"))


def _profile_with_lines(client: Client, name: str, force: bool, as_json: bool) -> None:
    for step in client.profile(name, force=force):
        if as_json:
            print_json_line({"model": name, "done": step.done, "total": step.total, "what": step.what})
        else:
            typer.echo(f"{name}: {step.done}/{step.total} {step.what}", err=True)


def plan(
    ctx: typer.Context,
    replan: Annotated[bool, typer.Option("--replan", help="Plan again first and put that in force.")] = False,
    cluster: Annotated[Path | None, typer.Option("--cluster", help="Plan for this cluster (TOML), no engine.")] = None,
    profiles: Annotated[
        list[Path] | None, typer.Option("--profiles", help="With --cluster: profiles (JSON), or their folder.")
    ] = None,
    demand: Annotated[
        list[str] | None, typer.Option("--demand", help="With --cluster: model=30fps@150ms; may be given again.")
    ] = None,
    slo: Annotated[str | None, typer.Option("--slo", help="With --cluster: one SLO for all, like 150ms.")] = None,
    policy: Annotated[PlanPolicy, typer.Option("--policy", help="With --cluster: how to cut.")] = "framepool",
    max_stages: Annotated[int, typer.Option("--max-stages", min=1, max=4, help="With --cluster.")] = 2,
    margin: Annotated[float, typer.Option("--margin", min=0, max=0.95, help="Share of each SLO for queueing.")] = 0.2,
    spare: Annotated[
        int, typer.Option("--spare", min=0, help="Devices of each class kept free, to stand in for lost ones.")
    ] = 0,
    arrivals: Annotated[
        str | None,
        typer.Option("--arrivals", help="poisson, gamma:CV, cameras:30fps: no margin; what queues is simulated."),
    ] = None,
    jitter: Annotated[
        float, typer.Option("--jitter", min=0, max=0.3, help="With --arrivals: CV of service times to plan for.")
    ] = 0.05,
    out: Annotated[Path | None, typer.Option("--out", help="With --cluster: write the plan here (JSON).")] = None,
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the plan in force: pipelines, their stages, and the devices they run on. With --cluster, plan for devices
    that need not be at hand: what fits, what bounds it, what one more of each would buy."""
    if cluster is not None:
        plan_cluster(
            cluster, profiles or [], demand or [], slo, policy, max_stages, margin, spare, arrivals, jitter, out,
            as_json,
        )  # fmt: skip
        return
    with connect(ctx, server) as client:
        placed = client.replan() if replan else client.plan()
    if as_json:
        print_json(placed)
        return
    print_table(PLAN_COLUMNS, plan_rows(placed), empty="no plan: no stream is registered")
    if placed.plan.pipelines:
        typer.echo(plan_summary(placed))


def stats(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Print again and again, until interrupted.")] = False,
    interval: Annotated[str, typer.Option("--interval", help="How often with --watch.")] = "2s",
    window: Annotated[str, typer.Option("--window", help="Latencies of the last 30s, say; default: 1000 frames.")] = "",
    server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show attainment, goodput and where each stream's latency goes."""
    interval_s = max(_SHORTEST_INTERVAL_S, duration_ns(interval) / 1e9)
    window_s = duration_ns(window) / 1e9 if window else 0.0
    with connect(ctx, server) as client:
        while True:
            found = client.stats(window_s)
            if as_json and watch:
                print_json_line(found)
            elif as_json:
                print_json(found)
            else:
                if watch and sys.stdout.isatty():
                    typer.echo(CLEAR_SCREEN, nl=False)
                typer.echo(stats_text(found))
            if not watch:
                return
            time.sleep(interval_s)
