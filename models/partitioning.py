"""Parts a model into blocks: costs of its nodes, its legal cuts, the exact choice among them, and a check of each cut.

The choice wants cuts that change nothing. Cuts inside a known fusion are left out from the start unless that would cost
balance; each chosen cut is then checked (`cut_check`), and while one of them is not bit-exact, the model is parted
again without it, as long as the largest block does not grow by more than `_EXACT_SLACK`. If no such choice is left,
inexact cuts within `CUT_TOLERANCE` are taken; cuts beyond it never are. Every cut of the result was checked.

Node costs are measured, so two partitions of one model may differ; keep the result (`partition_to_json`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framepool.models.blocks import MAX_BLOCKS, BlockChoice, choose_blocks, refine
from framepool.models.cut_check import CutChecker, CutVerdict
from framepool.models.cuts import CandidateCut, CutSearch, search_cuts
from framepool.models.errors import ModelError
from framepool.models.graph import load_graph
from framepool.models.graph_extract import edge_tensors
from framepool.models.node_costs import node_costs
from framepool.models.partition import Cut, Partition, TensorInfo

CUT_TOLERANCE = 1e-3
"""Largest difference a cut may make, relative to an output's range: fp16 resolves 1e-3, so heads can't tell."""

_COST_SLACK = 0.05
"""Node costs of two measurements differ by about this; balance beyond it is not worth bytes."""

_EXACT_SLACK = 0.25
"""A bit-exact partition may have a largest block this much larger than the best inexact one."""

_CHECKS_PER_CUT = 4
"""Candidates checked for each cut that is wanted before inexact ones are taken."""

_FORMAT = 1


def partition_model(
    path: Path,
    digest: str,
    max_blocks: int = MAX_BLOCKS,
    verify: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Partition:
    """Partitions the model at `path` into at most `max_blocks` blocks (one, where no cut is legal).

    `progress(done, total)` counts steps: the costs, then every cut that is checked; `total` may grow. Without `verify`
    no cut is checked: each is marked inexact with an infinite error. Raises ModelError, ModelInvalidError.
    """
    graph = load_graph(path)
    search = search_cuts(graph, folder=path.parent)
    costs = node_costs(graph, search.shapes, path.parent)
    report = progress or (lambda done, total: None)
    report(1, max_blocks)
    if verify and search.cuts and max_blocks > 1:
        chosen, verdicts = _choose_checked(search, costs, max_blocks, path.parent, report)
    else:
        chosen, verdicts = _choose(search, costs, _seams(search, costs, max_blocks), max_blocks)[0], {}
    report(max_blocks, max_blocks)
    unchecked = CutVerdict(False, math.inf, math.inf)
    crossed: set[str] = set()
    cuts: list[Cut] = []
    for index, candidate in enumerate(chosen, start=1):
        verdict = verdicts.get(candidate.position, unchecked)
        tensors = edge_tensors(graph, candidate.tensors, index, crossed)
        crossed.update(tensor.name for tensor in candidate.tensors)
        cuts.append(Cut(index, tensors, candidate.bytes_per_sample, verdict.exact, verdict.max_abs_error))
    return Partition(
        model_digest=digest,
        n_blocks=len(cuts) + 1,
        cuts=tuple(cuts),
        block_weights=_weights(search, costs, chosen),
        inputs=tuple(search.shapes.edge(name) for name in graph.inputs),
        outputs=tuple(search.shapes.edge(name) for name in graph.outputs),
    )


def _choose_checked(
    search: CutSearch,
    costs: NDArray[np.float64],
    max_blocks: int,
    folder: Path,
    report: Callable[[int, int], None],
) -> tuple[list[CandidateCut], dict[int, CutVerdict]]:
    """Chosen cuts, bit-exact ones if balance allows, and the verdict of each by position."""
    checker = CutChecker(search.graph, search.shapes, folder)
    verdicts: dict[int, CutVerdict] = {}
    limit = _CHECKS_PER_CUT * (max_blocks - 1)
    best_bound = _choose(search, costs, search.cuts, max_blocks)[1].bound
    pool = _seams(search, costs, max_blocks)
    while True:
        chosen, choice = _choose(search, costs, pool, max_blocks)
        waiting = [cut for cut in chosen if cut.position not in verdicts]
        for done, cut in enumerate(waiting[: limit - len(verdicts)], start=len(verdicts) + 2):
            verdicts[cut.position] = checker.check(edge_tensors(search.graph, cut.tensors, 1, ()))
            report(min(done, max(max_blocks, done + 1) - 1), max(max_blocks, done + 1))
        if all(cut.position in verdicts and verdicts[cut.position].exact for cut in chosen):
            if choice.bound <= best_bound * (1 + _EXACT_SLACK):
                return chosen, verdicts
            break
        if len(verdicts) >= limit:
            break
        pool = [cut for cut in pool if cut.position not in verdicts or verdicts[cut.position].exact]
    fit = [cut for cut in search.cuts if _fit(verdicts.get(cut.position))]
    return _choose(search, costs, fit, max_blocks)[0], verdicts


def _fit(verdict: CutVerdict | None) -> bool:
    return verdict is not None and verdict.relative_error <= CUT_TOLERANCE


def _seams(search: CutSearch, costs: NDArray[np.float64], max_blocks: int) -> Sequence[CandidateCut]:
    """The candidates outside known fusions, or all where those alone would cost balance."""
    seams = [cut for cut in search.cuts if cut.seam]
    bound = _choose(search, costs, seams, max_blocks)[1].bound
    best = _choose(search, costs, search.cuts, max_blocks)[1].bound
    return seams if bound <= best * (1 + _EXACT_SLACK) else search.cuts


def _choose(
    search: CutSearch, costs: NDArray[np.float64], pool: Sequence[CandidateCut], max_blocks: int
) -> tuple[list[CandidateCut], BlockChoice]:
    """The best blocks with cuts from `pool` (ascending by position)."""
    segments = _segment_costs(search, costs, [cut.position for cut in pool])
    sizes = np.array([cut.bytes_per_sample for cut in pool], dtype=np.int64)
    choice = choose_blocks(segments[:, None], sizes, max_blocks=max_blocks, slack=_COST_SLACK)
    choice = refine(choice, segments[:, None], sizes, max_blocks=max_blocks)
    return [pool[segment - 1] for segment in choice.cuts], choice


def _segment_costs(search: CutSearch, costs: NDArray[np.float64], positions: Collection[int]) -> NDArray[np.float64]:
    running = np.concatenate([[0.0], np.cumsum(costs[list(search.order)])])
    return np.diff(running[[0, *positions, len(search.order)]])


def _weights(search: CutSearch, costs: NDArray[np.float64], chosen: Sequence[CandidateCut]) -> tuple[float, ...]:
    segments = _segment_costs(search, costs, [cut.position for cut in chosen])
    total = float(segments.sum())
    if total <= 0.0:
        return tuple(1.0 / len(segments) for _ in segments)
    return tuple(float(segment) / total for segment in segments)


def partition_to_json(partition: Partition) -> str:
    """A partition as JSON text; `partition_from_json` gives it back, equal."""
    content = asdict(partition)
    for cut in content["cuts"]:
        cut["max_abs_error"] = cut["max_abs_error"] if math.isfinite(cut["max_abs_error"]) else None
    return json.dumps({"format": _FORMAT, **content}, indent=1, allow_nan=False)


def partition_from_json(text: str) -> Partition:
    """Reads what `partition_to_json` wrote. Raises ModelError for anything else."""
    try:
        content: dict[str, Any] = json.loads(text)
        if content["format"] != _FORMAT:
            raise ModelError(
                f"partition has format {content['format']!r}, this version reads {_FORMAT}; partition the model again"
            )
        cuts = tuple(
            Cut(
                index=int(cut["index"]),
                tensors=_tensors(cut["tensors"]),
                bytes_per_sample=int(cut["bytes_per_sample"]),
                exact=bool(cut["exact"]),
                max_abs_error=math.inf if cut["max_abs_error"] is None else float(cut["max_abs_error"]),
            )
            for cut in content["cuts"]
        )
        partition = Partition(
            model_digest=str(content["model_digest"]),
            n_blocks=int(content["n_blocks"]),
            cuts=cuts,
            block_weights=tuple(float(weight) for weight in content["block_weights"]),
            inputs=_tensors(content["inputs"]),
            outputs=_tensors(content["outputs"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise ModelError(f"partition can't be read ({type(exc).__name__}: {exc}); partition the model again") from exc
    if [cut.index for cut in cuts] != list(range(1, partition.n_blocks)):
        raise ModelError(
            f"partition of {partition.n_blocks} blocks has cuts {[cut.index for cut in cuts]}; partition it again"
        )
    return partition


def _tensors(items: list[dict[str, Any]]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(str(item["name"]), str(item["dtype"]), tuple(item["shape"])) for item in items)
