"""A study as one page: what was asked, the table, a plot, and the command that makes it again."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from framepool import __version__
from framepool.benchmarks.study import Line, Row, Setting, costs, summary

COLUMNS = (
    "cluster",
    "algorithm",
    "cases",
    "load factor",
    "times ppipe",
    "worst case",
    "all models at once",
    "worst case",
)
EFFORT = ("cluster", "algorithm", "throughput", "utilisation", "plan s", "simulation us")
PLOT = "ratios.png"


def write_report(rows: Sequence[Row], setting: Setting, folder: Path) -> bool:
    """Writes report.html and, where matplotlib is installed, its plot; tells whether there is one."""
    lines = summary(rows)
    plotted = _plot(lines, setting, folder / PLOT)
    body = "".join(
        f"<tr><td>{html.escape(line.cluster)}<td>{html.escape(line.algorithm)}<td>{line.cases}<td>{line.load_factor:.3f}"
        f"<td>{line.ratio:.3f}<td>{line.least_ratio:.3f}<td>{line.together:.3f}<td>{line.least_together:.3f}</tr>"
        for line in lines
    )
    effort = "".join(
        f"<tr><td>{html.escape(cost.cluster)}<td>{html.escape(cost.algorithm)}<td>{cost.throughput_fps:.0f}"
        f"<td>{html.escape(', '.join(f'{name} {share:.0%}' for name, share in cost.utilisation.items()))}"
        f"<td>{cost.found_s:.2f}<td>{cost.request_us:.1f}</tr>"
        for cost in costs(rows)
    )
    head = "".join(f"<th>{name}" for name in COLUMNS)
    facts = "".join(f"<dt>{name}<dd>{html.escape(str(value))}" for name, value in asdict(setting).items())
    picture = f'<img src="{PLOT}" alt="rates by cluster and algorithm">' if plotted else ""
    (folder / "report.html").write_text(
        f"""<!doctype html><meta charset="utf-8"><title>framepool study {setting.kind}</title>
<style>body{{font:15px sans-serif;margin:2em}}td,th{{padding:.2em .8em;text-align:right}}dt{{float:left;width:8em}}
</style>
<h1>{setting.kind}: who carries most at 99 % attainment</h1>
<p>A load factor is a share of the rate that PPipe's published plan gives a model. "times ppipe" compares absolute rates
with the published plans under the published data plane, in this run, model by model; "all models at once" compares the
load at which every model of a case, with its weight, still attains. Margins were found on other seeds than those
judged on, {", ".join(map(str, setting.seeds))}.</p>
<table><tr>{head}</tr>{body}</table>
<h2>What it takes</h2>
<p>Means over cases at the largest load: frames a second of all models, each alone; the share of time that devices in
use are busy; seconds to find a plan, search by simulation included; microseconds of one core to simulate a frame.</p>
<table><tr>{"".join(f"<th>{name}" for name in EFFORT)}</tr>{effort}</table>
{picture}
<dl>{facts}</dl>
<p>framepool {__version__}: <code>{html.escape(command(setting))}</code></p>
""",
        encoding="utf-8",
    )
    return plotted


def command(setting: Setting) -> str:
    """What to type to make the study again."""
    return (
        f"framepool bench study {setting.kind} --arrivals {setting.arrivals} --jitter {setting.jitter:g} "
        f"--seconds {setting.seconds:g} --grid {setting.grid:g} --seeds {','.join(map(str, setting.seeds))} "
        f"--algorithms {','.join(setting.algorithms)}"
    )


def _plot(lines: Sequence[Line], setting: Setting, path: Path) -> bool:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    clusters = list(dict.fromkeys(line.cluster for line in lines))
    algorithms = list(dict.fromkeys(line.algorithm for line in lines))
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(algorithms)
    for number, algorithm in enumerate(algorithms):
        found = {line.cluster: line.together for line in lines if line.algorithm == algorithm}
        places = [index + (number - (len(algorithms) - 1) / 2) * width for index in range(len(clusters))]
        axes.bar(places, [found.get(cluster, 0.0) for cluster in clusters], width * 0.9, label=algorithm)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(clusters)), clusters)
    axes.set_ylabel("load at 99 % attainment, times published PPipe")
    axes.set_title(f"{setting.kind}, {setting.arrivals} arrivals")
    axes.legend(ncols=3, fontsize="small")
    figure.savefig(path, dpi=120)
    return True
