"""Events that go into a scheduler: all it ever learns about the world. Frozen, cheap, no behaviour.

Times are integer nanoseconds of one monotonic clock (`_ns`), the same that `handle(event, now_ns)` is given.
A *worker id* names one stage worker (one pipeline stage on one virtual device); a restarted worker keeps its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from framepool.engine.planning.plan import Plan


class ServiceClass(StrEnum):
    """`live`: newest frames matter, hopeless ones are dropped early. `offline`: nothing dropped, fills what is left."""

    LIVE = "live"
    OFFLINE = "offline"


class DropReason(StrEnum):
    """Why a frame ended without detections."""

    STALE = "stale"  # its deadline passed while it waited
    INFEASIBLE = "infeasible"  # no route could still meet its deadline
    OVERLOAD = "overload"  # gave way: a queue or the stream's slots were full
    WORKER_LOST = "worker-lost"  # its worker died and its deadline allowed no second try
    STREAM_REMOVED = "stream-removed"
    ERROR = "error"  # decoding, inference or head failed on it


class RefusalReason(StrEnum):
    """Why a worker did not run a batch it was given."""

    TOO_LATE = "too-late"  # could not start within [earliest, latest]
    NO_INPUT = "no-input"  # the input slot no longer holds the frame it was sent for


class Frame(msgspec.Struct, frozen=True):
    """One decoded picture. `id` is unique for the engine's life; `deadline_ns` = capture + SLO (offline: ignored)."""

    id: int
    stream_id: int
    model: str
    capture_ns: int
    deadline_ns: int
    service_class: ServiceClass = ServiceClass.LIVE


class FrameArrived(msgspec.Struct, frozen=True):
    frame: Frame


class RoomWanted(msgspec.Struct, frozen=True):
    """The stream's decoder has a newer frame and no free slot: its oldest waiting live frame should give way."""

    stream_id: int


class StreamRemoved(msgspec.Struct, frozen=True):
    stream_id: int


class StageFinished(msgspec.Struct, frozen=True):
    """Worker `worker_id` ran stage `stage` of the batch from `start_ns` to `end_ns`.

    For the model's last stage this means that the frames' detections are published, unless listed in
    `failed_frames` (their decoding failed; they end as dropped/error).
    """

    batch_id: int
    stage: int
    worker_id: str
    start_ns: int
    end_ns: int
    failed_frames: tuple[int, ...] = ()


class StageRefused(msgspec.Struct, frozen=True):
    batch_id: int
    stage: int
    worker_id: str
    reason: RefusalReason


class StageFailed(msgspec.Struct, frozen=True):
    """Inference raised; the batch's frames end as dropped/error. The worker lives on."""

    batch_id: int
    stage: int
    worker_id: str
    message: str


class WorkerUp(msgspec.Struct, frozen=True):
    """The worker is loaded, warm and takes batches (first start or after a restart)."""

    worker_id: str


class WorkerLost(msgspec.Struct, frozen=True):
    """The worker died with everything it held."""

    worker_id: str


class PlanActivated(msgspec.Struct, frozen=True):
    """From now on route by `plan`. `workers` maps (pipeline id, stage index) to worker ids, each of them up or
    announced by a `WorkerUp` later. `links` maps a worker id to the id of the link it shares (absent: no link, i.e.
    shared memory). Batches in flight on workers that are no longer listed still finish and are still reported.
    """

    plan: Plan
    workers: Mapping[tuple[str, int], tuple[str, ...]]
    links: Mapping[str, str]


class Tick(msgspec.Struct, frozen=True):
    """The time asked for by the last `WakeAt` has come (an early or spurious tick does no harm)."""


Event = (
    FrameArrived
    | RoomWanted
    | StreamRemoved
    | StageFinished
    | StageRefused
    | StageFailed
    | WorkerUp
    | WorkerLost
    | PlanActivated
    | Tick
)
