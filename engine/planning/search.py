"""Solves the program of `program`: a bound, a strong start, exact pruning by prices, then branch and bound.

Theory. The linear relaxation has few rows (pools, classes, demands) and gives a bound z_lp and prices: lambda for a
unit of each demand row, pi for a device of each pool. Multiplying the program's rows by them shows, for *every*
solution,

    z <= z_lp - sum_t D_t,   D_t = sum_k pi_k * n_tk / s_tk - lambda_t * min_k(n_tk * v_tk) >= 0.

D_t is what a template wastes against the prices: by being dear in itself, and by rounding its counts up. So once a
plan of value z_lb is known, a template whose least D_t over counts >= 1 exceeds z_lp - z_lb is in no better plan, and
counts whose D_t does are not either. Dealing whole devices out (`allotting`) gives z_lb, and where that leaves much, or
there are too many classes for it, the program over the best-priced templates alone. What then survives is mostly a
few dozen templates, over which HiGHS proves the rest. Cost: one linear program over all templates, one or two small
integer programs. Nothing is lost: the reported bound covers the templates left out.

Plans of equal z differ in what they are worth live, so a last program looks among them (`settle`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.allotting import allot
from framepool.engine.planning.covering import cover
from framepool.engine.planning.linear import RowBuilder, solve_linear
from framepool.engine.planning.program import Program

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FEW_SLOTS = 64  # virtual devices up to which a plan is found by covering (measured: quicker below, slower above)
_LEAST_Z = 1e-6  # of the most: less than this is not looked for
_START_TEMPLATES = 60  # per model, in the first integer program: enough to hold a best plan in most cases tried
_START_TIME = 0.4  # of the time limit may be spent on a better start
_LEFT_OUT = 0.9  # of the gap: plans that are better by less are not looked for
_SETTLE_TEMPLATES = 60  # per model, in the tie-breaking program
_SETTLE_NODES = 300  # bounds tie-breaking by work, not by time: the same answer on any machine
_SETTLE_KEEPS = 1e-7  # share of z that tie-breaking may give up
_TRANSFER_PRICE = 0.02  # one more stage counts as this share of the SLO
_DEVICE_PRICE = 1e-4  # all devices together count as this share of the SLO
_SPARE_WORTH = 0.01  # doubling the load that fits counts as this share of the SLO


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """`gap` is the relative gap at which a plan counts as best. `z_cap`: more than this is not looked for."""

    gap: float = 1e-4
    time_limit_s: float = 10.0
    z_cap: float = math.inf


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`counts` [E] of the program's (template, stage) pairs; `bound` on the best ``min(z, z_cap)``, proven."""

    counts: IntArray
    objective: float
    bound: float


def maximise(program: Program, limits: SearchLimits) -> SearchResult | None:
    """Counts of (nearly) greatest z; None where the fixed demands can't be met."""
    deadline = _Deadline(limits.time_limit_s)
    if program.slots <= _FEW_SLOTS:
        covered = _by_covering(program, limits, _of_whole_devices(program))
        if covered is not None:
            return covered
    first = solve_linear(program.relaxation(1.0))
    if not first.found:
        return None
    if first.value <= 0:
        # Nothing is left for what grows with z; still find counts that meet what is fixed.
        return _integer(program, 1.0, limits, np.ones(program.size, dtype=bool), None, None)
    unit = first.value
    relaxed = solve_linear(program.relaxation(unit))
    top = unit * relaxed.value
    bound = min(top, limits.z_cap)
    prices = _Prices(program, relaxed.row_dual)

    start = _of_whole_devices(program)
    if start is not None and start.objective >= bound / (1 + limits.gap):
        return SearchResult(start.counts, start.objective, max(bound, start.objective))
    keep, most = _worth_a_look(program, prices, top, unit, start, limits)
    if keep.sum() > _START_TEMPLATES * len(program.wants):  # a better start first, from those with the best prices
        few = _best_priced(program, prices.reduced, _START_TEMPLATES) | (relaxed.x[: program.size] > 1e-9)
        if start is not None:
            few |= start.counts[program.e_first[:-1]] > 0
        better = _integer(
            program, unit, replace(limits, time_limit_s=_START_TIME * deadline.left_s()), few, None, start
        )
        if better is not None and (start is None or better.objective > start.objective):
            start = better
        if start is not None and start.objective >= bound / (1 + limits.gap):
            return SearchResult(start.counts, start.objective, max(bound, start.objective))
        keep, most = _worth_a_look(program, prices, top, unit, start, limits)
    best = _integer(program, unit, replace(limits, time_limit_s=deadline.left_s()), keep, most, start)
    if start is None:
        return (
            None
            if best is None
            else SearchResult(best.counts, best.objective, max(best.objective, min(top, best.bound)))
        )
    if best is None or best.objective < start.objective:
        best = SearchResult(start.counts, start.objective, top if best is None else best.bound)
    left_out = start.objective * (1 + _LEFT_OUT * limits.gap)
    return SearchResult(best.counts, best.objective, max(best.objective, min(top, max(best.bound, left_out))))


