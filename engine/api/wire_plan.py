"""Plans on the wire: engine values to messages and back. No checks."""

from __future__ import annotations

from framepool.engine.api.wire_values import bare, model_resource
from framepool.engine.planning.inventory import Device, VirtualDevice
from framepool.engine.planning.plan import Demand, Pipeline, PlacedPlan, Plan, StagePlan, WorkerPlace
from framepool.proto import engine_pb2


def _stage_to_wire(stage: StagePlan) -> engine_pb2.StagePlan:
    return engine_pb2.StagePlan(
        index=stage.index,
        first_block=stage.first_block,
        last_block=stage.last_block,
        device_class=stage.device_class,
        share=stage.share,
        devices=stage.devices,
        latency_us=stage.latency_us,
        in_bytes=stage.in_bytes,
        out_bytes=stage.out_bytes,
        in_us=stage.in_us,
        out_us=stage.out_us,
    )


def _stage_from_wire(message: engine_pb2.StagePlan) -> StagePlan:
    return StagePlan(
        index=message.index,
        first_block=message.first_block,
        last_block=message.last_block,
        device_class=message.device_class,
        share=message.share,
        devices=message.devices,
        latency_us=tuple(message.latency_us),
        in_bytes=message.in_bytes,
        out_bytes=message.out_bytes,
        in_us=message.in_us,
        out_us=message.out_us,
    )


def _pipeline_to_wire(pipeline: Pipeline) -> engine_pb2.Pipeline:
    return engine_pb2.Pipeline(
        id=pipeline.id,
        model=model_resource(pipeline.model),
        batch=pipeline.batch,
        stages=[_stage_to_wire(stage) for stage in pipeline.stages],
        rate_fps=pipeline.rate_fps,
        capacity_fps=pipeline.capacity_fps,
        latency_us=pipeline.latency_us,
        slo_ms=pipeline.slo_ms,
    )


def _pipeline_from_wire(message: engine_pb2.Pipeline) -> Pipeline:
    return Pipeline(
        id=message.id,
        model=bare(message.model),
        batch=message.batch,
        stages=tuple(_stage_from_wire(stage) for stage in message.stages),
        rate_fps=message.rate_fps,
        capacity_fps=message.capacity_fps,
        latency_us=message.latency_us,
        slo_ms=message.slo_ms,
    )


def plan_to_wire(placed: PlacedPlan) -> engine_pb2.PlacedPlan:
    plan = placed.plan
    return engine_pb2.PlacedPlan(
        plan=engine_pb2.Plan(
            pipelines=[_pipeline_to_wire(pipeline) for pipeline in plan.pipelines],
            demands=[
                engine_pb2.Demand(model=model_resource(d.model), slo_ms=d.slo_ms, rate_fps=d.rate_fps)
                for d in plan.demands
            ],
            objective=plan.objective,
            bound=plan.bound,
            gap=plan.gap,
            solve_s=plan.solve_s,
        ),
        workers=[
            engine_pb2.WorkerPlace(
                pipeline_id=worker.pipeline_id,
                stage_index=worker.stage_index,
                device=engine_pb2.VirtualDevice(
                    device_id=worker.device.device.id,
                    device_class=worker.device.device.device_class,
                    device_index=worker.device.device.index,
                    share=worker.device.share,
                    slot=worker.device.slot,
                ),
            )
            for worker in placed.workers
        ],
    )


def plan_from_wire(message: engine_pb2.PlacedPlan) -> PlacedPlan:
    plan = message.plan
    return PlacedPlan(
        plan=Plan(
            pipelines=tuple(_pipeline_from_wire(pipeline) for pipeline in plan.pipelines),
            demands=tuple(Demand(bare(d.model), d.slo_ms, d.rate_fps) for d in plan.demands),
            objective=plan.objective,
            bound=plan.bound,
            gap=plan.gap,
            solve_s=plan.solve_s,
        ),
        workers=tuple(
            WorkerPlace(
                pipeline_id=worker.pipeline_id,
                stage_index=worker.stage_index,
                device=VirtualDevice(
                    device=Device(worker.device.device_id, worker.device.device_class, worker.device.device_index),
                    share=worker.device.share,
                    slot=worker.device.slot,
                ),
            )
            for worker in message.workers
        ),
    )
