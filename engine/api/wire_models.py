"""Models on the wire: engine values to messages and back. No checks."""

from __future__ import annotations

from framepool.engine.api.wire_values import bare, model_resource
from framepool.engine.control import CutInfo, ModelInfo
from framepool.proto import models_pb2


def model_to_wire(info: ModelInfo) -> models_pb2.Model:
    return models_pb2.Model(
        name=model_resource(info.name),
        task=info.task,
        head=info.head,
        digest=info.digest,
        input_width_px=info.input_width_px,
        input_height_px=info.input_height_px,
        labels=info.labels,
        n_blocks=info.n_blocks,
        max_batch=info.max_batch,
        batch_safe=info.batch_safe,
        opset=info.opset,
        origin=info.origin,
        license=info.license,
        builtin=info.builtin,
        latency_ms=dict(info.latency_ms),
    )


def model_from_wire(message: models_pb2.Model) -> ModelInfo:
    return ModelInfo(
        name=bare(message.name),
        task=message.task,
        head=message.head,
        digest=message.digest,
        input_width_px=message.input_width_px,
        input_height_px=message.input_height_px,
        labels=tuple(message.labels),
        n_blocks=message.n_blocks,
        max_batch=message.max_batch,
        batch_safe=message.batch_safe,
        opset=message.opset,
        origin=message.origin,
        license=message.license,
        builtin=message.builtin,
        latency_ms=dict(sorted(message.latency_ms.items())),
    )


def cut_to_wire(cut: CutInfo) -> models_pb2.Cut:
    return models_pb2.Cut(
        block=cut.block,
        tensors=cut.tensors,
        bytes_per_frame=cut.bytes_per_frame,
        exact=cut.exact,
        max_abs_error=cut.max_abs_error,
    )


def cut_from_wire(message: models_pb2.Cut) -> CutInfo:
    return CutInfo(
        block=message.block,
        tensors=tuple(message.tensors),
        bytes_per_frame=message.bytes_per_frame,
        exact=message.exact,
        max_abs_error=message.max_abs_error,
    )
