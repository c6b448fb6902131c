"""The way of a picture onto a model's input, and the way back: exact for every size."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.models.letterbox import Preprocess, Transform, apply, plan_transform
from framepool.models.spec import InputSpec, Resize

sizes = st.integers(1, 8192)
inputs = st.integers(16, 1280)


@given(sizes, sizes, inputs, inputs, st.sampled_from(Resize))
def test_c9_the_picture_lies_within_the_input_and_keeps_its_aspect(
    width: int, height: int, input_width: int, input_height: int, resize: Resize
) -> None:
    t = plan_transform(width, height, input_width, input_height, resize)
    left, top = t.pad_left_px, t.pad_top_px
    assert left >= 0
    assert top >= 0
    assert 1 <= t.resized_width_px <= input_width - left
    assert 1 <= t.resized_height_px <= input_height - top
    if resize is Resize.STRETCH:
        assert (t.resized_width_px, t.resized_height_px) == (input_width, input_height)
        return
    assert t.resized_width_px == input_width or t.resized_height_px == input_height
    assert abs((input_width - t.resized_width_px) - 2 * left) <= 1
    wanted = min(input_width / width, input_height / height)
    assert abs(t.gain_x - wanted) * width <= 1.0
    assert abs(t.gain_y - wanted) * height <= 1.0


@given(sizes, sizes, inputs, inputs, st.sampled_from(Resize), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_c9_there_and_back_is_where_it_was(
    width: int, height: int, input_width: int, input_height: int, resize: Resize, at: list[float]
) -> None:
    """To a hundredth of a pixel of an 8K picture, whatever the sizes."""
    t = plan_transform(width, height, input_width, input_height, resize)
    x1, x2 = sorted((at[0] * width, at[1] * width))
    y1, y2 = sorted((at[2] * height, at[3] * height))
    box = np.array([[x1, y1, x2, y2]], dtype=np.float64)
    back = t.boxes_to_source(t.boxes_to_input(box))
    per_pixel = np.array([1 / t.gain_x, 1 / t.gain_y] * 2)
    assert np.abs(back - box).max() <= 0.01 + 1e-3 * per_pixel.max()
    assert back.dtype == np.float32
    points = np.array([[x1, y1, 0.5]], dtype=np.float32)
    moved = t.boxes_to_input(np.array([[x1, y1, x1, y1]]))[:, :2]
    again = t.points_to_source(np.concatenate([moved, points[:, 2:]], axis=1))
    assert np.abs(again[0, :2] - points[0, :2]).max() <= 0.01 + 1e-3 * per_pixel.max()
    assert again[0, 2] == 0.5


@given(sizes, sizes, inputs, inputs)
def test_boxes_are_clipped_to_the_picture_and_points_are_not(
    width: int, height: int, input_width: int, input_height: int
) -> None:
    t = plan_transform(width, height, input_width, input_height, Resize.LETTERBOX)
    beyond = np.array([[-1e6, -1e6, 1e6, 1e6]], dtype=np.float32)
    assert t.boxes_to_source(beyond).tolist() == [[0.0, 0.0, float(width), float(height)]]
    assert t.points_to_source(beyond[:, :2])[0, 0] < 0


def test_known_values() -> None:
    """The bundled clip on NanoDet's input: 768x576 becomes 416x312 with 52 rows above and below."""
    t = plan_transform(768, 576, 416, 416, Resize.LETTERBOX)
    assert (t.resized_width_px, t.resized_height_px, t.pad_left_px, t.pad_top_px) == (416, 312, 0, 52)
    box = t.boxes_to_source(np.array([[0, 52, 208, 208]], dtype=np.float32))
    assert box.tolist() == [[0.0, 0.0, 384.0, 288.0]]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 120), st.integers(1, 120), st.integers(0, 255))
def test_every_byte_of_the_input_is_written_and_nothing_else(
    width: int, height: int, input_width: int, input_height: int, pad: int
) -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    memory = np.full((input_height + 2, input_width, 3), 77, dtype=np.uint8)
    out = memory[1:-1]
    out[:] = 99
    values = Preprocess(Resize.LETTERBOX, pad)(rgb, out)
    t = Transform.from_tuple(values)
    assert t.to_tuple() == values
    assert (memory[0] == 77).all()
    assert (memory[-1] == 77).all()
    top, left = t.pad_top_px, t.pad_left_px
    inside = out[top : top + t.resized_height_px, left : left + t.resized_width_px]
    expected = rgb if inside.shape == rgb.shape else cv2.resize(rgb, (t.resized_width_px, t.resized_height_px))
    assert np.array_equal(inside, expected)
    outside = np.ones(out.shape[:2], dtype=bool)
    outside[top : top + t.resized_height_px, left : left + t.resized_width_px] = False
    assert (out[outside] == pad).all()


def test_a_bright_square_is_found_where_it_is() -> None:
    """Pixels and coordinates agree: a square's edges, mapped back from the input, are its edges in the source."""
    rgb = np.zeros((480, 640, 3), dtype=np.uint8)
    rgb[120:240, 320:480] = 255
    out = np.empty((416, 416, 3), dtype=np.uint8)
    t = Transform.from_tuple(Preprocess.of(InputSpec("x", 416, 416))(rgb, out))
    rows, columns = (out[..., 0] == 255).any(axis=1).nonzero()[0], (out[..., 0] == 255).any(axis=0).nonzero()[0]
    found = t.boxes_to_source(np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], dtype=np.float32))
    assert np.abs(found - [[320, 120, 480, 240]]).max() <= 1 / t.gain_x


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 px, got a 0x5 picture"):
        plan_transform(0, 5, 10, 10, Resize.LETTERBOX)
    t = plan_transform(10, 10, 20, 20, Resize.LETTERBOX)
    with pytest.raises(ValueError, match="planned for"):
        apply(np.zeros((9, 10, 3), np.uint8), np.zeros((20, 20, 3), np.uint8), t, 0)
    with pytest.raises(ValueError, match="places the picture"):
        apply(np.zeros((10, 10, 3), np.uint8), np.zeros((19, 20, 3), np.uint8), t, 0)
    with pytest.raises(ValueError, match="six numbers, got 5"):
        Transform.from_tuple((1.0,) * 5)