def _worth_a_look(
    program: Program, prices: _Prices, top: float, unit: float, start: SearchResult | None, limits: SearchLimits
) -> tuple[NDArray[np.bool_], IntArray | None]:
    """Templates [T] that a plan better than `start` may use, and counts [E] that it may give them; all without one."""
    if start is None:
        return np.ones(program.size, dtype=bool), None
    settled = start.objective * (1 + _LEFT_OUT * limits.gap)
    most = prices.most_counts((top - settled) / unit)
    return (most[program.e_first[:-1]] > 0) | (start.counts[program.e_first[:-1]] > 0), most


def class_prices(program: Program) -> list[float]:
    """By class, what z gains by one device more in the linear relaxation; zeros where it has no solution."""
    relaxed = solve_linear(program.relaxation(1.0))
    pools, classes = len(program.p_class), len(program.class_counts)
    if not relaxed.found:
        return [0.0] * classes
    return [abs(float(price)) for price in relaxed.row_dual[pools : pools + classes]]


def settle(program: Program, found: SearchResult, limits: SearchLimits) -> SearchResult:
    """Among plans of (nearly) the same ``min(z, z_cap)``, the one that serves the demands best.

    In this order of weight: least latency relative to the SLO, averaged over models with the load on the templates that
    are fastest; fewer transfers (each as 2 % of the SLO); room for more load, up to twice the demand (1 % of the SLO);
    fewer devices. With z above `z_cap`, throughput nobody asked for is given up for latency. The answer does not
    depend on the machine's speed. Bound and objective stay true: the objective is that of the new counts.
    """
    target = min(found.objective, limits.z_cap) * (1 - _SETTLE_KEEPS)
    if target <= 0 or not math.isfinite(target):
        return found
    price = settling_price(program)
    if program.slots <= _FEW_SLOTS:
        cheapest = cover(program, target, time_limit_s=limits.time_limit_s, price=price)
        if cheapest.counts is None:
            return found
        counts = program.trimmed(cheapest.counts)
        z = program.objective(counts)
        return SearchResult(counts, z, max(min(found.bound, limits.z_cap), z))
    relaxed = solve_linear(program.relaxation(target, price=price, z=target))
    mine = found.counts[program.e_first[:-1]] > 0
    if not relaxed.found:
        return found
    reduced = price + _Prices(program, relaxed.row_dual).reduced
    keep = _best_priced(program, reduced, _SETTLE_TEMPLATES) | (relaxed.x[: program.size] > 1e-9) | mine
    small = program.subset(keep)
    stages = keep[program.e_template]
    settled = _settled_counts(small, price[keep], target, found.counts[stages], limits)
    if settled is None:
        return found
    full = np.zeros_like(found.counts)
    full[stages] = settled
    z = program.objective(full)
    if not program.fits(full) or min(z, limits.z_cap) < min(found.objective, limits.z_cap) * (1 - 1e-6):
        return found
    return SearchResult(full, z, max(min(found.bound, limits.z_cap), z))


def _of_whole_devices(program: Program) -> SearchResult | None:
    """The best plan that splits no device between templates, where that is found at once; see `allotting`."""
    counts = allot(program)
    if counts is None:
        return None
    z = program.objective(counts)
    return SearchResult(counts, z, z)


