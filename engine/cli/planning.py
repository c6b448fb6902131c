"""``framepool plan --cluster`` and ``framepool simulate``: plan for devices that need not be at hand; try plans."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from framepool.engine.cli.files import read_text
from framepool.engine.cli.output import percent, print_json, print_table
from framepool.engine.cli.session import JsonOption
from framepool.engine.cli.values import duration_ms

if TYPE_CHECKING:
    from framepool.engine.planning.capacity import CapacityReport
    from framepool.engine.planning.formats import Cluster
    from framepool.engine.planning.inventory import Inventory
    from framepool.engine.planning.options import PlannerOptions
    from framepool.engine.planning.plan import Demand
    from framepool.engine.planning.queueing import Queueing
    from framepool.models.profile import ModelProfile

PlanPolicy = Literal["np", "dart-r", "ppipe", "framepool"]
PLANNING_SEEDS = (1001, 1002)
_DEMAND = re.compile(r"(?P<model>[^=]+)=(?P<fps>[0-9.]+)(?:fps)?@(?P<slo>.+)")
STAGE_COLUMNS = ("PIPELINE", "STAGE", "BLOCKS", "CLASS", "DEVICES", "BATCH", "LATENCY", "RATE", "CAPACITY")


def plan_cluster(
    cluster_path: Path,
    profile_paths: list[Path],
    demands: list[str],
    slo: str | None,
    policy: PlanPolicy,
    max_stages: int,
    margin: float,
    spare: int,
    arrivals: str | None,
    jitter: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Plans for a cluster and shows what bounds it."""
    from framepool.engine.planning.capacity import capacity, without_spares
    from framepool.engine.planning.formats import cluster_from_toml, plan_to_json

    cluster = cluster_from_toml(read_text(cluster_path), str(cluster_path))
    profiles = read_profiles(profile_paths)
    wanted = tuple(_demand(text) for text in demands) or cluster.demands
    if slo is not None:
        wanted = tuple(replace(demand, slo_ms=duration_ms(slo)) for demand in wanted)
    if not wanted:
        raise typer.BadParameter(f"{cluster_path} has no demands; add [[demands]], or --demand model=10fps@150ms")
    for demand in wanted:
        if demand.model not in profiles:
            raise typer.BadParameter(f"no profile of model {demand.model!r}; name its file or folder with --profiles")
    cluster = replace(cluster, demands=wanted)
    options = _options(policy, max_stages, margin)
    inventory = without_spares(cluster.inventory, spare)
    queueing = None
    if arrivals is not None:
        options, queueing = _foreseen(profiles, inventory, wanted, options, arrivals, jitter)
    report = capacity(profiles, inventory, wanted, options, queueing=queueing)
    if out is not None:
        out.write_text(plan_to_json(report.plan, cluster), encoding="utf-8")
    if as_json:
        print_json(report)
        return
    _print_report(report, cluster)


def _foreseen(
    profiles: dict[str, ModelProfile],
    inventory: Inventory,
    demands: tuple[Demand, ...],
    options: PlannerOptions,
    arrivals: str,
    jitter: float,
) -> tuple[PlannerOptions, Queueing]:
    """Options and queueing of the plan that carries most of such arrivals, found by simulation."""
    from rich.console import Console

    from framepool.engine.scheduling.options import SchedulerOptions
    from framepool.engine.simulation.loads import RESERVE_OF_JITTER, Load, Trial
    from framepool.engine.simulation.service import Exact, LognormalJitter
    from framepool.engine.simulation.tuning import tuned

    options = replace(options, slo_margin=0.0)
    try:
        load = Load(arrivals.removesuffix("fps"))
        how = Trial(
            "framepool",
            SchedulerOptions.late(),
            load,
            seeds=PLANNING_SEEDS,
            service=LognormalJitter(jitter) if jitter else Exact(),
            reserve=RESERVE_OF_JITTER * jitter,
        )
        with Console(stderr=True).status("simulating plans") as status:
            found = tuned(
                profiles, inventory, demands, options, how, gap_cv=load.gap_cv,
                progress=lambda tried: status.update(f"simulating plans: {tried}"),
            )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return found.options, found.queueing


def _options(policy: PlanPolicy, max_stages: int, margin: float) -> PlannerOptions:
    from framepool.engine.planning.options import PlannerOptions
    from framepool.engine.planning.program import Sharing

    return PlannerOptions(
        slo_margin=margin,
        max_stages=1 if policy == "np" else max_stages,
        sharing=Sharing.POOL,
        restrict_sequences=policy == "ppipe",
        chains=policy == "dart-r",
        max_batch=1024,
        enough=math.inf,
        tie_break=False,
        use_spare=False,
        time_limit_s=20.0,
    )


def read_profiles(paths: list[Path]) -> dict[str, ModelProfile]:
    """Profiles from files and folders of files."""
    from framepool.engine.planning.formats import profile_from_json

    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    found = [profile_from_json(_profile_text(file), str(file)) for file in files]
    return {profile.model: profile for profile in found}


