"""Checks a registration as the engine sees it, whoever asks: API, client in the same process, a resumed database.

The API has checked the form already (lengths, characters); here it is whether the values mean something to this engine.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from framepool.engine.control import StreamChanges, StreamConfig
from framepool.engine.errors import InvalidArgumentError
from framepool.models.spec import ModelSpec

LONGEST_SLO_MS = 3_600_000.0
HIGHEST_FPS = 1000.0
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def check_config(config: StreamConfig) -> None:
    """Raises InvalidArgumentError naming the field, its value and its limits."""
    if not _NAME.fullmatch(config.name):
        shown = config.name if len(config.name) <= 60 else f"{config.name[:57]}... ({len(config.name)} characters)"
        raise InvalidArgumentError(
            f"name {shown!r} is no stream name; use 1 to 63 of a-z, 0-9 and '-', beginning with a letter or digit",
            field="name",
        )
    _between("slo_ms", config.slo_ms, LONGEST_SLO_MS, "ms")
    _between("target_fps", config.target_fps, HIGHEST_FPS, "frames per second")
    if not (math.isfinite(config.min_score) and 0 <= config.min_score <= 1):
        raise InvalidArgumentError(
            f"min_score is {config.min_score:g}; a score lies between 0 and 1", field="min_score"
        )


def _between(field: str, value: float, most: float, unit: str) -> None:
    if not (math.isfinite(value) and 0 < value <= most):
        raise InvalidArgumentError(
            f"{field} is {value:g} {unit}; it must be above 0 and at most {most:,.0f}", field=field
        )


def check_labels(config: StreamConfig, spec: ModelSpec) -> None:
    """Raises InvalidArgumentError where the stream wants a class its model does not know."""
    unknown = [label for label in config.labels if spec.labels and label not in spec.labels]
    if unknown:
        raise InvalidArgumentError(
            f"labels: model {spec.name!r} has no class {unknown[0]!r}; see `framepool models show {spec.name}`",
            field="labels",
        )


def changed(config: StreamConfig, changes: StreamChanges) -> StreamConfig:
    """`config` with the given fields changed."""
    given = {
        name: getattr(changes, name)
        for name in StreamChanges.__dataclass_fields__
        if getattr(changes, name) is not None
    }
    return replace(config, **given)


def needs_new_feed(before: StreamConfig, after: StreamConfig) -> bool:
    """Whether decoding must begin anew: what is read, how often, or for which model changed."""
    fields = ("source", "username", "password", "model", "target_fps", "loop", "service_class", "enabled")
    return any(getattr(before, name) != getattr(after, name) for name in fields)