def _by_covering(program: Program, limits: SearchLimits, start: SearchResult | None) -> SearchResult | None:
    """Bisection over z between plans found, `start` the first, and z proven out of reach; see `covering`."""
    deadline = _Deadline(limits.time_limit_s)
    upper = limits.z_cap
    attempt = upper
    if not math.isfinite(upper):
        relaxed = solve_linear(program.relaxation(1.0))
        if not relaxed.found:
            return None
        upper = max(relaxed.value, 0.0)
        attempt = upper / 2
    least = upper * _LEAST_Z
    best = start
    if best is not None:
        if best.objective * (1 + limits.gap) >= upper:
            return SearchResult(best.counts, best.objective, max(best.objective, upper))
        if not math.isfinite(limits.z_cap):
            attempt = (best.objective + upper) / 2
    while True:
        found = cover(program, attempt, time_limit_s=deadline.left_s())
        if found.counts is not None:
            counts = program.trimmed(found.counts)
            z = program.objective(counts)
            if best is None or z > best.objective:
                best = SearchResult(counts, z, z)
        elif found.proven:
            upper = attempt
        else:
            break
        floor = 0.0 if best is None else best.objective
        if floor * (1 + limits.gap) >= upper or attempt <= least or deadline.over():
            break
        attempt = max(least, (floor + upper) / 2)
    if best is None:
        return None
    return SearchResult(best.counts, best.objective, max(best.objective, upper))


class _Deadline:
    """What is left of a time limit. The one place of planning that reads a clock: only to give up, never to decide."""

    def __init__(self, limit_s: float) -> None:
        self._end_s = time.monotonic() + limit_s

    def left_s(self) -> float:
        return max(0.05, self._end_s - time.monotonic())

    def over(self) -> bool:
        return time.monotonic() >= self._end_s


def settling_price(program: Program) -> FloatArray:
    """float64 [T]: what carrying a model's whole demand on a template costs, in shares of the SLO; see `settle`."""
    price = program.relative_latency + _TRANSFER_PRICE * (program.n_stages - 1)
    return price / max(1, len(program.wants))


class _Prices:
    """Prices of the relaxation, in its unit: `reduced` [T] is what a unit of a template's rate wastes."""

    def __init__(self, program: Program, row_dual: FloatArray) -> None:
        pools, classes = len(program.p_class), len(program.class_counts)
        self.program = program
        pool = np.abs(row_dual[:pools])
        demand = np.abs(row_dual[pools + classes :])
        self.worth = np.zeros(program.size)
        for m in range(len(program.wants)):
            mine = slice(int(program.first_template[m]), int(program.first_template[m + 1]))
            rows = demand[program.d_first[m] : program.d_first[m + 1]]
            reaching = np.concatenate([np.cumsum(rows[::-1])[::-1], [0.0]])  # the rows that a template counts in
            self.worth[mine] = reaching[program.tightest[mine]]
        self.device = pool[program.e_pool] / program.e_share  # [E], price of one virtual device
        cost = np.add.reduceat(self.device / program.e_rate, program.e_first[:-1]) if program.size else self.worth
        self.reduced = cost - self.worth

    def most_counts(self, slack: float) -> IntArray:
        """int64 [E]: greatest counts whose waste stays within `slack` (in the relaxation's unit); 0: leave out.

        A template's waste is least, for a given count of one stage, when its rate is just what that count allows.
        Only those rates need a look: between them waste grows or falls linearly in the rate.
        """
        program = self.program
        out = np.zeros(len(program.e_template), dtype=np.int64)
        unit_rate = program.e_rate
        limit = program.class_counts[program.e_class] * program.e_share
        order = program.e_first
        for k in (int(v) for v in np.unique(program.n_stages)):
            templates = np.flatnonzero(program.n_stages == k)
            entries = order[templates][:, None] + np.arange(k)  # [T_k, k]
            rate, device, most = unit_rate[entries], self.device[entries], limit[entries]
            top = (rate * most).min(axis=1)
            for i in range(k):
                steps = np.arange(1, int(most[:, i].max(initial=0)) + 1)
                x = rate[:, i][:, None] * steps  # [T_k, J]
                need = np.ceil(x[:, None, :] / rate[:, :, None] - 1e-9)  # [T_k, k, J]
                waste = (device[:, :, None] * need).sum(axis=1) - self.worth[templates][:, None] * x
                fine = (waste <= slack + 1e-9) & (x <= top[:, None] * (1 + 1e-9))
                for j in range(k):
                    out[entries[:, j]] = np.maximum(
                        out[entries[:, j]], np.where(fine, need[:, j], 0).max(axis=1, initial=0).astype(np.int64)
                    )
        return out


