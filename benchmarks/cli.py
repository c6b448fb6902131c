"""``framepool bench``: measurements that anyone can rerun. Thin: options in, tables out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from framepool.benchmarks import DATA_VARIABLE, slo_cli
from framepool.engine.cli.output import print_table

app = typer.Typer(help="Measurements: slo, import-ppipe, study.", no_args_is_help=True)

app.command("slo")(slo_cli.slo)

Kind = Literal["maf19", "maf21", "ablation", "scaling"]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data folder of PPipe's artifact.", envvar=DATA_VARIABLE)
]


@app.command("import-ppipe")
def import_ppipe(
    folder: Annotated[Path, typer.Argument(help="The artifact's data folder.")],
    out: Annotated[Path, typer.Option("--out", help="Where profiles, clusters and plans are written.")] = Path("ppipe"),
) -> None:
    """Turn PPipe's artifact into files that `framepool plan --cluster` and `framepool simulate` read."""
    from framepool.benchmarks.importing import import_artifact

    counts = import_artifact(_checked(folder), out)
    typer.echo(f"{out}: {counts.profiles} profiles, {counts.clusters} clusters, {counts.plans} plans")


@app.command("study")
def study(
    kind: Annotated[Kind, typer.Argument(help="Which of the paper's sets.")],
    data: DataOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the tables.")] = Path("study"),
    arrivals: Annotated[str, typer.Option("--arrivals", help="poisson, gamma:CV, cameras:FPS.")] = "poisson",
    jitter: Annotated[float, typer.Option("--jitter", min=0, help="CV of service times (lognormal); 0: none.")] = 0.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Simulated seconds of a run.")] = 8.0,
    grid: Annotated[float, typer.Option("--grid", min=0.001, help="Step of load factors.")] = 0.01,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds judged on, like 1,2,3.")] = "1",
    algorithms: Annotated[str, typer.Option("--algorithms", help="Names, or usual, parts, all.")] = "usual",
    first: Annotated[int, typer.Option("--first", min=0, help="Only so many cases; 0: all.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes; 0: one a core.")] = 0,
) -> None:
    """Compare who carries most at 99 % attainment, on the paper's own data; scaling: time to plan and to decide."""
    if kind == "scaling":
        _scaling(_checked(data or Path()), out)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from framepool.benchmarks.report import write_report
    from framepool.benchmarks.study import ALGORITHMS, PARTS, USUAL, Row, Setting, run, summary, write
    from framepool.engine.simulation.loads import Load

    sets = {"usual": USUAL, "parts": PARTS, "all": tuple(ALGORITHMS)}
    wanted = sets.get(algorithms) or tuple(algorithms.split(","))
    if unknown := [name for name in wanted if name not in ALGORITHMS]:
        raise typer.BadParameter(f"algorithm {unknown[0]!r} is unknown; there are {', '.join(ALGORITHMS)}")
    try:
        chosen = tuple(int(seed) for seed in seeds.split(","))
    except ValueError:
        raise typer.BadParameter(f"seeds {seeds!r} are no whole numbers, like 1,2,3") from None
    try:
        Load(arrivals)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    setting = replace(
        Setting(kind), arrivals=arrivals, jitter=jitter, seconds=seconds, grid=grid, seeds=chosen, algorithms=wanted
    )
    folder = _checked(data or Path())
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(kind, total=None)
        for done, total, found in run(folder, setting, workers or os.cpu_count() or 1, first or None):
            rows += found
            bar.update(task, total=total, completed=done, description=f"{found[0].algorithm} on {found[0].cluster}")
    write(rows, setting, out)
    plotted = write_report(rows, setting, out)
    print_table(
        ("CLUSTER", "ALGORITHM", "CASES", "LOAD FACTOR", "TIMES PPIPE", "WORST CASE", "AT ONCE", "WORST CASE"),
        [
            (line.cluster, line.algorithm, str(line.cases), f"{line.load_factor:.3f}", f"{line.ratio:.3f}",
             f"{line.least_ratio:.3f}", f"{line.together:.3f}", f"{line.least_together:.3f}")
            for line in summary(rows)
        ],
        empty="nothing was run",
    )  # fmt: skip
    typer.echo(f"{kind}, {arrivals}, jitter {jitter:g}, {seconds:g} s, seeds {seeds}: tables and report.html in {out}")
    if not plotted:
        typer.echo("no plots: pip install 'framepool[bench]'", err=True)


def _scaling(folder: Path, out: Path) -> None:
    from rich.console import Console

    from framepool.benchmarks import scaling
    from framepool.benchmarks.published import PublishedData

    console = Console(stderr=True)
    with console.status("planning") as status:
        plans = []
        for row in scaling.planning(PublishedData(folder)):
            plans.append(row)
            status.update(f"planning: {len(plans)} of {len(scaling.CLUSTERS)}")
        decisions = []
        for policy in scaling.POLICIES:
            for workers in scaling.WORKERS:
                status.update(f"deciding: {policy}, {workers} workers")
                decisions.append(scaling.deciding(policy, workers))
    scaling.write(plans, out / "planning.csv")
    scaling.write(decisions, out / "deciding.csv")
    print_table(
        ("CLASSES", "GPUS", "MODELS", "STAGES", "SECONDS", "OF BOUND"),
        [
            (p.classes, str(p.devices), str(p.models), str(p.stages), f"{p.seconds:.2f}", f"{p.of_bound:.4f}")
            for p in plans
        ],
        empty="nothing was planned",
    )
    typer.echo("")
    print_table(
        ("POLICY", "WORKERS", "DECISIONS", "MEAN", "P99", "LONGEST"),
        [
            (d.policy, str(d.workers), str(d.events), *(f"{us:.1f}us" for us in (d.mean_us, d.p99_us, d.longest_us)))
            for d in decisions
        ],
        empty="nothing was decided",
    )
    typer.echo(f"tables in {out}")


def _checked(folder: Path) -> Path:
    if not (folder / "plans").is_dir():
        raise typer.BadParameter(
            f"{folder} has no folder 'plans'; give the data folder of PPipe's artifact, or set {DATA_VARIABLE}"
        )
    return folder
