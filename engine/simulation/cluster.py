"""A plan on a made-up cluster: workers and links for the simulation, without any device at hand. Pure.

A class's devices are dealt to its servers one by one, so that the devices of a pool share as few links as can be. A
server's devices, and the shares of a device, have one link, up and down.
"""

from __future__ import annotations

from framepool.engine.planning.inventory import Inventory
from framepool.engine.planning.plan import Pipeline, Plan, StagePlan
from framepool.engine.scheduling.events import PlanActivated


def worker_ids(pipeline: Pipeline, stage: StagePlan) -> tuple[str, ...]:
    """Names of a stage's workers: "pipeline/stage/number"."""
    return tuple(f"{pipeline.id}/{stage.index}/{number}" for number in range(stage.devices))


def activated(plan: Plan, inventory: Inventory) -> PlanActivated:
    """`plan` with its workers, and links "class/server" where the class has a network."""
    workers: dict[tuple[str, int], tuple[str, ...]] = {}
    links: dict[str, str] = {}
    used: dict[str, int] = {}
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            device_class = inventory.device_class(stage.device_class)
            ids = worker_ids(pipeline, stage)
            workers[pipeline.id, stage.index] = ids
            first = used.get(device_class.name, 0)
            used[device_class.name] = first + -(-stage.devices // stage.share)
            if device_class.link_gbps is None:
                continue
            servers = max(1, -(-device_class.count // device_class.devices_per_link))
            for number, worker_id in enumerate(ids):
                links[worker_id] = f"{device_class.name}/{(first + number // stage.share) % servers}"
    return PlanActivated(plan, workers, links)
