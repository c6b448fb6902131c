"""Plans for few devices: covers every demand at a given z with *bundles*, instead of maximising z.

Theory. On two devices the relaxation of `program` is weak: it serves a model with a fifth of a device, a plan can't.
With z given, each model needs a known rate R, and a template with definite counts (a bundle) is worth ``min(its rate,
R)``: half a bundle now serves half a demand at most, so the relaxation has to buy whole ones and branch and bound
ends quickly. Few bundles matter: of those that use the same virtual devices only the best, and none that another
beats at no more devices. Bisection over z then finds the greatest z: a cover found raises the lower end to its true
z, a proof that there is none lowers the upper end. Cost: one small integer program a step; the bundles of a template
grow with R over the rate of one device, which is why plans for many devices go another way (`search`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.linear import LinearStatus, RowBuilder, solve_linear
from framepool.engine.planning.program import Program

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CHUNK = 256  # bundles compared at once
_PRICE_GAP = 0.01  # a cover within 1 % of the cheapest will do: profiles are no more exact
_PRICE_NODES = 200  # bounds the search for a cheaper cover by work, so that the answer does not depend on the machine
_ROUNDING = 1e-9  # counts are rounded up unless the rate misses the next count by less than this


@dataclass(frozen=True, slots=True)
class Cover:
    """`counts` [E] that serve every demand at least z times, or None; `proven`: None means that there are none."""

    counts: IntArray | None
    proven: bool


@dataclass(frozen=True, slots=True)
class _Bundles:
    """B bundles of one model: `template` [B], `counts` [B, S] per stage, `use` [B, K] per kind, `rate` [B]."""

    template: IntArray
    counts: IntArray
    use: IntArray
    rate: FloatArray

    def select(self, index: IntArray | NDArray[np.bool_]) -> _Bundles:
        return _Bundles(self.template[index], self.counts[index], self.use[index], self.rate[index])


def cover(
    program: Program, z: float, *, time_limit_s: float, price: FloatArray | None = None, start: IntArray | None = None
) -> Cover:
    """Covers all demands of `program` z times.

    Without `price` any cover will do; with `price` [T] (cost of carrying a model's whole demand on a template) the
    cheapest is sought, from the counts `start`.
    """
    need = z * program.d_weight + program.d_fixed
    kinds, e_kind = np.unique(program.e_pool * 1000 + program.e_share, return_inverse=True)
    e_kind = e_kind.reshape(-1).astype(np.int64)
    sets = []
    for m in range(len(program.wants)):
        rate = float(need[int(program.d_first[m + 1]) - 1])
        bundles = _bundles(program, m, rate, e_kind, len(kinds))
        sets.append(_worthwhile(program, bundles, rate, price, m))
    return _solve(program, sets, need, kinds // 1000, kinds % 1000, price, start, time_limit_s)


def _bundles(program: Program, m: int, rate: float, e_kind: IntArray, kind_count: int) -> _Bundles:
    """Every template of model m with all counts that may matter: stages no larger than another's rate needs."""
    first, last = int(program.first_template[m]), int(program.first_template[m + 1])
    width = program.classes.shape[1]
    limit = program.class_counts[program.e_class] * program.e_share
    parts = [
        _Bundles(
            np.empty(0, dtype=np.int64),
            np.empty((0, width), dtype=np.int64),
            np.empty((0, kind_count), dtype=np.int64),
            np.empty(0),
        )
    ]
    for k in (int(v) for v in np.unique(program.n_stages[first:last])):
        templates = first + np.flatnonzero(program.n_stages[first:last] == k)
        entries = program.e_first[templates][:, None] + np.arange(k)
        v, most = program.e_rate[entries], limit[entries]
        for i in range(k):
            steps = np.minimum(np.ceil(rate / v[:, i] - _ROUNDING).astype(np.int64), most[:, i])
            owner = np.repeat(np.arange(len(templates)), steps)
            count = np.arange(len(owner)) - np.repeat(np.cumsum(steps) - steps, steps) + 1
            x = np.minimum(count * v[owner, i], rate)
            counts = np.ceil(x[:, None] / v[owner] - _ROUNDING).astype(np.int64)
            fine = (counts <= most[owner]).all(axis=1)
            owner, counts = owner[fine], counts[fine]
            use = np.zeros((len(owner), kind_count), dtype=np.int64)
            rows = np.arange(len(owner))
            for j in range(k):
                np.add.at(use, (rows, e_kind[entries[owner, j]]), counts[:, j])
            padded = np.zeros((len(owner), width), dtype=np.int64)
            padded[:, :k] = counts
            parts.append(_Bundles(templates[owner], padded, use, (counts * v[owner]).min(axis=1)))
    return _Bundles(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in ("template", "counts", "use", "rate"))
    )


