"""Enumerates pipeline templates: every way to cut a model into stages on classes, shares and one batch size.

Theory. A template is a sequence of stages (device class g, share 1/s, blocks [i, j)) and one batch size b for all.
With L the latency of a stage for a batch of b and t the link time of one sample at a cut, it is feasible for an SLO
when

    sum(L) + sum(t * b) + build(b) + margin(SLO) <= SLO,   build(b) = 1.3e6 * (b - 1) / expected rate,

and its weights and what crosses its edges find room in a share's memory, where both are known; and one virtual device
of a stage sustains ``v = min(1e6 * b / L, 1e6 / (t_in * s * d), 1e6 / (t_out * s * d))``
samples a second, where d devices share a link (no bound where the class has no link: shared memory). The program of
`program` then decides how many virtual devices each stage gets.

Everything is held as arrays over templates, so that 10 blocks, 3 stages, 4 shares and 16 batch sizes (millions of
combinations) are enumerated in well under a second per class sequence; `pruning` removes what can't be in a best plan.
Does not solve, does not place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.inventory import DeviceClass, Inventory
from framepool.engine.planning.pruning import undominated, undominated_batches
from framepool.models.profile import ModelProfile

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_BLOCK_US = 1.0
"""Blocks measured faster than this count as this: a timer's resolution must not make a stage free."""

NEVER_US = 1e15
"""Stands for the latency of a batch that was not measured on a share: no SLO allows it."""

BATCH_BUILD_FACTOR = 1.3
"""A batch is assumed to take this times its mean building time (PPipe's allowance for uneven arrivals)."""


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What may be enumerated.

    `slo_margin` is the share of the SLO kept free. `sequences`, where given, lists the allowed sequences of class
    names (still bounded by the stage limits); `distinct_classes` forbids a class to occur twice in one pipeline.
    `whole_devices` ignores shares below 1. `keep_faster` keeps templates that are only better in latency, for a
    planner that breaks ties by it; `any_share` lets a finer share dominate a coarser one (see `pruning`).
    """

    slo_margin: float = 0.1
    min_stages: int = 1
    max_stages: int = 2
    max_batch: int = 16
    sequences: tuple[tuple[str, ...], ...] | None = None
    distinct_classes: bool = False
    whole_devices: bool = False
    keep_faster: bool = True
    any_share: bool = False


@dataclass(frozen=True, slots=True)
class TemplateSet:
    """T templates of one model, at most S stages each; entries of missing stages are 0 (`rate_fps`: inf).

    `classes` [T, S] indexes the inventory's classes (-1: no stage), `shares` is s of 1/s, `first`/`last` bound the
    blocks. `rate_fps` [T, S] is the rate of one virtual device. `latency_us` [T] is a full batch through all stages
    and transfers, `build_us` [T] the time until the batch is built. `tightest` [T] indexes the ascending SLOs the
    set was made for: the template serves that SLO and all later ones.
    """

    model: str
    slos_us: tuple[float, ...]
    n_stages: IntArray
    classes: IntArray
    shares: IntArray
    first: IntArray
    last: IntArray
    batch: IntArray
    rate_fps: FloatArray
    latency_us: FloatArray
    build_us: FloatArray
    tightest: IntArray

    def __len__(self) -> int:
        return len(self.batch)

    def select(self, index: IntArray | NDArray[np.bool_]) -> TemplateSet:
        """The templates of `index` (mask or positions), in that order."""
        arrays = {name: getattr(self, name)[index] for name in _ARRAYS}
        return TemplateSet(model=self.model, slos_us=self.slos_us, **arrays)


_ARRAYS = (
    "n_stages", "classes", "shares", "first", "last", "batch", "rate_fps", "latency_us", "build_us", "tightest",
)  # fmt: skip


def margin_us(slo_us: float, slo_margin: float) -> float:
    """Microseconds of an SLO that the plan leaves free: `slo_margin` of it, rounded to whole microseconds."""
    return float(round(slo_margin * slo_us))


def transfer_us(sender: DeviceClass, receiver: DeviceClass, sample_bytes: int) -> float:
    """Link time of one sample at a cut: the slower of the two links; 0 where both sides share memory."""
    links = [c.link_gbps for c in (sender, receiver) if c.link_gbps is not None]
    return 8e6 * sample_bytes / (min(links) * 1e9) if links else 0.0


def class_sequences(inventory: Inventory, options: TemplateOptions) -> tuple[tuple[int, ...], ...]:
    """Allowed sequences of class indices: short ones first, then in the inventory's order."""
    usable = [i for i, c in enumerate(inventory.classes) if c.count > 0]
    names = {c.name: i for i, c in enumerate(inventory.classes)}
    allowed = None
    if options.sequences is not None:
        allowed = {tuple(names.get(n, -1) for n in seq) for seq in options.sequences}
    out = []
    for length in range(options.min_stages, options.max_stages + 1):
        for seq in itertools.product(usable, repeat=length):
            if options.distinct_classes and len(set(seq)) < length:
                continue
            if allowed is None or seq in allowed:
                out.append(seq)
    return tuple(out)