def _profile_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}") from error


def _demand(text: str) -> Demand:
    from framepool.engine.planning.plan import Demand

    match = _DEMAND.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"demand {text!r} is not like nanodet=30fps@150ms")
    return Demand(match["model"], duration_ms(match["slo"]), float(match["fps"]))


def _print_report(report: CapacityReport, cluster: Cluster) -> None:
    plan = report.plan
    rows = []
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            share = f" 1/{stage.share}" if stage.share > 1 else ""
            rows.append(
                (
                    pipeline.id,
                    str(stage.index),
                    f"{stage.first_block}-{stage.last_block - 1}",
                    stage.device_class + share,
                    str(stage.devices),
                    str(pipeline.batch),
                    f"{stage.latency_us[-1] / 1e3:.1f}ms",
                    f"{pipeline.rate_fps:.1f}/s",
                    f"{pipeline.capacity_fps:.1f}/s",
                )
            )
    print_table(STAGE_COLUMNS, rows, empty="no pipeline")
    typer.echo("")
    print_table(
        ("CLASS", "DEVICES", "IN USE", "UTILISATION", "ONE MORE BUYS", "BINDING"),
        [
            (
                use.name,
                str(use.count),
                f"{use.devices:g}",
                percent(use.utilisation),
                "-" if use.price is None else f"{use.price / plan.objective:+.2%}",
                "yes" if use.binding else "",
            )
            for use in report.classes
        ],
        empty="no classes",
    )
    typer.echo("")
    rates = {demand.model: demand.rate_fps for demand in cluster.demands}
    print_table(
        ("MODEL", "ASKED", "SERVED UP TO", "WAY", "WINS BY"),
        [
            (
                use.model,
                f"{rates[use.model]:g}/s",
                f"{use.rate_fps:.1f}/s",
                use.way,
                "only way" if use.wins is None else f"{use.wins:+.1%}",
            )
            for use in report.models
        ],
        empty="no models",
    )
    typer.echo(
        f"\nserves {plan.objective:.4g} times what is asked (no plan more than {plan.bound:.4g}; "
        f"planned in {plan.solve_s:.2f} s)"
    )
    if report.without_cuts:
        typer.echo(f"cutting models wins {plan.objective / report.without_cuts - 1:+.1%} over whole ones")
    else:
        typer.echo("without cutting models it could not be served")


def simulate(
    plan_path: Annotated[Path, typer.Option("--plan", help="Plan, as `framepool plan --cluster --out` writes it.")],
    arrivals: Annotated[
        str,
        typer.Option("--arrivals", help="poisson, gamma:CV, cameras:30fps, or a trace file (seconds, or Azure's)."),
    ] = "poisson",
    load: Annotated[float, typer.Option("--load", min=0.001, help="Times the planned rates.")] = 0.9,
    policy: Annotated[
        Literal["framepool", "ppipe", "reactive"], typer.Option("--policy", help="Scheduling policy.")
    ] = "framepool",
    live: Annotated[bool, typer.Option("--live", help="With the live engine's settings, not the paper's.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Simulated seconds.")] = 10.0,
    jitter: Annotated[float, typer.Option("--jitter", min=0, help="CV of service times (lognormal).")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of arrivals and jitter.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Try a plan on virtual time: attainment, goodput and drops of every model, utilisation of every class."""
    from framepool.engine.planning.formats import plan_from_json
    from framepool.engine.simulation.trying import try_plan

    plan, cluster = plan_from_json(_profile_text(plan_path), str(plan_path))
    times = _trace(arrivals)
    try:
        result = try_plan(
            plan, cluster.inventory, arrivals=arrivals.removesuffix("fps"), times_s=times, load=load, policy=policy,
            live=live, seconds=seconds, jitter=jitter, seed=seed,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print_json(result)
        return
    print_table(
        ("MODEL", "OFFERED", "ATTAINED", "GOODPUT", "LATE", "DROPPED"),
        [
            (
                model.model,
                f"{model.offered_fps:.1f}/s",
                percent(model.attainment),
                f"{model.goodput_fps:.1f}/s",
                str(model.late),
                ", ".join(f"{count} {reason}" for reason, count in model.dropped.items()) or "0",
            )
            for model in result.models
        ],
        empty="the plan serves no model",
    )
    typer.echo("")
    print_table(
        ("CLASS", "UTILISATION"),
        [(name, percent(share)) for name, share in result.utilisation.items()],
        empty="no classes",
    )
    typer.echo(f"\n{policy}, load {load:g}, {arrivals}, {seconds:g} s, seed {seed}")


def _trace(arrivals: str) -> list[float] | None:
    """Times of a trace file, where `arrivals` is one."""
    from framepool.engine.errors import ConfigError
    from framepool.engine.simulation.traces import read_times

    path = Path(arrivals)
    if not path.is_file():
        return None
    try:
        return read_times(_profile_text(path).splitlines(), str(path))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
