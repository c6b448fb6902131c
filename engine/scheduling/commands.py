"""Commands that come out of a scheduler: all it ever asks of a driver (live runtime or simulator)."""

from __future__ import annotations

import msgspec

from framepool.engine.scheduling.events import DropReason


class Hop(msgspec.Struct, frozen=True):
    """One stage of a batch's route. The worker may start within [earliest_ns, latest_ns] and refuses outside it.

    `start_ns`/`end_ns` are the reserved (predicted) times: workers order their queue by `start_ns`. earliest_ns may
    lie before start_ns: a worker never idles when work is ready. `input_ns`, where it is not 0: the transfer of the
    stage's input is reserved to end then, and begins no earlier than that takes.
    """

    stage: int
    worker_id: str
    earliest_ns: int
    latest_ns: int
    start_ns: int
    end_ns: int
    input_ns: int = 0


class Dispatch(msgspec.Struct, frozen=True):
    """Run `frames` (ids, in batch order) as one batch through `hops`, consecutive stages of `pipeline_id`.

    hops[0].stage is 0 for fresh frames; a policy that decides stage by stage (reactive) sends one hop at a time, and
    then hops[0].stage > 0 takes each frame's activations from where its last batch left them.
    """

    batch_id: int
    pipeline_id: str
    frames: tuple[int, ...]
    hops: tuple[Hop, ...]


class Complete(msgspec.Struct, frozen=True):
    """The frame's detections are published; `in_time` = published no later than its deadline. Ends the frame."""

    frame_id: int
    in_time: bool


class Drop(msgspec.Struct, frozen=True):
    """The frame ends without detections. Ends the frame."""

    frame_id: int
    reason: DropReason


class WakeAt(msgspec.Struct, frozen=True):
    """Send a `Tick` at `at_ns`; replaces any earlier `WakeAt`."""

    at_ns: int


Command = Dispatch | Complete | Drop | WakeAt
