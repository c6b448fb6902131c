"""Gives devices that a plan leaves idle to the models it serves: less queueing, and something left when a worker dies.

Greedy: the model with the least capacity for its demand gets one more virtual device at each stage of its cheapest
template that still fits, until nothing fits. A plan only grows by it: every pipeline it had keeps its devices, so its
promises hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.program import Program

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def with_spare(program: Program, counts: IntArray, price: FloatArray) -> IntArray:
    """`counts` [E] grown until no template fits any more; `price` [T] says which is cheaper (lower is better)."""
    counts = counts.copy()
    waiting = set(range(len(program.wants)))
    while waiting:
        m = min(waiting, key=lambda model: (_headroom(program, counts, model), model))
        mine = np.arange(program.first_template[m], program.first_template[m + 1])
        fitting = mine[_fits_once_more(program, counts)[mine]]
        if program.one_per_sequence:
            fitting = fitting[_allowed_beside(program, counts)[fitting]]
        if not len(fitting):
            waiting.remove(m)
            continue
        # Templates that serve the tightest SLO first: what they carry relieves every demand.
        best = fitting[np.lexsort((fitting, price[fitting], program.tightest[fitting]))[0]]
        counts[program.e_first[best] : program.e_first[best + 1]] += 1
    return counts


def _headroom(program: Program, counts: IntArray, m: int) -> float:
    """Capacity of model m over its demand."""
    mine = slice(int(program.first_template[m]), int(program.first_template[m + 1]))
    return float(program.capacity(counts)[mine].sum())


def _fits_once_more(program: Program, counts: IntArray) -> NDArray[np.bool_]:
    """bool [T]: one more virtual device at every stage of the template still fits beside `counts`."""
    pools, classes = len(program.p_class), len(program.class_counts)
    held = program.pool_devices(counts)
    used = np.bincount(program.e_pool, counts / program.e_share, minlength=pools)
    free = program.class_counts - np.bincount(program.p_class, held, minlength=classes)
    room = held - used  # [P], in devices
    # Use per (template, pool), then the devices beyond the pool's room, summed per (template, class).
    pairs, inverse = np.unique(program.e_template * pools + program.e_pool, return_inverse=True)
    need = np.bincount(inverse.reshape(-1), 1.0 / program.e_share)
    template, pool = pairs // pools, pairs % pools
    more = np.ceil(need - room[pool] - 1e-9).clip(min=0)
    wanted = np.bincount(template * classes + program.p_class[pool], more, minlength=program.size * classes)
    return np.asarray((wanted.reshape(program.size, classes) <= free).all(axis=1))


def _allowed_beside(program: Program, counts: IntArray) -> NDArray[np.bool_]:
    """bool [T]: under PPipe's restriction, the templates whose sequence no other template has taken."""
    used = counts[program.e_first[:-1]] > 0
    sequence = program.sequence_keys()
    taken = np.zeros(int(sequence.max(initial=-1)) + 1, dtype=bool)
    taken[sequence[used]] = True
    return used | ~taken[sequence]
