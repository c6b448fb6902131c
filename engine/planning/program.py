"""The plan as a mixed-integer program: how many virtual devices each stage of each template gets.

With x_t the rate of template t, n_tk >= 0 (integer) its virtual devices at stage k, v_tk the rate of one of them and
s_tk the share's denominator:

    maximise z
    x_t <= n_tk * v_tk                            for every stage                                     (rate)
    sum n_tk / s_tk <= N_p, N_p integer           for every pool p                                    (pool)
    sum N_p <= devices of the class               for every class                                     (class)
    sum_{t serves s_j} x_t >= F_j + z * W_j       for every model and every j-th of its SLOs          (demand)

**Pools.** Sharing "pool" is PPipe's: a device belongs to one (model, stage position, class), and inside it may be
split into unlike shares. Sharing "device" lets pools share a device, but splits each device into equal shares: p is
then (class, share) and N_p counts the devices split so. Both have the same rows, only the key of p differs.

**Demands with several SLOs.** For SLOs s_1 < s_2 < ... of one model, W_j and F_j are the weights and fixed rates of
the first j demands together. A template that meets s_j serves every later demand, so what may serve demand i is
nested in what may serve demand i + 1. By Hall's condition for such nested sets the demands can all be served at once
exactly when, for each j, the templates that meet s_j can carry demands 1..j: serve the tightest first; what is short
for some j is short in every assignment, as only those templates may serve demands 1..j.

`Program` holds the arrays; `relaxation` is the linear bound (n and N eliminated: n = x / v), `integer_program` the
whole. The objective is never taken from a solver: `objective` recomputes it from integer counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.linear import LinearProgram, RowBuilder
from framepool.engine.planning.templates import TemplateSet

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Sharing(StrEnum):
    """Who may share a physical device; see the module docstring."""

    POOL = "pool"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class ModelWants:
    """One model's templates and demands. `weight_fps`/`fixed_fps` go with `templates.slos_us`.

    `fixed_fps` is to be served as it is, `weight_fps` z times.
    """

    templates: TemplateSet
    weight_fps: tuple[float, ...]
    fixed_fps: tuple[float, ...]

    @property
    def total_fps(self) -> float:
        return sum(self.weight_fps) + sum(self.fixed_fps)


class Program:
    """The program's arrays, flattened over models.

    Sizes: T templates, E (template, stage) pairs, P pools, G classes, D demands.

    Rates are divided by their model's total demand, so 1 is "all that the model wants".
    """

    def __init__(
        self, wants: Sequence[ModelWants], class_counts: Sequence[int], sharing: Sharing, one_per_sequence: bool = False
    ) -> None:
        self.wants = tuple(wants)
        self.class_counts: IntArray = np.array(class_counts, dtype=np.int64)
        self.one_per_sequence = one_per_sequence
        sets = [w.templates for w in self.wants]
        sizes = [len(s) for s in sets]
        self.first_template: IntArray = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.model: IntArray = np.repeat(np.arange(len(sets)), sizes)
        self.n_stages: IntArray = np.concatenate([s.n_stages for s in sets])
        self.classes: IntArray = np.concatenate([s.classes for s in sets])
        self.tightest: IntArray = np.concatenate([s.tightest for s in sets])
        self.latency_us: FloatArray = np.concatenate([s.latency_us for s in sets])
        slo_us = [np.array(s.slos_us)[s.tightest] for s in sets]
        self.relative_latency: FloatArray = self.latency_us / np.concatenate(slo_us)

        present = np.arange(self.classes.shape[1])[None, :] < self.n_stages[:, None]
        self.e_template, self.e_position = (a.astype(np.int64) for a in np.nonzero(present))
        self.e_first: IntArray = np.concatenate([[0], np.cumsum(self.n_stages)]).astype(np.int64)
        self.e_class: IntArray = self.classes[present]
        self.e_share: IntArray = np.concatenate([s.shares for s in sets])[present]
        totals = np.array([w.total_fps for w in self.wants])
        rates = np.concatenate([s.rate_fps for s in sets])[present]
        self.e_rate: FloatArray = rates / totals[self.model[self.e_template]]

        if sharing is Sharing.POOL:
            keys = np.stack([self.model[self.e_template], self.e_position, self.e_class], axis=1)
        else:
            keys = np.stack([self.e_class, self.e_share], axis=1)
        pools, inverse = np.unique(keys, axis=0, return_inverse=True)
        self.e_pool: IntArray = inverse.reshape(-1).astype(np.int64)
        self.p_class: IntArray = pools[:, -1 if sharing is Sharing.POOL else 0].astype(np.int64)

        offsets = np.concatenate([[0], np.cumsum([len(w.weight_fps) for w in self.wants])]).astype(np.int64)
        self.d_first: IntArray = offsets
        self.d_weight: FloatArray = np.concatenate([np.cumsum(w.weight_fps) / w.total_fps for w in self.wants])
        self.d_fixed: FloatArray = np.concatenate([np.cumsum(w.fixed_fps) / w.total_fps for w in self.wants])

    @property
    def size(self) -> int:
        return len(self.model)

    @property
    def slots(self) -> int:
        """Most virtual devices that the classes may be split into."""
        finest = np.zeros(len(self.class_counts), dtype=np.int64)
        np.maximum.at(finest, self.e_class, self.e_share)
        return int((finest * self.class_counts).sum())

    # -- what integer counts are worth -------------------------------------------------------------------------

    def capacity(self, counts: IntArray) -> FloatArray:
        """float64 [T]: rate that each template can carry with `counts` [E] virtual devices."""
        carried: FloatArray = np.minimum.reduceat(counts * self.e_rate, self.e_first[:-1])
        return carried

    def objective(self, counts: IntArray) -> float:
        """z of integer counts [E]: the least factor over models and SLOs; -inf where a fixed demand is not met."""
        capacity = self.capacity(counts)
        z = math.inf
        for m in range(len(self.wants)):
            mine = slice(int(self.first_template[m]), int(self.first_template[m + 1]))
            rows = slice(int(self.d_first[m]), int(self.d_first[m + 1]))
            served = np.cumsum(np.bincount(self.tightest[mine], capacity[mine], minlength=rows.stop - rows.start))
            for have, weight, fixed in zip(served, self.d_weight[rows], self.d_fixed[rows], strict=True):
                if weight > 0:
                    z = min(z, float((have - fixed) / weight))
                if have < fixed * (1 - 1e-9):
                    return -math.inf
        return z

    def pool_devices(self, counts: IntArray) -> IntArray:
        """int64 [P]: whole devices that each pool needs for `counts` [E]."""
        used = np.bincount(self.e_pool, counts / self.e_share, minlength=len(self.p_class))
        whole: IntArray = np.ceil(used - 1e-9).astype(np.int64)
        return whole

    def fits(self, counts: IntArray) -> bool:
        """Whether the classes have the devices that `counts` [E] need."""
        need = np.bincount(self.p_class, self.pool_devices(counts), minlength=len(self.class_counts))
        return bool((need <= self.class_counts).all())

    def trimmed(self, counts: IntArray) -> IntArray:
        """`counts` without the virtual devices that a template's slowest stage leaves idle."""
        rate = self.capacity(counts)[self.e_template]
        return np.minimum(counts, np.ceil(rate / self.e_rate - 1e-9).astype(np.int64))

    # -- linear programs -----------------------------------------------------------------------------------------

    def relaxation(self, unit: float, *, price: FloatArray | None = None, z: float | None = None) -> LinearProgram:
        """The linear relaxation over columns x [T], N [P], z; rates and z in multiples of `unit`.

        Rows: pools [P], classes [G], demands [D]. Maximises z, or, with `price` [T] and a fixed `z`, minimises
        ``price @ x``.
        """
        t_count, p_count = self.size, len(self.p_class)
        builder = RowBuilder()
        pools = np.arange(p_count)
        row = builder.block(np.full(p_count, -np.inf), np.zeros(p_count))
        # A template may pass a pool more than once (device sharing): sum its use per pool.
        use = unit / (self.e_rate * self.e_share)
        pairs, inverse = np.unique(self.e_pool * t_count + self.e_template, return_inverse=True)
        builder.add(row + pairs // t_count, pairs % t_count, np.bincount(inverse.reshape(-1), use).astype(np.float64))
        builder.add(row + pools, t_count + pools, np.full(p_count, -1.0))
        self._class_rows(builder, t_count)
        self._demand_rows(builder, unit, np.arange(t_count), t_count + p_count)
        size = t_count + p_count + 1
        cost = np.zeros(size)
        lower, upper = np.zeros(size), np.full(size, np.inf)
        if price is None:
            cost[-1] = 1.0
        else:
            cost[:t_count] = -price
        if z is not None:
            lower[-1] = upper[-1] = z / unit
        return builder.program(cost, lower, upper, np.zeros(size, dtype=bool))

    def integer_program(
        self, unit: float, *, z_cap: float = math.inf, count_limit: IntArray | None = None
    ) -> tuple[LinearProgram, IntegerColumns]:
        """The whole program; `count_limit` [E] bounds the virtual devices of a stage (default: all of the class)."""
        t_count, e_count, p_count = self.size, len(self.e_template), len(self.p_class)
        columns = IntegerColumns(t_count, e_count, p_count, self.one_per_sequence)
        builder = RowBuilder()
        entries = np.arange(e_count)
        row = builder.block(np.full(e_count, -np.inf), np.zeros(e_count))
        builder.add(row + entries, self.e_template, np.full(e_count, 1.0))
        builder.add(row + entries, columns.n + entries, -self.e_rate / unit)
        pools = np.arange(p_count)
        row = builder.block(np.full(p_count, -np.inf), np.zeros(p_count))
        builder.add(row + self.e_pool, columns.n + entries, 1.0 / self.e_share)
        builder.add(row + pools, columns.pools + pools, np.full(p_count, -1.0))
        self._class_rows(builder, columns.pools)
        self._demand_rows(builder, unit, np.arange(t_count), columns.z)

        size = columns.size
        lower, upper = np.zeros(size), np.full(size, np.inf)
        integer = np.zeros(size, dtype=bool)
        limit = self.class_counts[self.e_class] * self.e_share
        if count_limit is not None:
            limit = np.minimum(limit, count_limit)
        upper[columns.n : columns.pools] = limit
        integer[columns.n : columns.pools] = True
        upper[columns.pools : columns.z] = self.class_counts[self.p_class]
        integer[columns.pools : columns.z] = True
        upper[columns.z] = z_cap / unit
        if self.one_per_sequence:
            upper[columns.choice :] = 1.0
            integer[columns.choice :] = True
            self._choice_rows(builder, columns, limit)
        cost = np.zeros(size)
        cost[columns.z] = 1.0
        return builder.program(cost, lower, upper, integer), columns

    def sequence_keys(self) -> IntArray:
        """int64 [T]: templates of one model and class sequence have the same key."""
        keys = np.concatenate([self.model[:, None], self.classes], axis=1)
        numbers: IntArray = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return numbers

    def subset(self, keep: NDArray[np.bool_]) -> Program:
        """The program with only the templates of `keep` [T]. Pools and demands are the same, templates renumbered."""
        other = object.__new__(Program)
        other.__dict__.update(self.__dict__)
        stages = keep[self.e_template]
        other.first_template = np.concatenate(
            [[0], np.cumsum(np.bincount(self.model[keep], minlength=len(self.wants)))]
        ).astype(np.int64)
        for name in ("model", "n_stages", "classes", "tightest", "latency_us", "relative_latency"):
            setattr(other, name, getattr(self, name)[keep])
        for name in ("e_position", "e_class", "e_share", "e_rate", "e_pool"):
            setattr(other, name, getattr(self, name)[stages])
        other.e_template = np.repeat(np.arange(len(other.model)), other.n_stages)
        other.e_first = np.concatenate([[0], np.cumsum(other.n_stages)]).astype(np.int64)
        return other

    def _class_rows(self, builder: RowBuilder, first_pool_column: int) -> None:
        count = len(self.class_counts)
        row = builder.block(np.full(count, -np.inf), self.class_counts.astype(np.float64))
        pools = np.arange(len(self.p_class))
        builder.add(row + self.p_class, first_pool_column + pools, np.ones(len(pools)))

    def add_load_rows(self, builder: RowBuilder, load_columns: IntArray) -> None:
        """Rows by which the loads in `load_columns` [T] serve every demand once (z = 1)."""
        self._serving_rows(builder, self.d_weight + self.d_fixed, load_columns)

    def _demand_rows(self, builder: RowBuilder, unit: float, x_columns: IntArray, z_column: int) -> None:
        row = self._serving_rows(builder, self.d_fixed / unit, x_columns)
        weighted = np.flatnonzero(self.d_weight > 0)
        builder.add(row + weighted, np.full(len(weighted), z_column), -self.d_weight[weighted])

    def _serving_rows(self, builder: RowBuilder, least: FloatArray, x_columns: IntArray) -> int:
        """Rows [D]: what the templates that meet each SLO carry together is at least `least`."""
        count = len(self.d_weight)
        row = builder.block(least, np.full(count, np.inf))
        for m in range(len(self.wants)):
            mine = np.arange(self.first_template[m], self.first_template[m + 1])
            for j in range(int(self.d_first[m + 1] - self.d_first[m])):
                serves = mine[self.tightest[mine] <= j]
                rows = np.full(len(serves), row + self.d_first[m] + j)
                builder.add(rows, x_columns[serves], np.ones(len(serves)))
        return row

    def _choice_rows(self, builder: RowBuilder, columns: IntegerColumns, limit: IntArray) -> None:
        """PPipe's restriction: at most one template of each class sequence of a model has devices."""
        entries = np.arange(len(self.e_template))
        row = builder.block(np.full(len(entries), -np.inf), np.zeros(len(entries)))
        builder.add(row + entries, columns.n + entries, np.ones(len(entries)))
        builder.add(row + entries, columns.choice + self.e_template, -limit.astype(np.float64))
        sequence = self.sequence_keys()
        count = int(sequence.max(initial=-1)) + 1
        row = builder.block(np.full(count, -np.inf), np.ones(count))
        builder.add(row + sequence, columns.choice + np.arange(self.size), np.ones(self.size))


class IntegerColumns:
    """Where the columns of `Program.integer_program` begin: x [T] at 0, n [E], N [P], z, choice [T] or none."""

    def __init__(self, t_count: int, e_count: int, p_count: int, one_per_sequence: bool) -> None:
        self.n = t_count
        self.pools = t_count + e_count
        self.z = self.pools + p_count
        self.choice = self.z + 1
        self.size = self.choice + (t_count if one_per_sequence else 0)
