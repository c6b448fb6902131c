"""Removes templates that can't make a plan better: those that another template of the same class sequence dominates.

A may stand in for B, whatever else the plan holds, when it serves every SLO that B serves and each virtual device of B
can be replaced by virtual devices of A's stage that together do no less and take no more of a device.

- Where a device may be split unevenly inside a pool (`any_share`), 1/sB is replaced by sA/sB pieces of 1/sA. That
  needs sA to be a multiple of sB, and the rate *per whole device* to be no lower. Comparing rates per whole device
  alone would be wrong: a half of a device can't be bought as "half of a better whole".
- Where devices are split homogeneously and shared between pools, the slot that a piece of B leaves free is of use
  only to pieces of the same share; then only equal shares are compared.

Latency joins the comparison where the planner breaks ties by it. Ties are broken by order, so of equal templates one
stays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CHUNK = 256  # templates compared at once: bounds the comparison matrix to a few megabytes


def undominated_batches(
    rate_fps: NDArray[np.float64], tightest: NDArray[np.int64], latency_us: NDArray[np.float64] | None
) -> NDArray[np.bool_]:
    """bool [..., B]: which batch sizes no other batch size of the same stages dominates.

    `rate_fps` is [stages, ..., B], the others [..., B]. This cheap comparison goes first and removes most templates.
    """
    no_worse = np.asarray(tightest[..., :, None] <= tightest[..., None, :])
    better = np.asarray(tightest[..., :, None] < tightest[..., None, :])
    for rate in rate_fps:
        no_worse &= rate[..., :, None] >= rate[..., None, :]
        better |= rate[..., :, None] > rate[..., None, :]
    if latency_us is not None:
        no_worse &= latency_us[..., :, None] <= latency_us[..., None, :]
        better |= latency_us[..., :, None] < latency_us[..., None, :]
    size = tightest.shape[-1]
    earlier = np.arange(size)[:, None] < np.arange(size)[None, :]  # of equal ones the smaller batch stays
    return np.asarray(~(no_worse & (better | earlier)).any(axis=-2))


def undominated(
    rate_fps: NDArray[np.float64],
    shares: NDArray[np.int64],
    tightest: NDArray[np.int64],
    latency_us: NDArray[np.float64] | None,
    *,
    any_share: bool,
) -> NDArray[np.int64]:
    """Ascending positions of the templates of one class sequence that no other dominates.

    `rate_fps` and `shares` are [T, stages], the rest [T].
    """
    whole = rate_fps * shares  # per whole device: comparable over shares
    latency = np.zeros(len(tightest)) if latency_us is None else latency_us
    # A dominates B only if A comes first in this order: every key is monotone in what domination compares.
    order = np.lexsort((np.arange(len(tightest)), latency, tightest, -shares.sum(axis=1), -whole.sum(axis=1)))
    if any_share:
        kinds = np.zeros(len(shares), dtype=np.int64)
    else:
        kinds = np.unique(shares, axis=0, return_inverse=True)[1].reshape(-1)
    survivors = [np.empty(0, dtype=np.int64)]
    for kind in range(int(kinds.max(initial=-1)) + 1):
        survivors.append(_scan(order[kinds[order] == kind], whole, shares, tightest, latency))
    return np.sort(np.concatenate(survivors))


def _scan(
    order: NDArray[np.int64],
    whole: NDArray[np.float64],
    shares: NDArray[np.int64],
    tightest: NDArray[np.int64],
    latency: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The members of `order` that no earlier member dominates, in the same order."""
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        chunk = chunk[~_dominates(kept, chunk, whole, shares, tightest, latency).any(axis=0)]
        inside = np.triu(_dominates(chunk, chunk, whole, shares, tightest, latency), k=1)
        # Domination is transitive: a dominated dominator has an undominated one before it.
        kept = np.concatenate([kept, chunk[~inside.any(axis=0)]])
    return kept


def _dominates(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    whole: NDArray[np.float64],
    shares: NDArray[np.int64],
    tightest: NDArray[np.int64],
    latency: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """bool [len(a), len(b)]: may a stand in for b (disregarding order)."""
    out = (tightest[a][:, None] <= tightest[b][None, :]) & (latency[a][:, None] <= latency[b][None, :])
    for stage in range(whole.shape[1]):
        out &= whole[a, stage][:, None] >= whole[b, stage][None, :]
        out &= shares[a, stage][:, None] % shares[b, stage][None, :] == 0
    return out
