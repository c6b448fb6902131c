"""``framepool bench slo``: the largest load that an engine serves in time. Thin: options in, a report out."""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from framepool.engine.cli.output import print_table
from framepool.engine.cli.values import duration_ms, duration_ns

Plan = Literal["np", "ppipe", "framepool"]
UNMET = 1


def slo(
    model: Annotated[str, typer.Option("--model", help="A registered or bundled model, or an ONNX file.")] = "nanodet",
    source: Annotated[str, typer.Option("--source", help="Clip that the cameras show, or a URL.")] = "",
    slo_text: Annotated[str, typer.Option("--slo", help="Latency SLO, like 100ms.")] = "250ms",
    fps: Annotated[float, typer.Option("--fps", min=0.1, help="Frames a second of a camera.")] = 10.0,
    policy: Annotated[str, typer.Option("--policy", help="ppipe, framepool, reactive; default: the engine's.")] = "",
    plan: Annotated[Plan, typer.Option("--plan", help="np: whole models only; ppipe: its templates.")] = "framepool",
    margin: Annotated[float, typer.Option("--margin", help="Share of the SLO planned to stay free; -1: default.")] = -1,
    devices: Annotated[
        list[str] | None, typer.Option("--devices", help="openvino-bf16@0, 50*emulated:openvino-bf16:x2, ...")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML that the own engine starts from.")] = None,
    target: Annotated[str, typer.Option("--target", help="host:port of an engine that runs; none: one of ours.")] = "",
    attainment: Annotated[float, typer.Option("--attainment", min=0.01, max=1)] = 0.99,
    load: Annotated[float, typer.Option("--load", min=0, help="Only this load (fps), no search.")] = 0.0,
    step: Annotated[float, typer.Option("--step", min=0, help="Loads differ by this (fps); 0: 2 % of the plan.")] = 0.0,
    seconds: Annotated[str, typer.Option("--seconds", help="Length of a run's window.")] = "15s",
    warm_up: Annotated[str, typer.Option("--warm-up", help="Before each window.")] = "3s",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Most runs of one load, near the edge.")] = 3,
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", help="burst, churn, kill, offline; at 0.8 of what was found.")
    ] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Also measure bare loops on the own engine's devices.")] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Also simulate the plan with the times measured (own engine).")
    ] = False,
    require: Annotated[
        list[str] | None, typer.Option("--require", help="goodput=30, attainment=0.99: exit code 1 where unmet.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("slo-report"),
) -> None:
    """Measure how many frames a second are served within an SLO: open-loop cameras, the largest load that holds."""
    from framepool.benchmarks.slo.bare import measure
    from framepool.benchmarks.slo.facts import facts
    from framepool.benchmarks.slo.harness import Harness, Wanted
    from framepool.benchmarks.slo.report import COLUMNS, Measurement, rows, summary, write
    from framepool.benchmarks.slo.run import Cameras, Window
    from framepool.benchmarks.slo.scenarios import SCENARIOS
    from framepool.benchmarks.slo.simulated import simulated_load
    from framepool.benchmarks.slo.under_test import Model, own_settings, under_test
    from framepool.engine.config import make_config
    from framepool.engine.hardware import allowed_cores, build_hardware
    from framepool.streams import SAMPLES_DIR

    required = _required(require or [])
    asked = tuple(scenario or ())
    if unknown := [name for name in asked if name not in (*SCENARIOS, "offline")]:
        raise typer.BadParameter(f"scenario {unknown[0]!r} is unknown; there are {', '.join(SCENARIOS)}, offline")
    if (bare or simulate) and target:
        raise typer.BadParameter("--bare and --simulate go with an engine of the harness's own, not with --target")
    source = source or str(SAMPLES_DIR / "walkway.mp4")
    wanted_model = Model.of(model)
    cameras = Cameras(wanted_model.name, source, duration_ms(slo_text), fps, seed)
    window = Window(duration_ns(seconds) / 1e9, duration_ns(warm_up) / 1e9)
    with tempfile.TemporaryDirectory(prefix="framepool-bench-") as folder, _bar() as bar:
        log = Path(folder) / "events.jsonl"
        settings = own_settings(
            policy=policy,
            plan=plan,
            devices=devices or [],
            base=config,
            source=source,
            slo_margin=None if margin < 0 else margin,
            event_log=log if simulate else None,
        )
        task = bar.add_task("measuring the model", total=None)
        with under_test(settings, target, wanted_model, Path(folder)) as engine:
            harness = Harness(engine, cameras, window, Wanted(attainment, load, step, runs))
            best_fps, best = harness.search(lambda text: bar.update(task, description=text))
            beside = harness.scenarios(asked, best_fps, lambda text: bar.update(task, description=text))
            listed = engine.client.devices()
            ran_policy = engine.client.stats().policy
        simulated_fps = None
        if simulate and best:
            bar.update(task, description="simulating")
            latency = best[-1].latency
            elsewhere_ms = latency.decode.p50_ms + latency.publish.p50_ms
            simulated_fps = simulated_load(log, cameras.model, cameras.slo_ms, fps, elsewhere_ms, attainment)
    alone = None
    if bare:
        own = build_hardware(make_config(settings).devices)
        alone = measure(own.devices, wanted_model, source, fps, len(allowed_cores()), window.seconds)
    found = Measurement(
        cameras=cameras,
        window=window,
        attainment=attainment,
        best_fps=best_fps,
        best=best,
        runs=harness.runs,
        scenarios=beside,
        bare=alone,
        policy=ran_policy,
        plan="the target's own" if target else plan,
        seed=seed,
        emulated=tuple(f"{device.id}: {device.hardware}" for device in listed if device.emulated),
        simulated_fps=simulated_fps,
        facts=facts(),
        command=shlex.join(["framepool", *sys.argv[1:]]),
    )
    plotted = write(found, out)
    print_table(COLUMNS, rows((*found.runs, *found.scenarios)), empty="nothing was run")
    typer.echo("")
    for line in summary(found):
        typer.echo(line)
    typer.echo(f"report.html, report.json and runs.csv in {out}")
    if not plotted:
        typer.echo("no plots: pip install 'framepool[bench]'", err=True)
    unmet = [
        f"{name} {value:.3f} is below {required[name]:g}"
        for name, value in (("goodput", found.goodput_fps), ("attainment", found.best_attainment))
        if name in required and value < required[name]
    ]
    for text in unmet:
        typer.echo(f"framepool: not met: {text}", err=True)
    if unmet:
        raise typer.Exit(UNMET)


def _required(texts: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in ("goodput", "attainment") or not math.isfinite(value):
            raise typer.BadParameter(f"--require {text!r}: write goodput=FPS or attainment=SHARE")
        found[name] = value
    return found


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
