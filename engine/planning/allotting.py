"""A strong plan at once: whole devices are dealt to templates by dynamic programming. Pure.

Where every stage of a template gets whole devices, a model's pipelines only meet in how many devices of each class
they take together. So, over all vectors u of devices per class,

    item_m(u)   the best rate of one template on exactly u                    (all templates of model m, all counts)
    rate_m(u)   = max over v of  rate_m(v) + rate_m(u - v)                    (several templates: repeated squaring)
    z(u)        = max over v of  min(rate_1(v), z_{2..}(u - v))               (models side by side)

and the best cell of z is the best of all such plans: exact but for devices that are split between templates. Each step
visits only cells that carry more than every smaller one. Cost: about the square of the number of cells, so it is for
few classes; `search` starts from it and goes on from there. With one item a model instead of several, and as many
devices on each stage, it is the plan of DART-r as PPipe's authors compared with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.program import Program

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_CELLS = 6000
"""Vectors of devices per class up to which it is tried (measured: 0.2 s for 2,000 cells and three models)."""
_WORTH = 1e-9
"""Shares of a rate below this are rounding."""


def allot(program: Program, *, chains: bool = False) -> IntArray | None:
    """Counts [E] of the best plan of whole devices; with `chains`, of those with one template a model and as many
    devices on each of its stages. None where the program is too large, has fixed demands, or a model
    has several SLOs, or no model can be served beside the others."""
    shape = tuple(int(count) + 1 for count in program.class_counts)
    if int(np.prod(shape)) > MOST_CELLS or len(program.d_weight) > len(program.wants) or program.d_fixed.any():
        return None
    tables = [_Table(program, m, shape, chains) for m in range(len(program.wants))]
    side_by_side = [tables[0].rate]
    splits: list[IntArray] = []
    for table in tables[1:]:
        z, split = _combined(side_by_side[-1], table.rate, np.minimum)
        side_by_side.append(z)
        splits.append(split)
    cell = int(np.argmax(side_by_side[-1]))
    if not side_by_side[-1].flat[cell] > 0:
        return None
    counts = np.zeros(len(program.e_template), dtype=np.int64)
    left = np.array(np.unravel_index(cell, shape))
    for table, split in zip(tables[:0:-1], splits[::-1], strict=True):
        rest = np.array(np.unravel_index(int(split[tuple(left)]), shape))
        table.fill(counts, left - rest)
        left = rest
    tables[0].fill(counts, left)
    return counts if chains else program.trimmed(counts)


class _Table:
    """What one model carries on every vector of devices, and with which templates."""

    def __init__(self, program: Program, model: int, shape: tuple[int, ...], chains: bool) -> None:
        self._program = program
        self._by_sequence = program.one_per_sequence and not chains  # PPipe's restriction: one template of each
        self._shape = shape
        templates = np.arange(program.first_template[model], program.first_template[model + 1])
        self._steps: list[tuple[IntArray, _Items | None]] = []  # where each combination was split, and what was added
        if self._by_sequence:
            keys = program.sequence_keys()[templates]
            self.rate = np.full(shape, -np.inf)
            self.rate.flat[0] = 0.0
            for key in np.unique(keys):
                items = _Items(program, templates[keys == key], shape, chains)
                self.rate, split = _combined(self.rate, items.rate, np.add)
                self._steps.append((split, items))
            return
        self._items = _Items(program, templates, shape, chains)
        self.rate = self._items.rate
        while not chains:
            doubled, split = _combined(self.rate, self.rate, np.add)
            if not (_worth_it(doubled) & (doubled > self.rate * (1 + _WORTH))).any():
                return
            self.rate = doubled
            self._steps.append((split, None))

    def fill(self, counts: IntArray, cell: IntArray) -> None:
        """Adds to `counts` what the model runs on exactly the devices of `cell`."""
        self._fill(counts, cell, len(self._steps))

    def _fill(self, counts: IntArray, cell: IntArray, depth: int) -> None:
        if not cell.any():
            return
        if depth == 0:
            if not self._by_sequence:
                self._items.fill(counts, cell)
            return
        split, items = self._steps[depth - 1]
        first = np.array(np.unravel_index(int(split[tuple(cell)]), self._shape))
        self._fill(counts, first, depth - 1)
        if items is None:
            self._fill(counts, cell - first, depth - 1)
        else:
            items.fill(counts, cell - first)


class _Items:
    """The best single template of some on every vector of whole devices. Nothing carries 0.0, at the first cell."""

    def __init__(self, program: Program, templates: IntArray, shape: tuple[int, ...], chains: bool) -> None:
        self._program = program
        self._chains = chains
        self.rate = np.full(shape, -np.inf)
        self._best = np.full(shape, -1, dtype=np.int64)
        self.rate.flat[0] = 0.0
        for cells, rates, owners in _candidates(program, templates, shape, chains):
            order = np.argsort(rates, kind="stable")  # the best is written last
            cells, rates, owners = cells[order], rates[order], owners[order]
            better = rates > self.rate.flat[cells]
            self.rate.flat[cells[better]] = rates[better]
            self._best.flat[cells[better]] = owners[better]

    def fill(self, counts: IntArray, cell: IntArray) -> None:
        template = int(self._best[tuple(cell)])
        if template < 0:
            return
        program = self._program
        stages = slice(int(program.e_first[template]), int(program.e_first[template + 1]))
        rate = self.rate[tuple(cell)]
        share = program.e_share[stages]
        need = _whole(rate / (program.e_rate[stages] * share))
        counts[stages] += (need.max() if self._chains else need) * share


def _candidates(
    program: Program, templates: IntArray, shape: tuple[int, ...], chains: bool
) -> Iterator[tuple[IntArray, FloatArray, IntArray]]:
    """(cell, rate, template) of every template at every count of whole devices of each of its stages."""
    most = np.array(shape) - 1
    stride = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
    for k in (int(v) for v in np.unique(program.n_stages[templates])):
        mine = templates[program.n_stages[templates] == k]
        entries = program.e_first[mine][:, None] + np.arange(k)
        device_rate = program.e_rate[entries] * program.e_share[entries]  # [T, k] of a whole device
        classes = program.e_class[entries]
        for i, g in itertools.product(range(k), range(len(shape))):
            of_class = np.flatnonzero(classes[:, i] == g)
            if not len(of_class) or not most[g]:
                continue
            rate = device_rate[of_class, i][:, None] * np.arange(1, most[g] + 1)  # [T, N]
            need = _whole(rate[:, :, None] / device_rate[of_class][:, None, :])  # [T, N, k]
            if chains:
                rate = device_rate[of_class].min(axis=1)[:, None] * np.arange(1, most[g] + 1)
                need[:] = np.arange(1, most[g] + 1)[None, :, None]
            cell = np.zeros(rate.shape, dtype=np.int64)
            fits = np.ones(rate.shape, dtype=bool)
            for h in range(len(shape)):
                taken = (need * (classes[of_class][:, None, :] == h)).sum(axis=2)
                fits &= taken <= most[h]
                cell += taken * stride[h]
            owners = np.broadcast_to(mine[of_class][:, None], rate.shape)
            yield cell[fits], rate[fits], owners[fits]


def _whole(devices: FloatArray) -> IntArray:
    """Rounded up, but for rounding errors; a stage needs one device at least."""
    return np.maximum(np.ceil(devices - 1e-9), 1).astype(np.int64)


def _combined(a: FloatArray, b: FloatArray, how: np.ufunc) -> tuple[FloatArray, IntArray]:
    """``max over v of how(a[v], b[u - v])`` for every u, and the flat v that reaches it (0 where nothing does)."""
    best = np.full(a.shape, -np.inf)
    split = np.zeros(a.shape, dtype=np.int64)
    for flat in np.flatnonzero(_worth_it(a)):
        at = np.unravel_index(int(flat), a.shape)
        target = tuple(slice(int(i), None) for i in at)
        source = tuple(slice(0, n - int(i)) for i, n in zip(at, a.shape, strict=True))
        value = how(a[at], b[source])
        better = value > best[target]
        best[target][better] = value[better]
        split[target][better] = flat
    return best, split


def _worth_it(rate: FloatArray) -> NDArray[np.bool_]:
    """Which cells carry more than every cell with no more devices of any class."""
    most = rate.copy()
    for axis in range(rate.ndim):
        np.maximum.accumulate(most, axis=axis, out=most)
    worth = np.isfinite(rate)
    for axis in range(rate.ndim):
        before = np.full(rate.shape, -np.inf)
        after = [slice(None)] * rate.ndim
        earlier = [slice(None)] * rate.ndim
        after[axis], earlier[axis] = slice(1, None), slice(0, -1)
        before[tuple(after)] = most[tuple(earlier)]
        worth &= rate > before
    return worth
