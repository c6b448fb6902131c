"""A plan on a made-up cluster: workers and links for the simulation, without any device at hand. Pure.

A pool's devices sit in as few servers as hold them, shared with no other pool, and are dealt to these one by one. A
server's devices, and the shares of a device, have one link, up and down. (So PPipe's published simulation is
reproduced, with pools of one class behind each other too; with servers shared between pools it is not.)
"""

from __future__ import annotations

from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Pipeline, Plan, StagePlan
from framepool.engine.scheduling.events import PlanActivated


def worker_ids(pipeline: Pipeline, stage: StagePlan) -> tuple[str, ...]:
    """Names of a stage's workers: "pipeline/stage/number"."""
    return tuple(f"{pipeline.id}/{stage.index}/{number}" for number in range(stage.devices))


def activated(plan: Plan, inventory: Inventory) -> PlanActivated:
    """`plan` with its workers, and links "pipeline/stage/server-number" where the class has a network."""
    workers: dict[tuple[str, int], tuple[str, ...]] = {}
    links: dict[str, str] = {}
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            device_class = inventory.device_class(stage.device_class)
            ids = worker_ids(pipeline, stage)
            workers[pipeline.id, stage.index] = ids
            if device_class.link_gbps is None:
                continue
            devices = -(-stage.devices // stage.share)
            servers = -(-devices // device_class.devices_per_link)
            for number, worker_id in enumerate(ids):
                links[worker_id] = f"{pipeline.id}/{stage.index}/server-{number // stage.share % servers}"
    return PlanActivated(plan, workers, links)
