"""Settings of a scheduler: every tuned constant, with its unit and where its value comes from. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from framepool.engine.errors import ConfigError

FAR_FUTURE_NS = 1 << 62
"""Later than any time a driver reaches (146 years); still a 64-bit integer on the wire."""


class FirstLook(StrEnum):
    """When a frame that reaches the head of its queue is dropped although a smaller batch could still take it.

    The rule keeps batches full under overload: without it the queue's head always sits at its deadline and every
    batch shrinks to what that head allows.
    """

    PUBLISHED = "published"  # PPipe: unless a full batch started now meets the head's deadline
    PRESSED = "pressed"  # the same, but only while at least a full batch waits
    OFF = "off"  # never; a head is dropped once not even a batch of one meets its deadline


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """How a scheduler decides; see each field for its unit and origin. Raises ConfigError on a value out of range."""

    publish_reserve_ns: int = 5_000_000
    """Kept back between predicted end of inference and deadline, for reporting and publishing (p99 of both on one
    machine is a few ms)."""

    start_slack_ns: int = 5_000_000
    """Added to each hop's latest start, so that clock reads and predictions that are a little off refuse nothing that
    could still be in time."""

    commit_ahead_ns: int | None = 5_000_000
    """A batch is sent when it would queue no longer than this along its route. Long enough to hide the trip from a
    worker's report to its next batch (about 1 ms), short enough that waiting frames stay here, where order, fairness
    and drops are decided. None: reserve as far ahead as deadlines allow (PPipe)."""

    queue_between: bool = False
    """True: queueing for later stages is no reason to hold a batch back. With nothing between two busy stages each
    stands idle for the other at times. False: nobody's frames fill the queue of a slow later stage, so shedding stays
    fair."""

    hold_to_fill: bool = False
    """True: wait for a batch to fill as long as its head's deadline allows, even beside an idle worker (PPipe).
    False: an idle route takes what waits."""

    first_look: FirstLook = FirstLook.PRESSED

    full_batch_fraction: float = 0.95
    """Of the planned batch: what counts as full at first look (PPipe's value)."""

    fair_shedding: bool = True
    """When more frames wait than can be in time, the stream with most of them gives way, so that each stream keeps
    its share."""

    max_waiting_per_model: int = 1024
    """Live frames of a model that may wait (about one second of 40 cameras at 25 fps); above it the stream with most
    waiting frames loses its oldest."""

    max_inflight_per_pipeline: int = 256
    """Batches sent and not ended, per pipeline. A guard of memory; `commit_ahead_ns` binds long before."""

    max_attempts: int = 5
    """Times a frame is sent before it is given up: a frame that kills each worker it meets must end."""

    offline_courtesy_ns: int = 1_000_000_000
    """For so long after a model's last live frame its offline batches hold one frame, so that the next live frame
    waits the least."""

    service_learning: float = 0.1
    """Weight of each measured batch in the running ratio of measured to planned stage latency (0: trust the plan)."""

    report_timeout_ns: int = 30_000_000_000
    """A batch not reported for so long after its predicted end counts as lost with its worker. A net below the
    supervision of workers, which is quicker."""

    def __post_init__(self) -> None:
        at_least = {
            "publish_reserve_ns": 0,
            "start_slack_ns": 0,
            "max_waiting_per_model": 1,
            "max_inflight_per_pipeline": 1,
            "max_attempts": 1,
            "offline_courtesy_ns": 0,
            "report_timeout_ns": 1,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value < least:
                path = f"scheduler.{name}"
                raise ConfigError(f"{path} is {value}; it must be at least {least}", field=path)
        if self.commit_ahead_ns is not None and self.commit_ahead_ns < 0:
            raise ConfigError(
                f"scheduler.commit_ahead_ns is {self.commit_ahead_ns}; it must be at least 0, or absent for no bound",
                field="scheduler.commit_ahead_ns",
            )
        if not 0.0 < self.full_batch_fraction <= 1.0:
            raise ConfigError(
                f"scheduler.full_batch_fraction is {self.full_batch_fraction}; it must lie in (0, 1]",
                field="scheduler.full_batch_fraction",
            )
        if not 0.0 <= self.service_learning <= 1.0:
            raise ConfigError(
                f"scheduler.service_learning is {self.service_learning}; it must lie in [0, 1]",
                field="scheduler.service_learning",
            )

    @classmethod
    def late(cls) -> SchedulerOptions:
        """`published`, but committing late: a batch is sent when its first worker takes it at once, not before, and a
        frame is given up at its first look only while others press behind it. Until then frames wait where they can
        still be put on a better route or into a fuller batch."""
        return replace(cls.published(), commit_ahead_ns=0, queue_between=True, first_look=FirstLook.PRESSED)

    @classmethod
    def published(cls) -> SchedulerOptions:
        """The data plane as PPipe published it: for studies on virtual time, where predictions are exact.

        Everything admitted is run and counted, late or not, so windows stay open.
        """
        return cls(
            publish_reserve_ns=0,
            start_slack_ns=60_000_000_000,
            commit_ahead_ns=None,
            hold_to_fill=True,
            first_look=FirstLook.PUBLISHED,
            fair_shedding=False,
            max_waiting_per_model=1 << 30,
            max_inflight_per_pipeline=1 << 30,
            service_learning=0.0,
        )