def _worthwhile(program: Program, bundles: _Bundles, rate: float, price: FloatArray | None, m: int) -> _Bundles:
    """The bundles that no other beats: no more devices of any kind, no less rate, no tighter SLO missed, no dearer."""
    if not len(bundles.template):
        return bundles
    worth = np.minimum(bundles.rate, rate)
    tightest = program.tightest[bundles.template]
    dear = np.zeros(len(worth)) if price is None else price[bundles.template]
    # PPipe's restriction forbids to replace a bundle by one of another sequence, which may be taken already.
    sequence = program.sequence_keys()[bundles.template] if program.one_per_sequence else np.zeros_like(tightest)

    # Of bundles with the same use: sorted by rate, keep where the price falls below all before.
    group = _row_groups(np.column_stack([bundles.use, tightest, sequence]))
    order = np.lexsort((dear, -worth, group))
    apart = 1.0 + float(np.abs(dear).max())
    falling = dear[order] - 2 * apart * group[order]  # each group lies below the one before
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(falling)[:-1]])
    ids = order[falling < best_before]

    ids = ids[np.lexsort((ids, dear[ids], tightest[ids], -worth[ids], bundles.use[ids].sum(axis=1)))]
    kept = np.empty(0, dtype=np.int64)

    def beats(a: IntArray, b: IntArray) -> NDArray[np.bool_]:
        out = (worth[a][:, None] >= worth[b]) & (tightest[a][:, None] <= tightest[b]) & (dear[a][:, None] <= dear[b])
        out &= sequence[a][:, None] == sequence[b]
        for kind in range(bundles.use.shape[1]):
            out &= bundles.use[a, kind][:, None] <= bundles.use[b, kind]
        return out

    for begin in range(0, len(ids), _CHUNK):
        chunk = ids[begin : begin + _CHUNK]
        chunk = chunk[~beats(kept, chunk).any(axis=0)]
        kept = np.concatenate([kept, chunk[~np.triu(beats(chunk, chunk), k=1).any(axis=0)]])
    return bundles.select(kept)


def _row_groups(table: IntArray) -> IntArray:
    """int64 [R]: equal rows of non-negative integers get equal numbers, counted from 0."""
    radix = table.max(axis=0) + 1
    if float(np.prod(radix.astype(np.float64))) < 2**62:  # one integer a row sorts far quicker than a row
        packed = table @ np.concatenate([[1], np.cumprod(radix[:-1])]).astype(np.int64)
        return np.unique(packed, return_inverse=True)[1].astype(np.int64)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _solve(
    program: Program,
    sets: list[_Bundles],
    need: FloatArray,
    kind_pool: IntArray,
    kind_share: IntArray,
    price: FloatArray | None,
    start: IntArray | None,
    time_limit_s: float,
) -> Cover:
    """The covering program: columns bundles [B] (binary), devices [P], and with a price the loads [B] they carry."""
    sizes = [len(s.template) for s in sets]
    b_count, p_count, g_count = sum(sizes), len(program.p_class), len(program.class_counts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    all_of = np.arange(b_count)
    template = np.concatenate([s.template for s in sets])
    use = np.concatenate([s.use for s in sets])
    rows = RowBuilder()

    # Pools: shares of a pool summed over a common denominator, so that the row holds integers only.
    common = np.ones(p_count, dtype=np.int64)
    np.lcm.at(common, kind_pool, kind_share)
    row = rows.block(np.full(p_count, -np.inf), np.zeros(p_count))
    b, kind = np.nonzero(use)
    pool = kind_pool[kind]
    pairs, inverse = np.unique(pool * b_count + b, return_inverse=True)
    amounts = np.bincount(inverse.reshape(-1), use[b, kind] * (common[pool] // kind_share[kind]))
    rows.add(row + pairs // b_count, pairs % b_count, amounts.astype(np.float64))
    rows.add(row + np.arange(p_count), b_count + np.arange(p_count), -common.astype(np.float64))
    row = rows.block(np.full(g_count, -np.inf), program.class_counts.astype(np.float64))
    rows.add(row + program.p_class, b_count + np.arange(p_count), np.ones(p_count))

    # Demands: a bundle counts for no more than is needed in the row.
    d_count = len(need)
    row = rows.block(np.ones(d_count), np.full(d_count, np.inf))
    totals = np.empty(b_count)
    for m, bundles in enumerate(sets):
        d_first, d_last = int(program.d_first[m]), int(program.d_first[m + 1])
        totals[offsets[m] : offsets[m + 1]] = need[d_last - 1]
        for d in range(d_first, d_last):
            if need[d] <= 0:
                rows.add(np.array([row + d]), np.array([b_count]), np.array([0.0]))
                continue
            serves = np.flatnonzero(program.tightest[bundles.template] <= d - d_first)
            columns = offsets[m] + serves
            rows.add(np.full(len(serves), row + d), columns, np.minimum(bundles.rate[serves] / need[d], 1.0))
    if program.one_per_sequence:
        sequence = program.sequence_keys()[template]
        row = rows.block(
            np.full(int(program.sequence_keys().max()) + 1, -np.inf), np.ones(int(program.sequence_keys().max()) + 1)
        )
        rows.add(row + sequence, all_of, np.ones(b_count))

    size = b_count + p_count
    cost = np.zeros(size)
    upper = np.ones(size)
    upper[b_count : b_count + p_count] = program.class_counts[program.p_class]
    cost[b_count : b_count + p_count] = -1.0 / max(1, int(program.class_counts.sum()))
    integer = np.ones(size, dtype=bool)
    if price is not None:
        rate = np.concatenate([s.rate for s in sets])
        cost[:b_count] = -price[template] * np.minimum(rate / totals, 1.0)
        cost[b_count : b_count + p_count] *= 1e-4
    solved = solve_linear(
        rows.program(cost, np.zeros(size), upper, integer),
        gap=_PRICE_GAP if price is not None else math.inf,
        node_limit=_PRICE_NODES if price is not None else None,
        time_limit_s=time_limit_s,
    )
    if solved.status is LinearStatus.INFEASIBLE:
        return Cover(None, proven=True)
    if solved.status is LinearStatus.UNKNOWN:
        return Cover(None, proven=False)
    counts = np.zeros(len(program.e_template), dtype=np.int64)
    taken = np.flatnonzero(solved.x[:b_count] > 0.5)
    chosen = np.concatenate([s.counts for s in sets])[taken]
    for t, stage_counts in zip(template[taken], chosen, strict=True):
        begin = int(program.e_first[t])
        counts[begin : begin + int(program.n_stages[t])] += stage_counts[: int(program.n_stages[t])]
    return Cover(counts if program.fits(counts) else None, proven=False)
