"""Routes: the pipelines of the active plan in integer nanoseconds, each with its pools of workers.

Duty: turn a `Plan` into tables that probes read without arithmetic on floats. A route is made for one plan and never
changes its stages; batches in flight keep the route they were sent on when the next plan takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from framepool.engine.planning.plan import Pipeline, StagePlan
from framepool.engine.scheduling.waiting import WaitingCounts, WaitingQueue
from framepool.engine.scheduling.workers import Pool, Worker


def latency_table_ns(stage: StagePlan, batch: int) -> list[int]:
    """Latency by batch size, index 0 unused. A bigger batch never counts as quicker: measured dips are noise.

    A profile shorter than `batch` is carried on in proportion, from its last entry.
    """
    table = [0]
    for size in range(1, batch + 1):
        known = min(size, len(stage.latency_us))
        table.append(max(table[-1], round(stage.latency_us[known - 1] * 1000.0 * size / known), 1))
    return table


class Route:
    """One pipeline.

    `transfer_ns[k]` is the link time per frame into stage k (entry 0: into the first worker). `rest_ns[k][b]` is the
    unhindered time of a batch of b from its start on stage k to its end on the last; `pure_ns[b]` adds the transfer
    into stage 0. `picks`, `pick_ready_ns` and `pick_start_ns` are what the last probe chose, stage by stage
    (see reservation.py). `price` is what a frame costs (see `set_price`). `inflight` counts batches sent and not ended.
    `credit` is the turn a policy keeps when it deals frames out in proportion to `rate_fps`.
    """

    __slots__ = (
        "batch",
        "credit",
        "id",
        "inflight",
        "last_stage",
        "model",
        "pick_ready_ns",
        "pick_start_ns",
        "picks",
        "pipeline",
        "pools",
        "price",
        "pure_ns",
        "queues",
        "rate_fps",
        "rest_ns",
        "transfer_ns",
    )

    def __init__(self, pipeline: Pipeline, counts: WaitingCounts) -> None:
        stages = pipeline.stages
        self.pipeline = pipeline
        self.id = pipeline.id
        self.model = pipeline.model
        self.batch = pipeline.batch
        self.last_stage = len(stages) - 1
        self.rate_fps = max(pipeline.rate_fps, 0.0) or pipeline.capacity_fps
        self.inflight = 0
        self.price = 0.0
        self.credit = 0.0
        self.pools = [Pool(self, stage.index, latency_table_ns(stage, pipeline.batch)) for stage in stages]
        self.transfer_ns = [round(stages[0].in_us * 1000.0)]
        for before, after in pairwise(stages):
            self.transfer_ns.append(round(max(before.out_us, after.in_us) * 1000.0))
        self.queues = [WaitingQueue(counts) for _ in stages]
        self.picks: list[Worker] = [Worker("") for _ in stages]
        self.pick_ready_ns = [0] * len(stages)
        self.pick_start_ns = [0] * len(stages)
        self.rest_ns: list[list[int]] = []
        self.pure_ns: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Lays the sums again after a pool's latencies changed."""
        rest = [0] * (self.batch + 1)
        tables = []
        for stage in range(self.last_stage, -1, -1):
            latency = self.pools[stage].latency_ns
            rest = [rest[b] + latency[b] for b in range(self.batch + 1)]
            tables.append(rest)
            rest = [rest[b] + self.transfer_ns[stage] * b for b in range(self.batch + 1)]
        self.rest_ns = tables[::-1]
        self.pure_ns = rest

    def set_price(self, prices: Mapping[str, float]) -> None:
        """What a frame of a full batch costs, by prices of device time; 0.0 where there are none."""
        self.price = sum(
            prices.get(stage.device_class, 0.0) * stage.latency_us[-1] / stage.share / self.batch
            for stage in self.pipeline.stages
        )

    @property
    def usable(self) -> bool:
        """Every stage has a worker that is up."""
        return all(pool.order for pool in self.pools)

    @property
    def capacity_per_ns(self) -> float:
        """Frames per nanosecond that its slowest pool of up workers runs in full batches."""
        return min(len(pool.order) * self.batch / pool.latency_ns[self.batch] for pool in self.pools)

    def same_stages(self, other: Route) -> bool:
        """Whether a frame half way through `other` can go on here."""
        mine, theirs = self.pipeline.stages, other.pipeline.stages
        return [(s.first_block, s.last_block) for s in mine] == [(s.first_block, s.last_block) for s in theirs]


class Lane:
    """All that concerns one model: its routes in the active plan and its waiting frames.

    `live` holds frames not yet bound to a route, `offline` those of the offline class; `counts` covers all waiting
    live frames, those in the routes' own stage queues included. `wake_ns`: when the policy wants to look again.
    `usable`, `has_down`, `least_ns` and `capacity_per_ns` are kept by `refresh` when workers come and go:
    `has_down`: some route waits for a worker; `least_ns`: the shortest unhindered route of one frame, down or not.
    """

    __slots__ = (
        "capacity_per_ns",
        "counts",
        "has_down",
        "last_live_ns",
        "least_full_ns",
        "least_ns",
        "live",
        "model",
        "offline",
        "offline_counts",
        "routes",
        "usable",
        "wake_ns",
    )

    def __init__(self, model: str, wake_ns: int) -> None:
        self.model = model
        self.counts = WaitingCounts()
        self.offline_counts = WaitingCounts()
        self.live = WaitingQueue(self.counts)
        self.offline = WaitingQueue(self.offline_counts)
        self.routes: list[Route] = []
        self.usable: list[Route] = []
        self.has_down = False
        self.least_ns = 0
        self.least_full_ns = 0
        self.capacity_per_ns = 0.0
        self.wake_ns = wake_ns
        self.last_live_ns = -wake_ns

    def refresh(self) -> None:
        """Lays the summary of the routes again."""
        self.usable = [route for route in self.routes if route.usable]
        self.has_down = len(self.usable) < len(self.routes)
        self.least_ns = min((route.pure_ns[1] for route in self.routes), default=0)
        serving = self.usable or self.routes
        self.least_full_ns = min((route.pure_ns[route.batch] for route in serving), default=0)
        self.capacity_per_ns = sum(route.capacity_per_ns for route in self.usable)
