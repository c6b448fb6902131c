"""Turns PPipe's artifact into profiles, clusters and plans in framepool's own formats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from framepool.benchmarks.published import ALGORITHMS, KINDS, PublishedData
from framepool.engine.planning.formats import Cluster, plan_to_json, profile_to_json


@dataclass(frozen=True, slots=True)
class Imported:
    """How many files were written."""

    profiles: int
    clusters: int
    plans: int


def import_artifact(data_dir: Path, out: Path) -> Imported:
    """Writes ``profiles/MODEL.json``, ``slos.json`` (milliseconds by model), ``clusters/SET/CASE.toml`` and
    ``plans/SET/CASE-ALGORITHM.json`` below `out`."""
    data = PublishedData(data_dir)
    clusters = plans = 0
    for kind in KINDS:
        (out / "plans" / kind).mkdir(parents=True, exist_ok=True)
        (out / "clusters" / kind).mkdir(parents=True, exist_ok=True)
        for case in data.cases((kind,), ALGORITHMS):
            name = case.path.name.split("_bw-gbps")[0]
            cluster = Cluster(case.inventory.classes, case.demands)
            (out / "plans" / kind / f"{name}-{case.algorithm}.json").write_text(plan_to_json(case.published, cluster))
            plans += 1
            if case.algorithm == "v4":
                (out / "clusters" / kind / f"{name}.toml").write_text(cluster_to_toml(cluster))
                clusters += 1
    (out / "profiles").mkdir(exist_ok=True)
    models = data.models()
    for model in models:
        (out / "profiles" / f"{model}.json").write_text(profile_to_json(data.whole_profile(model)))
    slos = {model: slo_ms for model in models if (slo_ms := data.slo_ms(model)) is not None}
    (out / "slos.json").write_text(json.dumps(slos, indent=1) + "\n")
    return Imported(len(models), clusters, plans)


def cluster_to_toml(cluster: Cluster) -> str:
    """The cluster as `framepool plan --cluster` reads it."""
    classes = [
        {
            "name": c.name,
            "count": c.count,
            **({} if c.link_gbps is None else {"link_gbps": c.link_gbps, "devices_per_link": c.devices_per_link}),
            "shares": list(c.shares),
        }
        for c in cluster.classes
    ]
    demands = [{"model": d.model, "slo_ms": d.slo_ms, "rate_fps": d.rate_fps} for d in cluster.demands]
    return tomli_w.dumps({"classes": classes, "demands": demands})