def enumerate_templates(
    profile: ModelProfile,
    inventory: Inventory,
    slos_us: Sequence[float],
    options: TemplateOptions,
    expected_fps: float | None = None,
) -> TemplateSet:
    """All templates of a model that meet at least the loosest of `slos_us` (ascending), dominated ones removed.

    `expected_fps` is the rate at which batches build; None leaves the building time out.
    """
    limits_us = np.array([slo - margin_us(slo, options.slo_margin) for slo in slos_us])
    tables = _LatencyTables(profile, inventory, options)
    parts = []
    for seq in class_sequences(inventory, options):
        part = _of_sequence(profile, inventory, seq, limits_us, options, tables, expected_fps)
        if part is not None:
            parts.append(part)
    return _concatenate(profile.model, tuple(slos_us), parts, options.max_stages)


def fastest_us(profile: ModelProfile, inventory: Inventory, options: TemplateOptions) -> float | None:
    """Least latency of any template at batch 1; None where the model is profiled on no usable sequence."""
    tables = _LatencyTables(profile, inventory, options)
    best: float | None = None
    no_limit = np.array([np.inf])
    for seq in class_sequences(inventory, options):
        part = _of_sequence(profile, inventory, seq, no_limit, options, tables, None, largest_batch=1)
        if part is not None:
            least = float(part["latency_us"].min())
            best = least if best is None else min(best, least)
    return best


class _LatencyTables:
    """Cumulated block latencies per class: `of[g]` is (shares [P], float64 [P, n_blocks + 1, B]) or absent.

    B is the greatest batch measured on any share; small shares are often measured up to smaller batches only.
    """

    def __init__(self, profile: ModelProfile, inventory: Inventory, options: TemplateOptions) -> None:
        self.of: dict[int, tuple[IntArray, FloatArray]] = {}
        for g, device_class in enumerate(inventory.classes):
            shares = [1] if options.whole_devices else sorted(device_class.shares)
            blocks = [b for s in shares if (b := profile.of(device_class.name, s)) is not None]
            if not blocks:
                continue
            depth = min(options.max_batch, max(b.max_batch for b in blocks))
            table = np.zeros((len(blocks), profile.n_blocks + 1, depth))
            for p, block in enumerate(blocks):
                clipped = np.full((profile.n_blocks, depth), NEVER_US)
                known = min(depth, block.max_batch)
                clipped[:, :known] = np.maximum(block.latency_us[:, :known], MIN_BLOCK_US)
                np.cumsum(clipped, axis=0, out=table[p, 1:])
            self.of[g] = np.array([b.share for b in blocks], dtype=np.int64), table


