"""Who gives way when more frames wait than can be in time: the stream that has most of them.

Theory of operation. Frames of all streams of a model share one queue by deadline. Left alone, overload would cost each
stream the same fraction: one camera that sends far over its share would ruin its neighbours. So, as a frame joins, it
is asked how many frames the up workers can end before its deadline; if more stand before it, the stream with most
waiting frames loses its oldest, provided that it has at least two (with one each, nobody is over its share, and the
policy's own rules decide). That bounds the queue to what can be served, and leaves each stream an equal share of it.
"""

from __future__ import annotations

from framepool.engine.scheduling.events import DropReason
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.routes import Lane
from framepool.engine.scheduling.state import SchedulerState


def shed(state: SchedulerState, lane: Lane, entry: Entry, now_ns: int) -> None:
    """Makes room after `entry` joined the live frames of `lane`; it may be the one that gives way."""
    options = state.options
    counts = lane.counts
    if counts.total > options.max_waiting_per_model:
        _drop_oldest_of_largest(state, lane)
        return
    if not options.fair_shedding or len(counts.by_stream) < 2 or not lane.usable:
        return
    budget_ns = entry.deadline_ns - options.publish_reserve_ns - lane.least_full_ns - now_ns
    ahead = counts.total - len(lane.live) + lane.live.rank(entry)
    if ahead > max(budget_ns, 0) * lane.capacity_per_ns and max(counts.by_stream.values()) > 1:
        _drop_oldest_of_largest(state, lane)


def oldest_waiting(state: SchedulerState, stream_id: int, model: str | None = None) -> Entry | None:
    """The stream's oldest live frame that waits (of `model`, if given), or None."""
    for entry in state.ledger.streams.get(stream_id, {}).values():
        if entry.queue is not None and entry.live and (model is None or entry.model == model):
            return entry
    return None


def _drop_oldest_of_largest(state: SchedulerState, lane: Lane) -> None:
    by_stream = lane.counts.by_stream
    largest = max(by_stream, key=by_stream.__getitem__)
    victim = oldest_waiting(state, largest, lane.model)
    if victim is not None:
        state.drop(victim, DropReason.OVERLOAD)
