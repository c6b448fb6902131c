"""Shapes that a graph computes for itself, such as ``view(n, groups, channels // groups, h, w)``.

Exporters write these as `Shape` nodes with integer arithmetic behind them, of which ONNX's inference follows only a few
operators and leaves the axes unknown. Here every node that works on known small values alone is evaluated, and replaced
by a `Constant`; inferring again then knows more. Meant for copies of a graph made to be inferred, never for one that is
run: the values hold for the batch at hand only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from framepool.models.graph_weights import is_external

_MOST_ELEMENTS = 64
"""Larger values are no shapes."""

_ARITHMETIC = frozenset(
    {"Add", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Floor", "Gather", "Identity"}
    | {"Max", "Min", "Mod", "Mul", "Range", "ReduceProd", "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)

Values = dict[str, NDArray[Any]]


def known_values(graph: GraphProto) -> Values:
    """The small weights of a graph, to begin with."""
    small = (t for t in graph.initializer if not is_external(t) and t.data_type != TensorProto.STRING)
    return {t.name: numpy_helper.to_array(t) for t in small if int(np.prod(t.dims)) <= _MOST_ELEMENTS}


def fold(model: ModelProto, shapes: Mapping[str, tuple[int | None, ...] | None], values: Values) -> bool:
    """Replaces what `shapes` and `values` let be evaluated, and adds it to `values`. True if anything was replaced.

    Nodes keep their number and their outputs' names.
    """
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    progress = False
    for position, node in enumerate(model.graph.node):
        if len(node.output) != 1 or node.output[0] in values or node.domain not in ("", "ai.onnx"):
            continue
        result = _value(node, shapes, values, opsets)
        if result is None or result.size > _MOST_ELEMENTS or result.dtype.kind not in "biuf":
            continue
        name = node.output[0]
        values[name] = result
        if node.op_type != "Constant":
            constant = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(result, name))
            model.graph.node[position].CopyFrom(constant)
            progress = True
    return progress


def _value(
    node: NodeProto, shapes: Mapping[str, tuple[int | None, ...] | None], values: Values, opsets: dict[str, int]
) -> NDArray[Any] | None:
    if node.op_type == "Shape":
        dims = shapes.get(node.input[0])
        if dims is None:
            return None
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        part = dims[bounds.get("start", 0) : bounds.get("end", len(dims))]
        return None if None in part else np.array(part, dtype=np.int64)
    if node.op_type not in _ARITHMETIC or not all(name in values for name in node.input if name):
        return None
    kinds = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
        for name in dict.fromkeys(node.input)
        if name
    ]
    graph = helper.make_graph([node], "arithmetic", kinds, [helper.make_empty_tensor_value_info(node.output[0])])
    try:
        evaluator = ReferenceEvaluator(graph, opsets=opsets)
        (result,) = evaluator.run(None, {kind.name: values[kind.name] for kind in kinds})
    except Exception:  # an operator the evaluator lacks, or a graph that would fail when run: its shape stays unknown
        return None
    return np.asarray(result)