def _of_sequence(
    profile: ModelProfile,
    inventory: Inventory,
    seq: tuple[int, ...],
    limits_us: FloatArray,
    options: TemplateOptions,
    tables: _LatencyTables,
    expected_fps: float | None,
    largest_batch: int | None = None,
) -> Mapping[str, NDArray[np.generic]] | None:
    """Feasible, undominated templates of one class sequence as arrays, or None. Axes inside: [cuts, shares, batch]."""
    k = len(seq)
    if k > profile.n_blocks or any(g not in tables.of for g in seq):
        return None
    depth = min(tables.of[g][1].shape[2] for g in seq)
    if largest_batch is not None:
        depth = min(depth, largest_batch)
    inner = np.array(list(itertools.combinations(range(1, profile.n_blocks), k - 1)), dtype=np.int64)
    edges = np.zeros((len(inner), k + 1), dtype=np.int64)
    edges[:, 1:k] = inner.reshape(len(inner), k - 1)
    edges[:, k] = profile.n_blocks
    picks = np.array(list(itertools.product(*(range(len(tables.of[g][0])) for g in seq))), dtype=np.int64)
    shares = np.stack([tables.of[g][0][picks[:, i]] for i, g in enumerate(seq)], axis=1)
    batches = np.arange(1, depth + 1, dtype=np.int64)

    classes = [inventory.classes[g] for g in seq]
    edge_bytes = np.array(profile.edge_bytes, dtype=np.int64)
    per_byte = [transfer_us(a, b, 1) for a, b in itertools.pairwise(classes)]
    cut_us = [edge_bytes[edges[:, i + 1]] * per_byte[i] for i in range(k - 1)]  # per cut: [cuts]

    latency = np.zeros((len(edges), len(picks), depth))
    rate = np.empty((k, len(edges), len(picks), depth))
    for i, g in enumerate(seq):
        table = tables.of[g][1][:, :, :depth]
        stage = table[picks[:, i]][:, edges[:, i + 1]] - table[picks[:, i]][:, edges[:, i]]  # [shares, cuts, batch]
        stage = stage.transpose(1, 0, 2)
        latency += stage
        rate[i] = 1e6 * batches / stage
        if classes[i].link_gbps is not None:
            for j in (i - 1, i):  # the cuts before and after the stage
                if 0 <= j < k - 1:
                    use = cut_us[j][:, None] * shares[None, :, i] * classes[i].devices_per_link
                    with np.errstate(divide="ignore"):
                        rate[i] = np.minimum(rate[i], (1e6 / use)[:, :, None])
    for us in cut_us:
        latency += us[:, None, None] * batches
    build = np.zeros(depth)
    if expected_fps is not None:
        build = BATCH_BUILD_FACTOR * 1e6 * (batches - 1) / expected_fps

    tight = np.searchsorted(limits_us, latency + build, side="left")  # len(limits): not even the loosest
    tight[~_fits_memory(profile, classes, edges, shares, batches)] = len(limits_us)
    feasible = np.flatnonzero((tight < len(limits_us)).any(axis=(0, 1)))
    if not len(feasible):
        return None
    depth = int(feasible[-1]) + 1  # larger batches are of no use anywhere; comparing them would cost most
    rate, tight, latency = rate[..., :depth], tight[..., :depth], latency[..., :depth]
    faster = latency if options.keep_faster else None
    c, p, b = np.nonzero(undominated_batches(rate, tight, faster) & (tight < len(limits_us)))
    if not len(c):
        return None
    flat_rate = rate[:, c, p, b].T
    flat_latency = latency[c, p, b]
    tightest = tight[c, p, b]
    keep = undominated(
        flat_rate,
        shares[p],
        tightest,
        flat_latency if options.keep_faster else None,
        any_share=options.any_share,
    )
    c, p, b = c[keep], p[keep], b[keep]
    return {
        "n_stages": np.full(len(c), k, dtype=np.int64),
        "classes": np.broadcast_to(np.array(seq, dtype=np.int64), (len(c), k)),
        "shares": shares[p],
        "first": edges[c, :-1],
        "last": edges[c, 1:],
        "batch": batches[b],
        "rate_fps": flat_rate[keep],
        "latency_us": flat_latency[keep],
        "build_us": build[b],
        "tightest": tightest[keep],
    }


def _fits_memory(
    profile: ModelProfile, classes: Sequence[DeviceClass], edges: IntArray, shares: IntArray, batches: IntArray
) -> NDArray[np.bool_]:
    """bool [cuts, shares, batch]: whether every stage has room for its weights and for what enters and leaves it."""
    fits = np.ones((len(edges), len(shares), len(batches)), dtype=bool)
    if not profile.block_bytes:
        return fits
    weights = np.concatenate([[0], np.cumsum(profile.block_bytes)])
    crossing = np.array(profile.edge_bytes, dtype=np.int64)
    for i, device_class in enumerate(classes):
        if device_class.memory_bytes is None:
            continue
        first, last = edges[:, i], edges[:, i + 1]
        held = (weights[last] - weights[first])[:, None] + (crossing[first] + crossing[last])[:, None] * batches
        fits &= held[:, None, :] * shares[None, :, i, None] <= device_class.memory_bytes
    return fits


def _concatenate(
    model: str, slos_us: tuple[float, ...], parts: Sequence[Mapping[str, NDArray[np.generic]]], width: int
) -> TemplateSet:
    """Stacks the sequences' arrays, padding the stage axis to `width`."""
    pad = {"classes": -1, "shares": 0, "first": 0, "last": 0, "rate_fps": np.inf}
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in _ARRAYS:
        dtype = np.float64 if name in ("rate_fps", "latency_us", "build_us") else np.int64
        if name in pad:
            columns: list[NDArray[np.generic]] = [np.empty((0, width), dtype=dtype)]
            for part in parts:
                full = np.full((len(part["batch"]), width), pad[name], dtype=dtype)
                full[:, : part[name].shape[1]] = part[name]
                columns.append(full)
        else:
            columns = [np.empty(0, dtype=dtype), *(part[name].astype(dtype) for part in parts)]
        arrays[name] = np.concatenate(columns)
    return TemplateSet(model=model, slos_us=slos_us, **arrays)  # type: ignore[arg-type]
