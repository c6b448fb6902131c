"""Files as users have them: taken in with what they say of themselves, or refused with the reason and the cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from framepool.models.errors import (
    ModelError,
    ModelExistsError,
    ModelInvalidError,
    ModelNotFoundError,
    ModelSpecError,
    ModelUnsupportedError,
)
from framepool.models.importing import ImportedModel, import_model
from framepool.models.registry import ModelRegistry
from framepool.models.spec import FRAME_INPUT, Layout, Task

SIZE = 16


def detector(
    *,
    batch: int | str = "n",
    shape: tuple[Any, ...] = (3, SIZE, SIZE),
    dtype: int = TensorProto.FLOAT,
    classes: int = 2,
    boxes: int = 20,
    metadata: dict[str, str] | None = None,
    mixes: bool = False,
    opset: int = 17,
    ir: int = 8,
    extra_input: bool = False,
    op: str = "",
    input_name: str = "images",
) -> onnx.ModelProto:
    """A YOLOv8-shaped graph [N, 4 + classes, boxes]: the picture's mean times a weight; `mixes` adds the batch's."""
    nodes = [helper.make_node("Cast", [input_name], ["f"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("ReduceMean", ["f"], ["m"], axes=[1, 2, 3], keepdims=1))
    nodes.append(helper.make_node("Reshape", ["m", "flat"], ["r"]))
    if mixes:
        nodes.append(helper.make_node("ReduceMean", ["r"], ["rb"], axes=[0], keepdims=1))
        nodes.append(helper.make_node("Add", ["r", "rb"], ["rr"]))
    if op:
        nodes.append(helper.make_node(op, [nodes[-1].output[0]], ["oo"], domain="my.ops"))
    nodes.append(helper.make_node("Mul", [nodes[-1].output[0], "w"], ["out"]))
    weight = np.linspace(0, 1, (4 + classes) * boxes, dtype=np.float32).reshape(1, 4 + classes, boxes) / 255
    inputs = [helper.make_tensor_value_info(input_name, dtype, [batch, *shape])]
    if extra_input:
        inputs.append(helper.make_tensor_value_info("image_size", TensorProto.FLOAT, [2]))
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [batch, 4 + classes, boxes])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([-1, 1, 1], np.int64), "flat")],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("my.ops", 1)] if op else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir)
    for key, value in (metadata or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    return model


def saved(folder: Path, model: onnx.ModelProto | bytes, name: str = "mine.onnx") -> Path:
    path = folder / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def taken_in(folder: Path, model: onnx.ModelProto, **options: Any) -> ImportedModel:
    return import_model(saved(folder, model), "mine", folder / "entry", **options)


ULTRALYTICS = {
    "author": "Ultralytics",
    "task": "detect",
    "names": "{0: 'cat', 1: 'traffic light'}",
    "imgsz": f"[{SIZE}, {SIZE}]",
    "license": "AGPL-3.0",
}


def test_d8_a_file_by_ultralytics_says_all_that_is_needed(tmp_path: Path) -> None:
    found = taken_in(tmp_path, detector(metadata=ULTRALYTICS)).spec
    assert (found.task, found.head.kind, found.labels) == (Task.DETECT, "yolov8", ("cat", "traffic light"))
    assert found.input.scale == pytest.approx(1 / 255)
    assert (found.input.width_px, found.input.height_px, found.opset) == (SIZE, SIZE, 17)
    assert (found.origin, found.license) == ("Ultralytics", "AGPL-3.0")
    assert len(found.digest) == 64


def test_what_the_user_says_goes_before_what_the_file_says(tmp_path: Path) -> None:
    toml = 'labels = ["x", "y"]\n[input]\nscale = 0.5\ncolor = "bgr"\n[head]\nscore_threshold = 0.75\n'
    found = taken_in(tmp_path, detector(metadata=ULTRALYTICS), spec_toml=toml, labels=("p", "q")).spec
    assert (found.input.scale, found.input.color.value, found.head.score_threshold) == (0.5, "bgr", 0.75)
    assert found.labels == ("p", "q")
    assert found.head.kind == "yolov8"


@pytest.mark.parametrize("names", ["", "nonsense", "{1: 'a'", "{'x': 1}", "7", "__import__('os')"])
def test_labels_that_can_not_be_read_are_none(tmp_path: Path, names: str) -> None:
    assert taken_in(tmp_path, detector(metadata={**ULTRALYTICS, "names": names})).spec.labels == ()


@pytest.mark.parametrize(
    ("changes", "layout"),
    [
        ({}, Layout.NCHW),
        ({"shape": (SIZE, SIZE, 3)}, Layout.NHWC),
        ({"dtype": TensorProto.FLOAT16}, Layout.NCHW),
        ({"dtype": TensorProto.UINT8, "shape": (SIZE, SIZE, 3)}, Layout.NHWC),
        ({"opset": 11, "ir": 4}, Layout.NCHW),
        ({"input_name": FRAME_INPUT}, Layout.NCHW),
    ],
)
def test_the_served_graph_takes_frames_whatever_the_original_took(
    tmp_path: Path, changes: dict, layout: Layout
) -> None:
    made = taken_in(tmp_path, detector(**changes))
    assert made.spec.input.layout is layout
    session = ort.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
    frames = np.full((2, SIZE, SIZE, 3), 255, dtype=np.uint8)
    frames[1] = 51
    out = session.run(None, {FRAME_INPUT: frames})[0]
    assert out[0].max() == pytest.approx(1.0, rel=1e-3)
    assert out[1].max() == pytest.approx(0.2, rel=1e-3)


def test_d4_batches_are_as_large_as_the_graph_allows_and_frames_stay_apart(tmp_path: Path) -> None:
    assert taken_in(tmp_path, detector()).spec.max_batch == 64
    fixed = import_model(saved(tmp_path, detector(batch=1)), "mine", tmp_path / "fixed").spec
    assert (fixed.max_batch, fixed.batch_safe) == (1, True)
    mixing = import_model(saved(tmp_path, detector(mixes=True)), "mine", tmp_path / "mixing").spec
    assert (mixing.max_batch, mixing.batch_safe) == (1, False)


def test_d7_weights_beside_the_file_come_along(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    onnx.save(detector(boxes=100), source / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    made = import_model(source / "m.onnx", "mine", tmp_path / "entry")
    assert (tmp_path / "entry" / "m.data").exists()
    (source / "m.data").unlink()
    session = ort.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
    assert session.run(None, {FRAME_INPUT: np.full((1, SIZE, SIZE, 3), 255, np.uint8)})[0].max() == pytest.approx(1.0)
    with pytest.raises(ModelInvalidError, match=r"m\.data"):
        import_model(source / "m.onnx", "mine", tmp_path / "again")


def test_a_size_that_the_file_leaves_open_is_asked_for(tmp_path: Path) -> None:
    open_size = detector(shape=(3, "h", "w"))
    with pytest.raises(ModelSpecError, match=r"takes any height and width; give input\.height_px and input\.width_px"):
        taken_in(tmp_path, open_size)
    found = import_model(
        saved(tmp_path, open_size), "mine", tmp_path / "b", spec_toml="[input]\nheight_px = 32\nwidth_px = 48\n"
    ).spec
    assert (found.input.height_px, found.input.width_px) == (32, 48)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (b"", ModelInvalidError, r"mine\.onnx is empty"),
        (b"hello, I am no model", ModelInvalidError, r"mine\.onnx is no ONNX file, or is cut off"),
        (detector(metadata=ULTRALYTICS).SerializeToString()[:-200], ModelInvalidError, r"no ONNX file, or is cut off"),
        (detector(opset=999), ModelUnsupportedError, r"uses opset 999, this installation knows up to \d+; export it"),
        (detector(ir=999), ModelUnsupportedError, r"IR version 999.*knows up to \d+"),
        (detector(op="Mystery"), ModelUnsupportedError, r"the operator my\.ops:Mystery .*without custom operators"),
        (detector(shape=(3, SIZE)), ModelInvalidError, r"input 'images' has 3 axes; a picture has 4"),
        (detector(shape=(4, SIZE, SIZE)), ModelInvalidError, r"a colour picture has 3 channels in axis 1 or 3"),
        (detector(dtype=TensorProto.DOUBLE), ModelUnsupportedError, r"of type DOUBLE; export it with float32"),
        (detector(batch=4), ModelUnsupportedError, r"fixed to batches of 4; export it with a dynamic batch, or 1"),
        (detector(extra_input=True), ModelUnsupportedError, r"needs inputs beside the picture: image_size"),
    ],
)  # fmt: skip
def test_d1_to_d7_what_can_not_be_served_is_refused_with_its_cure(
    tmp_path: Path, model: onnx.ModelProto | bytes, error: type[ModelError], words: str
) -> None:
    with pytest.raises(error, match=words):
        import_model(saved(tmp_path, model), "mine", tmp_path / "entry")
    assert not (tmp_path / "entry").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalidError, match=r"nope\.onnx does not exist"):
        import_model(tmp_path / "nope.onnx", "mine", tmp_path / "entry")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": ("a", "b", "c")}, "the spec has 3 labels"),
        ({"head": "keypoints"}, "needs one output.*heads that could: yolov8"),
        ({"head": "oracle"}, "head.kind 'oracle' is unknown"),
        ({"spec_toml": "colour = 1"}, "'colour' is no key of a spec"),
        ({"spec_toml": "[head]\nscore_threshold = 2"}, "head.score_threshold is 2; it must be a number from 0 to 1"),
        ({"spec_toml": "[input]\nlayout = 'nwhc'"}, "input.layout is 'nwhc'; it must be one of nchw, nhwc"),
        ({"spec_toml": "[input]\nname = 'picture'"}, "the model has no input 'picture'; it has images"),
        ({"spec_toml": "[input]\nstd = [1.0, 0.0, 1.0]"}, "input.std must not be 0"),
        ({"spec_toml": "[input"}, "is no valid TOML"),
    ],
)
def test_a_spec_that_does_not_fit_the_graph_is_refused_by_its_key(tmp_path: Path, options: dict, words: str) -> None:
    with pytest.raises(ModelSpecError, match=words) as raised:
        taken_in(tmp_path, detector(), **options)
    assert raised.value.field


def test_the_registry_keeps_lists_replaces_and_forgets(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    file = saved(tmp_path, detector(metadata=ULTRALYTICS))
    entry = registry.add("mine", file)
    file.unlink()
    assert registry.get("mine") == entry
    assert [e.name for e in registry.list()] == ["mine", "movenet", "nanodet", "nanodet_int8"]
    with pytest.raises(ModelExistsError, match="'mine' is registered; choose another name, or replace it"):
        registry.add("mine", detector().SerializeToString())
    assert registry.get("mine").spec.labels == ("cat", "traffic light")
    again = ModelRegistry(tmp_path / "models")
    assert again.get("mine") == entry
    replaced = again.add("mine", detector().SerializeToString(), labels=("a", "b"), replace=True)
    assert replaced.spec.labels == ("a", "b")
    assert again.get("mine") == replaced
    assert replaced.spec.digest != entry.spec.digest
    again.remove("mine")
    with pytest.raises(ModelNotFoundError, match="no model is named 'mine'; there are movenet, nanodet, nanodet_int8"):
        again.get("mine")
    assert not (tmp_path / "models" / "mine").exists()


def test_a_refused_model_leaves_the_one_before_and_no_litter(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    entry = registry.add("mine", detector().SerializeToString())
    for bad in (b"junk", detector(batch=4).SerializeToString()):
        with pytest.raises(ModelError):
            registry.add("mine", bad, replace=True)
    assert registry.get("mine") == entry
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["mine"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "A", "x" * 64, ".hidden"])
def test_a_name_that_is_no_folder_of_the_registry_is_refused(tmp_path: Path, name: str) -> None:
    registry = ModelRegistry(tmp_path / "models")
    with pytest.raises(ModelSpecError, match="is no model name"):
        registry.add(name, detector().SerializeToString())
    with pytest.raises(ModelNotFoundError):
        registry.get(name)
    with pytest.raises(ModelNotFoundError):
        registry.remove(name)


def test_bundled_models_can_be_neither_replaced_nor_removed(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    with pytest.raises(ModelExistsError, match="'nanodet' comes with framepool; choose another name"):
        registry.add("nanodet", detector().SerializeToString(), replace=True)
    with pytest.raises(ModelError, match="'nanodet' comes with framepool and can't be removed"):
        registry.remove("nanodet")


def test_weights_of_an_upload_may_not_leave_their_folder(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for name in ("../evil", "a/b", "", ".."):
        with pytest.raises(ModelSpecError, match="must be a plain file name"):
            registry.add("mine", detector().SerializeToString(), external_data={name: b"x"})
    assert not (tmp_path / "evil").exists()
