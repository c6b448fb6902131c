"""A measurement at rest: report.json, runs.csv, plots (PNG) and one page, report.html."""

from __future__ import annotations

import csv
import html
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from framepool.benchmarks.slo.bare import Bare
from framepool.benchmarks.slo.run import Cameras, Run, Window

PARTS = ("total", "decode", "queueing", "transfer", "inference", "publish", "overhead")
PLOT = "loads.png"


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that was found. `best` holds the runs at the largest load that held (empty: none did), `runs` every run of
    the search in order, `scenarios` those beside it."""

    cameras: Cameras
    window: Window
    attainment: float
    best_fps: float
    best: tuple[Run, ...]
    runs: tuple[Run, ...]
    scenarios: tuple[Run, ...]
    bare: Bare | None
    policy: str
    plan: str
    seed: int
    emulated: tuple[str, ...]
    simulated_fps: float | None
    facts: Mapping[str, str]
    command: str

    @property
    def goodput_fps(self) -> float:
        """Median of the runs at the largest load."""
        return statistics.median(run.goodput_fps for run in self.best) if self.best else 0.0

    @property
    def best_attainment(self) -> float:
        ended = sum(run.ended for run in self.best)
        return sum(run.in_time for run in self.best) / ended if ended else 0.0

    @property
    def efficiency(self) -> float | None:
        """Goodput over what the same devices could do beside decoding; None where that was not measured."""
        if self.bare is None or not self.bare.ceiling_fps:
            return None
        return self.goodput_fps / self.bare.ceiling_fps


def rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """A line a run, for tables."""
    return [
        (
            run.scenario,
            f"{run.load_fps:.1f}",
            str(run.streams),
            "refused" if run.refused else f"{run.goodput_fps:.1f}",
            "-" if run.refused else f"{run.attainment:.2%}",
            "-" if run.refused else f"{run.latency.total.p50_ms:.0f}/{run.latency.total.p99_ms:.0f}",
            "-" if run.refused else f"{run.latency.overhead.p50_ms:.1f}/{run.latency.overhead.p99_ms:.1f}",
            ", ".join(f"{name} {share:.0%}" for name, share in sorted(run.utilisation.items())[:4]),
            ", ".join(f"{count} {reason}" for reason, count in run.dropped.items()),
            run.note or run.refused[:60],
        )
        for run in runs
    ]


COLUMNS = ("SCENARIO", "LOAD", "STREAMS", "GOODPUT", "ATTAINED", "LATENCY p50/p99", "OURS p50/p99", "BUSY", "DROPPED",
           "NOTE")  # fmt: skip


def write(found: Measurement, folder: Path) -> bool:
    """Writes all files; tells whether there are plots (matplotlib is an extra)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(_plain(found), indent=1), encoding="utf-8")
    with (folder / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(_flat(Run(1.0, 1, 1.0))))
        writer.writeheader()
        writer.writerows(_flat(run) for run in (*found.runs, *found.scenarios))
    plotted = _plot(found, folder / PLOT)
    (folder / "report.html").write_text(_page(found, plotted), encoding="utf-8")
    return plotted


def summary(found: Measurement) -> list[str]:
    """The result in sentences."""
    cameras = found.cameras
    lines = [
        f"{cameras.model}, SLO {cameras.slo_ms:g} ms, cameras of {cameras.fps:g} fps: goodput {found.goodput_fps:.1f} "
        f"fps at {found.best_attainment:.2%} (largest load {found.best_fps:.1f} fps)"
    ]
    if found.emulated:
        lines.append(f"EMULATED devices take their time from profiles: {', '.join(found.emulated)}")
    if found.bare is not None and found.efficiency is not None:
        devices = ", ".join(f"{name} {fps:.1f}" for name, fps in found.bare.device_fps.items())
        lines.append(
            f"bare loops over ready tensors: {found.bare.total_fps:.1f} fps ({devices}); decoding takes "
            f"{found.bare.decode_s * 1e3:.2f} ms of a core per frame, which leaves {found.bare.ceiling_fps:.1f} fps; "
            f"goodput is {found.efficiency:.2f} of that"
        )
    if found.simulated_fps is not None:
        lines.append(
            f"simulated, same plan, measured times, cameras with assigned phases: {found.simulated_fps:.1f} fps "
            f"({found.best_fps / found.simulated_fps if found.simulated_fps else 0.0:.3f} of it live)"
        )
    if found.best and found.best[-1].cpu_ms_per_frame:
        used = {
            kind: statistics.median(run.cpu_ms_per_frame.get(kind, 0.0) for run in found.best)
            for kind in found.best[-1].cpu_ms_per_frame
        }
        lines.append("processor time per frame: " + ", ".join(f"{kind} {ms:.2f} ms" for kind, ms in used.items()))
    return lines


