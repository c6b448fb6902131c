"""Folds preprocessing into a graph, so that frames travel as uint8 and the device does the arithmetic.

The served graph has one input, `frames` uint8 [n, height, width, 3] RGB; in front of the original input lie

    frames -> (Gather: BGR) -> (Transpose: NCHW) -> Cast float32 -> (x scale) -> (- mean) -> (/ std) -> (Cast float16)

each only where the spec asks for it. Swapping and transposing come before the cast: they move a quarter of the bytes.
With scale 1, mean 0 and std 1 the original graph sees exactly float32 0..255.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from framepool.models.errors import ModelSpecError
from framepool.models.spec import FRAME_INPUT, ColorOrder, InputSpec, Layout

_DTYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}
PREFIX = "framepool_input"


def fold_preprocessing(model: ModelProto, spec: InputSpec) -> ModelProto:
    """The served graph of `model`; weights in files beside it stay there. `model` is not changed.

    Raises ModelSpecError where the spec does not fit the graph's input.
    """
    served = ModelProto()
    served.CopyFrom(model)
    graph = served.graph
    position = next((i for i, value in enumerate(graph.input) if value.name == spec.name), None)
    if position is None:
        names = ", ".join(value.name for value in graph.input)
        raise ModelSpecError(f"input.name: the model has no input {spec.name!r}; it has {names}", field="input.name")
    if spec.dtype not in _DTYPES:
        raise ModelSpecError(
            f"input.dtype {spec.dtype!r} can't be fed; it must be one of {', '.join(_DTYPES)}", field="input.dtype"
        )
    batch = graph.input[position].type.tensor_type.shape.dim[0]
    axis: str | int = batch.dim_value if batch.HasField("dim_value") else batch.dim_param or "batch"
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    if FRAME_INPUT in taken and spec.name != FRAME_INPUT:
        _rename(served, FRAME_INPUT, f"{PREFIX}_own_{FRAME_INPUT}")
    original = spec.name
    if original == FRAME_INPUT:
        original = f"{PREFIX}_original"
        _rename(served, FRAME_INPUT, original)
    nodes = _chain(spec, original)
    del graph.input[position]
    shape = [axis, spec.height_px, spec.width_px, 3]
    graph.input.insert(0, helper.make_tensor_value_info(FRAME_INPUT, TensorProto.UINT8, shape))
    body = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *body])
    fixed = [axis, 3, spec.height_px, spec.width_px] if spec.layout is Layout.NCHW else shape
    graph.value_info.append(helper.make_tensor_value_info(original, _DTYPES[spec.dtype], fixed))
    return served


def _chain(spec: InputSpec, target: str) -> list[NodeProto]:
    nodes: list[NodeProto] = []
    current = FRAME_INPUT

    def step(op: str, *constants: NodeProto, **attributes: Any) -> None:
        nonlocal current
        nodes.extend(constants)
        output = f"{PREFIX}_{len(nodes)}"
        inputs = [current, *(constant.output[0] for constant in constants)]
        nodes.append(helper.make_node(op, inputs, [output], name=f"{PREFIX}_{op.lower()}_{len(nodes)}", **attributes))
        current = output

    if spec.color is ColorOrder.BGR:
        step("Gather", _constant("channels", np.array([2, 1, 0], dtype=np.int64)), axis=3)
    if spec.layout is Layout.NCHW:
        step("Transpose", perm=[0, 3, 1, 2])
    arithmetic = spec.scale != 1.0 or any(spec.mean) or any(value != 1.0 for value in spec.std)
    if spec.dtype == "uint8":
        if arithmetic:
            raise ModelSpecError("input.scale, mean and std can't apply to a uint8 input", field="input.scale")
    else:
        step("Cast", to=TensorProto.FLOAT)
    if spec.scale != 1.0:
        step("Mul", _constant("scale", np.array(spec.scale, dtype=np.float32)))
    if any(spec.mean):
        step("Sub", _constant("mean", _per_channel(spec, spec.mean)))
    if any(value != 1.0 for value in spec.std):
        step("Div", _constant("std", _per_channel(spec, spec.std)))
    if spec.dtype == "float16":
        step("Cast", to=TensorProto.FLOAT16)
    if not nodes:
        step("Identity")
    nodes[-1].output[0] = target
    return nodes


def _constant(name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> NodeProto:
    output = f"{PREFIX}_{name}"
    return helper.make_node("Constant", [], [output], name=output, value=numpy_helper.from_array(values, name))


def _per_channel(spec: InputSpec, rgb: tuple[float, float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    values = rgb[::-1] if spec.color is ColorOrder.BGR else rgb
    shape = (1, 3, 1, 1) if spec.layout is Layout.NCHW else (1, 1, 1, 3)
    return np.array(values, dtype=np.float32).reshape(shape)


def _rename(model: ModelProto, old: str, new: str) -> None:
    """Renames a tensor of the main graph and wherever bodies capture it."""

    def visit(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)
                for body in attribute.graphs:
                    visit(body)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.name == old:
                value.name = new
        for tensor in graph.initializer:
            if tensor.name == old:
                tensor.name = new

    visit(model.graph)
