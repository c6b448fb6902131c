"""Turns the program's counts into pipelines: names them, spreads the demand over them, adds times and bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Pipeline, StagePlan
from framepool.engine.planning.program import Program
from framepool.engine.planning.search import SearchResult
from framepool.engine.planning.templates import TemplateSet, transfer_us
from framepool.models.profile import ModelProfile


def pipeline_id(model: str, batch: int, stages: Sequence[tuple[str, int, int, int]]) -> str:
    """Id of a template, the same in every plan; `stages` are (class, share, first block, last block).

    Reads like ``nanodet.b2.cpu-a@0-4.cpu-b:2@4-10``: blocks 0..3 on class cpu-a, 4..9 on halves of cpu-b, batch 2.
    """
    parts = [f"{name}{'' if share == 1 else f':{share}'}@{first}-{last}" for name, share, first, last in stages]
    return ".".join([model, f"b{batch}", *parts])


def pipelines_of(
    profiles: Mapping[str, ModelProfile],
    inventory: Inventory,
    program: Program,
    sets: Sequence[TemplateSet],
    found: SearchResult,
) -> tuple[Pipeline, ...]:
    """The pipelines that have devices. `rate_fps` adds up to the demand, or, with z < 1, to z times the demand."""
    capacity = program.capacity(found.counts)
    out = []
    for m, templates in enumerate(sets):
        first = int(program.first_template[m])
        profile = profiles[templates.model]
        total = program.wants[m].total_fps
        capacity_fps = capacity[first : first + len(templates)] * total
        weights = program.wants[m].weight_fps
        rate_fps = _spread(capacity_fps, templates.tightest, weights, min(found.objective, 1.0))
        for t in np.flatnonzero(capacity_fps > 0):
            entry = int(program.e_first[first + t])
            stages = tuple(
                _stage(profile, inventory, templates, int(t), k, int(found.counts[entry + k]))
                for k in range(int(templates.n_stages[t]))
            )
            key = [(s.device_class, s.share, s.first_block, s.last_block) for s in stages]
            out.append(
                Pipeline(
                    id=pipeline_id(templates.model, int(templates.batch[t]), key),
                    model=templates.model,
                    batch=int(templates.batch[t]),
                    stages=stages,
                    rate_fps=float(rate_fps[t]),
                    capacity_fps=float(capacity_fps[t]),
                    latency_us=float(templates.latency_us[t]),
                    slo_ms=templates.slos_us[int(templates.tightest[t])] / 1e3,
                )
            )
    return tuple(out)


def _stage(
    profile: ModelProfile, inventory: Inventory, templates: TemplateSet, t: int, k: int, count: int
) -> StagePlan:
    classes = [inventory.classes[int(g)] for g in templates.classes[t, : templates.n_stages[t]]]
    first, last = int(templates.first[t, k]), int(templates.last[t, k])
    share = int(templates.shares[t, k])
    block = profile.of(classes[k].name, share)
    if block is None:
        raise KeyError((classes[k].name, share))
    batch = int(templates.batch[t])
    ends = k == 0, k == len(classes) - 1
    return StagePlan(
        index=k,
        first_block=first,
        last_block=last,
        device_class=classes[k].name,
        share=share,
        devices=count,
        latency_us=tuple(block.stage_us(first, last, b) for b in range(1, batch + 1)),
        in_bytes=profile.edge_bytes[first],
        out_bytes=profile.edge_bytes[last],
        in_us=0.0 if ends[0] else transfer_us(classes[k - 1], classes[k], profile.edge_bytes[first]),
        out_us=0.0 if ends[1] else transfer_us(classes[k], classes[k + 1], profile.edge_bytes[last]),
    )


def _spread(
    capacity_fps: NDArray[np.float64], tightest: NDArray[np.int64], weights: Sequence[float], served: float
) -> NDArray[np.float64]:
    """Loads [T] that carry `served` times every demand: tightest SLO first, each in proportion to the room left.

    By Hall's condition (see `program`) the tightest demands never take room that a later one can't do without.
    """
    load = np.zeros_like(capacity_fps)
    for j, weight in enumerate(weights):
        room = np.where(tightest <= j, capacity_fps - load, 0.0)
        total = float(room.sum())
        if total > 0:
            load += room * min(1.0, weight * served / total)
    return load