def _plain(found: Measurement) -> dict[str, Any]:
    value = asdict(found)
    value["goodput_fps"], value["best_attainment"] = found.goodput_fps, found.best_attainment
    value["efficiency"] = found.efficiency
    return value


def _flat(run: Run) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "scenario": run.scenario,
        "load_fps": round(run.load_fps, 3),
        "streams": run.streams,
        "seconds": round(run.seconds, 3),
        "offered": round(run.offered, 1),
        "ingested": run.ingested,
        "ended": run.ended,
        "in_time": run.in_time,
        "attainment": round(run.attainment, 5),
        "goodput_fps": round(run.goodput_fps, 3),
    }
    for part in PARTS:
        quantiles = getattr(run.latency, part)
        flat[f"{part}_p50_ms"], flat[f"{part}_p99_ms"] = round(quantiles.p50_ms, 3), round(quantiles.p99_ms, 3)
    flat["dropped"] = " ".join(f"{reason}:{count}" for reason, count in run.dropped.items())
    flat["utilisation"] = " ".join(f"{name}:{share:.3f}" for name, share in run.utilisation.items())
    flat["cpu_ms_per_frame"] = " ".join(f"{kind}:{ms:.3f}" for kind, ms in run.cpu_ms_per_frame.items())
    flat["rss_mb"] = " ".join(f"{kind}:{size / 1e6:.0f}" for kind, size in run.rss_bytes.items())
    flat["refused"], flat["note"] = run.refused, run.note
    return flat


def _page(found: Measurement, plotted: bool) -> str:
    head = "".join(f"<th>{column.lower()}" for column in COLUMNS)
    table = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) + "</tr>"
        for row in rows((*found.runs, *found.scenarios))
    )
    parts = "".join(
        f"<tr><td>{part}" + "".join(f"<td>{getattr(q, name):.1f}" for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
        for part in PARTS
        if found.best
        for q in (getattr(found.best[-1].latency, part),)
    )
    facts = "".join(f"<dt>{html.escape(name)}<dd>{html.escape(value)}" for name, value in found.facts.items())
    sentences = "".join(f"<p>{html.escape(line)}</p>" for line in summary(found))
    return f"""<!doctype html><meta charset="utf-8"><title>framepool: frames in time</title>
<style>body{{font:15px sans-serif;margin:2em}}td,th{{padding:.2em .8em;text-align:right}}dt{{float:left;width:12em}}
</style>
<h1>Frames in time</h1>
{sentences}
<p>Policy {html.escape(found.policy)}, plan {html.escape(found.plan)}. The largest load is that at which at least
{found.attainment:.0%} of all frames are published within the SLO, drops counted as missed; open-loop, windows of
{found.window.seconds:g} s after {found.window.warm_up_s:g} s.</p>
{f'<img src="{PLOT}" alt="attainment by load, and where latency goes">' if plotted else ""}
<h2>Where latency goes at the largest load (ms)</h2>
<table><tr><th>part<th>p50<th>p90<th>p99<th>most</tr>{parts}</table>
<h2>Runs</h2>
<table><tr>{head}</tr>{table}</table>
<h2>Made on</h2>
<dl>{facts}</dl>
<p><code>{html.escape(found.command)}</code>, seed {found.seed}</p>
"""


def _plot(found: Measurement, path: Path) -> bool:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    runs = [run for run in found.runs if not run.refused]
    left.scatter([run.load_fps for run in runs], [run.attainment for run in runs], s=18)
    left.axhline(found.attainment, color="black", linewidth=0.8)
    left.set_xlabel("load, fps")
    left.set_ylabel("attainment")
    if found.best:
        for name, at in (("p50_ms", -0.2), ("p99_ms", 0.2)):
            heights = [getattr(getattr(found.best[-1].latency, part), name) for part in PARTS]
            right.bar([index + at for index in range(len(PARTS))], heights, 0.38, label=name[:3])
        right.set_xticks(range(len(PARTS)), PARTS, rotation=30)
        right.set_ylabel("ms at the largest load")
        right.legend()
    figure.savefig(path, dpi=120)
    return True
