"""What a registration may say, whoever asks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from framepool.engine.control import StreamChanges, StreamConfig
from framepool.engine.errors import InvalidArgumentError
from framepool.engine.registration import changed, check_config, check_labels, needs_new_feed
from framepool.models.spec import HeadSpec, InputSpec, ModelSpec, Task

GOOD = StreamConfig("gate", "clip.mp4", "nanodet", 150.0, 10.0, password="pw", labels=("person",))


def test_a_good_one_passes() -> None:
    check_config(GOOD)
    check_config(replace(GOOD, name="a" * 63, slo_ms=3_600_000.0, target_fps=1000.0, min_score=1.0))
    check_config(replace(GOOD, name="0-a", slo_ms=1e-3, target_fps=1e-3))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("name", name)
            for name in ("", "a/b", "../x", "A", "-a", "a" * 64, "x" * 10_000, "a b", "é", "a\n", "a\x00")
        ),
        *(("slo_ms", ms) for ms in (0.0, -1.0, math.nan, math.inf, 3_600_001.0)),
        *(("target_fps", fps) for fps in (0.0, -5.0, 1e9, math.nan, math.inf, 1000.1)),
        *(("min_score", score) for score in (-0.1, 1.1, math.nan)),
    ],
)
def test_a_wrong_value_is_named_shortly(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        check_config(replace(GOOD, **{field: value}))
    assert raised.value.field == field
    assert field.split("_")[0] in str(raised.value)
    assert len(str(raised.value)) < 300


def test_labels_are_those_of_the_model() -> None:
    spec = ModelSpec("m", Task.DETECT, InputSpec("images", 8, 8), HeadSpec("detections"), labels=("person", "car"))
    check_labels(GOOD, spec)
    check_labels(replace(GOOD, labels=("dragon",)), replace(spec, labels=()))
    with pytest.raises(InvalidArgumentError, match=r"model 'm' has no class 'dragon'.*framepool models show m"):
        check_labels(replace(GOOD, labels=("car", "dragon")), spec)


def test_changes_touch_only_what_they_name() -> None:
    assert changed(GOOD, StreamChanges()) == GOOD
    assert changed(GOOD, StreamChanges(slo_ms=99.0, labels=())) == replace(GOOD, slo_ms=99.0, labels=())
    assert changed(GOOD, StreamChanges(enabled=False)).password == "pw"


@pytest.mark.parametrize(
    ("changes", "anew"),
    [
        (StreamChanges(slo_ms=99.0), False),
        (StreamChanges(min_score=0.4, labels=(), metadata={"a": "b"}), False),
        (StreamChanges(source="other.mp4"), True),
        (StreamChanges(password="new"), True),
        (StreamChanges(target_fps=5.0), True),
        (StreamChanges(model="movenet"), True),
        (StreamChanges(enabled=False), True),
        (StreamChanges(loop=True), True),
    ],
)
def test_decoding_begins_anew_only_where_it_must(changes: StreamChanges, anew: bool) -> None:
    assert needs_new_feed(GOOD, changed(GOOD, changes)) is anew
