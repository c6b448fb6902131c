"""A model's spec as TOML and back: what stands beside each registered file, and what users write to override it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

import tomli_w

from framepool.models.errors import ModelSpecError
from framepool.models.spec import ColorOrder, HeadSpec, InputSpec, Layout, ModelSpec, Resize, Task

Kind = TypeVar("Kind", bound=StrEnum)


def spec_to_toml(spec: ModelSpec) -> str:
    """The whole spec; `spec_from_toml` reads it back."""
    value = asdict(spec)
    if value["head"]["nms_iou"] is None:
        value["head"]["nms_iou"] = False
    value["head"]["params"] = {
        key: list(item) if isinstance(item, tuple) else item for key, item in value["head"]["params"].items()
    }
    return tomli_w.dumps(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case StrEnum():
            return value.value
        case _:
            return value


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a spec. Raises ModelSpecError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ModelSpecError(f"{where} is no valid TOML: {exc}", field="spec") from exc


def spec_from_toml(text: str, where: str = "spec") -> ModelSpec:
    """A complete spec. Raises ModelSpecError naming the key."""
    values = parse_toml(text, where)
    head = values.get("head", {})
    source = values.get("input", {})
    for key in ("name", "height_px", "width_px"):
        if key not in source:
            raise ModelSpecError(f"{where}: input.{key} is missing", field=f"input.{key}")
    base = ModelSpec(
        name=str(values.get("name", "")),
        task=Task.DETECT,
        input=InputSpec(str(source["name"]), int(source["height_px"]), int(source["width_px"])),
        head=HeadSpec(str(head.get("kind", ""))),
    )
    return with_overrides(base, values, where)


def with_overrides(spec: ModelSpec, values: Mapping[str, Any], where: str = "spec") -> ModelSpec:
    """`spec` with the given tables' keys in place of its own. Raises ModelSpecError for an unknown key or value."""
    changes: dict[str, Any] = {}
    known = {field.name for field in fields(ModelSpec)}
    for key, value in values.items():
        if key not in known:
            raise ModelSpecError(f"{where}: {key!r} is no key of a spec; it has {', '.join(sorted(known))}", field=key)
        match key:
            case "input":
                changes[key] = _input(spec.input, value, where)
            case "head":
                changes[key] = _head(spec.head, value, where)
            case "task":
                changes[key] = _enum(Task, value, "task", where)
            case "labels":
                changes[key] = tuple(str(label) for label in value)
            case _:
                changes[key] = _scalar(value, getattr(spec, key), key, where)
    return replace(spec, **changes)


def _input(base: InputSpec, values: Mapping[str, Any], where: str) -> InputSpec:
    enums: dict[str, type[StrEnum]] = {"layout": Layout, "color": ColorOrder, "resize": Resize}
    changes: dict[str, Any] = {}
    for key, value in values.items():
        field = f"input.{key}"
        if key in enums:
            changes[key] = _enum(enums[key], value, field, where)
        elif key in ("mean", "std"):
            if not isinstance(value, list) or len(value) != 3:
                raise ModelSpecError(f"{where}: {field} must be three numbers, one a channel", field=field)
            changes[key] = tuple(float(item) for item in value)
        elif key in {f.name for f in fields(InputSpec)}:
            changes[key] = _scalar(value, getattr(base, key), field, where)
        else:
            raise ModelSpecError(f"{where}: {field} is no key of a spec", field=field)
    changed = replace(base, **changes)
    if not (0 < changed.height_px <= 8192 and 0 < changed.width_px <= 8192):
        raise ModelSpecError(
            f"{where}: input.width_px x height_px is {changed.width_px}x{changed.height_px}; both must lie in 1..8192",
            field="input.height_px",
        )
    if any(value == 0 for value in changed.std):
        raise ModelSpecError(f"{where}: input.std must not be 0", field="input.std")
    return changed


def _head(base: HeadSpec, values: Mapping[str, Any], where: str) -> HeadSpec:
    changes: dict[str, Any] = {}
    for key, value in values.items():
        field = f"head.{key}"
        if key == "nms_iou":
            changes[key] = None if value is False else _share(value, field, where)
        elif key == "score_threshold":
            changes[key] = _share(value, field, where)
        elif key == "params":
            changes[key] = {
                name: tuple(float(part) for part in item) if isinstance(item, list) else item
                for name, item in value.items()
            }
        elif key in {f.name for f in fields(HeadSpec)}:
            changes[key] = _scalar(value, getattr(base, key), field, where)
        else:
            raise ModelSpecError(f"{where}: {field} is no key of a spec", field=field)
    return replace(base, **changes)


def _share(value: Any, field: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ModelSpecError(f"{where}: {field} is {value!r}; it must be a number from 0 to 1", field=field)
    return float(value)


def _scalar(value: Any, like: Any, field: str, where: str) -> Any:
    if isinstance(like, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(like):
        raise ModelSpecError(f"{where}: {field} is {value!r}; it must be of type {type(like).__name__}", field=field)
    return value


def _enum(kind: type[Kind], value: Any, field: str, where: str) -> Kind:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(item.value for item in kind)
        raise ModelSpecError(f"{where}: {field} is {value!r}; it must be one of {choices}", field=field) from None