def _best_priced(program: Program, reduced: FloatArray, per_model: int) -> NDArray[np.bool_]:
    """bool [T]: the `per_model` templates of each model with the least reduced cost."""
    keep = np.zeros(program.size, dtype=bool)
    for m in range(len(program.wants)):
        mine = np.arange(program.first_template[m], program.first_template[m + 1])
        keep[mine[np.argsort(reduced[mine], kind="stable")[:per_model]]] = True
    return keep


def _integer(
    program: Program,
    unit: float,
    limits: SearchLimits,
    keep: NDArray[np.bool_],
    count_limit: IntArray | None,
    begin: SearchResult | None,
) -> SearchResult | None:
    """Branch and bound from `begin` over the templates of `keep`, which hold its own.

    Counts come back for all of the program's entries.
    """
    small = program.subset(keep)
    stages = keep[program.e_template]
    limit = count_limit[stages] if count_limit is not None else None
    start_small = None if begin is None else begin.counts[stages]
    if limit is not None and start_small is not None:
        limit = np.maximum(limit, start_small)
    linear, columns = small.integer_program(unit, z_cap=limits.z_cap, count_limit=limit)
    start = None
    if start_small is not None:
        start = np.zeros(columns.size)
        start[: columns.n] = small.capacity(start_small) / unit
        start[columns.n : columns.pools] = start_small
        start[columns.pools : columns.z] = small.pool_devices(start_small)
        start[columns.z] = min(small.objective(start_small), limits.z_cap) / unit
        if program.one_per_sequence:
            start[columns.choice :] = start_small[small.e_first[:-1]] > 0
    solved = solve_linear(linear, gap=limits.gap / 4, time_limit_s=limits.time_limit_s, start=start)
    if not solved.found:
        return None
    counts = small.trimmed(np.rint(solved.x[columns.n : columns.pools]).astype(np.int64))
    if not small.fits(counts):
        return None
    full = np.zeros(len(program.e_template), dtype=np.int64)
    full[stages] = counts
    objective = program.objective(full)
    return SearchResult(full, objective, max(objective, solved.bound * unit))


def _settled_counts(
    program: Program, price: FloatArray, target: float, start_counts: IntArray, limits: SearchLimits
) -> IntArray | None:
    """Counts that carry `target` times the demands at least cost; None where the search finds none."""
    linear, columns = program.integer_program(target)
    total_devices = max(1, int(program.class_counts.sum()))
    # Columns y [T], the load at z = 1 on each template, join those of the program; y <= x / target.
    t_count, size = program.size, columns.size
    y = np.arange(size, size + t_count)
    cost = np.concatenate([linear.cost, -price])
    cost[columns.pools : columns.z] = -_DEVICE_PRICE / total_devices
    cost[columns.z] = _SPARE_WORTH
    lower = np.concatenate([linear.lower, np.zeros(t_count)])
    upper = np.concatenate([linear.upper, np.full(t_count, np.inf)])
    lower[columns.z], upper[columns.z] = 1.0, 2.0  # in units of `target`
    rows = RowBuilder()
    rows.block(linear.row_lower, linear.row_upper)
    rows.add(linear.rows, linear.columns, linear.values)
    row = rows.block(np.full(t_count, -np.inf), np.zeros(t_count))
    rows.add(row + np.arange(t_count), y, np.ones(t_count))
    rows.add(row + np.arange(t_count), np.arange(t_count), np.full(t_count, -1.0))
    program.add_load_rows(rows, y)
    integer = np.concatenate([linear.integer, np.zeros(t_count, dtype=bool)])
    start = np.zeros(size + t_count)
    capacity = program.capacity(start_counts) / target
    start[:t_count] = capacity
    start[columns.n : columns.pools] = start_counts
    start[columns.pools : columns.z] = program.pool_devices(start_counts)
    start[columns.z] = min(program.objective(start_counts) / target, 2.0)
    start[y] = capacity
    if program.one_per_sequence:
        start[columns.choice : size] = start_counts[program.e_first[:-1]] > 0
    solved = solve_linear(
        rows.program(cost, lower, upper, integer),
        gap=1e-3,
        time_limit_s=limits.time_limit_s,
        node_limit=_SETTLE_NODES,
        start=start,
    )
    if not solved.found:
        return None
    return program.trimmed(np.rint(solved.x[columns.n : columns.pools]).astype(np.int64))
