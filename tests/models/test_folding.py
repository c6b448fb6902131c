"""Preprocessing inside the graph is the preprocessing that was asked for, bit for bit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from framepool.models.errors import ModelSpecError
from framepool.models.folding import fold_preprocessing
from framepool.models.spec import FRAME_INPUT, ColorOrder, InputSpec, Layout

HEIGHT, WIDTH = 6, 8
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}


def identity(spec: InputSpec, batch: int | str = "n", inner: str = "") -> onnx.ModelProto:
    """A graph whose output is its input; with `inner`, by way of a tensor of that name."""
    shape = [batch, 3, HEIGHT, WIDTH] if spec.layout is Layout.NCHW else [batch, HEIGHT, WIDTH, 3]
    names = [spec.name, inner, "y"] if inner else [spec.name, "y"]
    graph = helper.make_graph(
        [helper.make_node("Identity", [a], [b]) for a, b in itertools.pairwise(names)],
        "g",
        [helper.make_tensor_value_info(spec.name, TYPES[spec.dtype], shape)],
        [helper.make_tensor_value_info("y", TYPES[spec.dtype], shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def served(model: onnx.ModelProto, frames: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [(i.name, i.type) for i in session.get_inputs()] == [(FRAME_INPUT, "tensor(uint8)")]
    return session.run(None, {FRAME_INPUT: frames})[0]


def by_hand(spec: InputSpec, frames: np.ndarray) -> np.ndarray:
    """Each step in numpy, in float32."""
    x = frames.astype(np.float32) if spec.dtype != "uint8" else frames
    if spec.dtype != "uint8":
        x = x * np.float32(spec.scale)
        x = (x - np.array(spec.mean, np.float32)) / np.array(spec.std, np.float32)
    if spec.color is ColorOrder.BGR:
        x = x[..., ::-1]
    if spec.layout is Layout.NCHW:
        x = x.transpose(0, 3, 1, 2)
    return x.astype(spec.dtype)


def frames(count: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)


IMAGENET = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("color", ColorOrder)
@pytest.mark.parametrize(
    "arithmetic", [{}, {"scale": 1 / 255}, IMAGENET, {"mean": (127.5, 127.5, 127.5), "std": (127.5,) * 3}]
)
def test_it_is_what_preprocessing_by_hand_gives(
    dtype: str, layout: Layout, color: ColorOrder, arithmetic: dict
) -> None:
    spec = InputSpec("images", HEIGHT, WIDTH, layout=layout, color=color, dtype=dtype, **arithmetic)
    found = served(fold_preprocessing(identity(spec), spec), frames())
    assert found.dtype == dtype
    assert np.array_equal(found, by_hand(spec, frames()))


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("color", ColorOrder)
def test_d5_an_input_of_bytes_gets_bytes(layout: Layout, color: ColorOrder) -> None:
    spec = InputSpec("images", HEIGHT, WIDTH, layout=layout, color=color, dtype="uint8")
    assert np.array_equal(served(fold_preprocessing(identity(spec), spec), frames()), by_hand(spec, frames()))


@pytest.mark.parametrize(("batch", "expected"), [("n", "n"), (1, 1)])
def test_a_dynamic_batch_stays_dynamic_and_a_fixed_one_fixed(batch: int | str, expected: int | str) -> None:
    spec = InputSpec("images", HEIGHT, WIDTH)
    folded = fold_preprocessing(identity(spec, batch), spec)
    dim = folded.graph.input[0].type.tensor_type.shape.dim[0]
    assert (dim.dim_value or dim.dim_param) == expected
    assert served(folded, frames(1)).shape == (1, 3, HEIGHT, WIDTH)


@pytest.mark.parametrize(("name", "inner"), [(FRAME_INPUT, ""), ("images", FRAME_INPUT), (FRAME_INPUT, "x")])
def test_names_that_collide_with_ours_are_moved_aside(name: str, inner: str) -> None:
    spec = InputSpec(name, HEIGHT, WIDTH)
    assert np.array_equal(
        served(fold_preprocessing(identity(spec, inner=inner), spec), frames()), by_hand(spec, frames())
    )


def test_the_original_is_not_changed() -> None:
    spec = InputSpec("images", HEIGHT, WIDTH, **IMAGENET)
    model = identity(spec)
    before = model.SerializeToString(deterministic=True)
    fold_preprocessing(model, spec)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "pictures"}, "input.name"),
        ({"dtype": "float64"}, "input.dtype"),
        ({"dtype": "uint8", "scale": 0.5}, "input.scale"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_by_its_field(changes: dict, field: str) -> None:
    spec = InputSpec("images", HEIGHT, WIDTH)
    with pytest.raises(ModelSpecError) as raised:
        fold_preprocessing(identity(spec), replace(spec, **changes))
    assert raised.value.field == field
