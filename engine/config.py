"""The engine's configuration: a TOML file, overridden by `FRAMEPOOL_<SECTION>__<KEY>` environment variables.

Every key is described here and nowhere else. An unknown key, or a value that can't be right, is a ConfigError that
names the key's dotted path. The commented example at `docs/framepool.toml` is checked against this by a test.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from framepool.engine.errors import ConfigError

ENV_PREFIX = "FRAMEPOOL_"


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/framepool`, else `~/.local/state/framepool`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "framepool"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineSection(_Section):
    """Where the engine keeps what survives it, and how it logs."""

    state_dir: Path = Field(default_factory=default_state_dir, description="models, profiles, database, keys")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    drain_s: float = Field(5.0, ge=0, le=300, description="time for frames under way to finish at a stop")


class ApiSection(_Section):
    """The gRPC server and the HTTP port for metrics."""

    host: str = "127.0.0.1"
    port: int = Field(7707, ge=0, le=65535, description="0: the system picks one")
    http_port: int = Field(7708, ge=-1, le=65535, description="/metrics and /healthz; 0: the system picks; -1: none")
    auth_token: SecretStr = SecretStr("")
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_watchers: int = Field(256, ge=1)


class SourcesSection(_Section):
    """What may be registered as a stream's source."""

    file_roots: tuple[Path, ...] = Field(
        (), description="files are read below these folders only; empty: the engine's working directory"
    )
    probe_timeout_s: float = Field(10.0, gt=0, le=120)


class PlannerSection(_Section):
    """How pools are planned."""

    slo_margin: float = Field(0.2, ge=0, lt=1, description="share of each SLO kept free for jitter and decoding")
    min_stages: int = Field(1, ge=1, le=4)
    max_stages: int = Field(2, ge=1, le=4, description="1: models are never split")
    distinct_classes: bool = Field(False, description="a pipeline's stages lie on unlike classes")
    max_batch: int = Field(16, ge=1, le=64)
    headroom: float = Field(
        1.25,
        ge=1,
        le=10,
        description="streams are admitted while so many times their load fits: decoding needs cores too",
    )
    admit_all: bool = Field(False, description="streams are taken in even where they do not fit: for measurements")
    restrict_sequences: bool = Field(False, description="of each order of classes one template, as PPipe plans")
    time_limit_s: float = Field(2.0, gt=0, le=600)


class SchedulerSection(_Section):
    """How frames are sent through the pools."""

    policy: str = Field("ppipe", description="framepool | ppipe | reactive")
    publish_reserve_ms: float = Field(5.0, ge=0)
    commit_ahead_ms: float = Field(5.0, ge=0)
    event_log: Path | None = Field(None, description="record every scheduler event here, for replay")


class DecodersSection(_Section):
    """Decoder processes."""

    max_processes: int = Field(0, ge=0, le=64, description="0: as many as there are cores")
    streams_per_process: int = Field(8, ge=1, le=256)


class WorkersSection(_Section):
    """Stage worker processes."""

    niceness: int = Field(5, ge=0, le=19, description="lets decoding and the engine run first on shared cores")
    linger_s: float = Field(30.0, ge=0, le=3600, description="a worker no plan uses is kept so long")
    start_timeout_s: float = Field(120.0, gt=0, le=3600)
    activation_slots: int = Field(64, ge=8, le=4096, description="most batches between two stages of a pipeline")


class ProfilesSection(_Section):
    """How devices are measured."""

    batch_sizes: tuple[int, ...] = Field((1, 2, 4), description="measured; those between are interpolated")
    gpu_batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    seconds_per_batch: float = Field(0.25, gt=0, le=60)
    batch_overhead_ms: float = Field(
        0.5, ge=0, le=100, description="what a batch costs a CPU device beside the model: order, head, report"
    )

    @field_validator("batch_sizes", "gpu_batch_sizes")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or value[0] != 1 or list(value) != sorted(set(value)) or value[-1] > 64:
            raise ValueError("must ascend from 1 to at most 64")
        return value


class StoreSection(_Section):
    """Detections at rest."""

    url: SecretStr = Field(SecretStr(""), description="SQLAlchemy URL; empty: SQLite in state_dir")
    max_age_days: float = Field(7.0, gt=0)
    max_bytes: int = Field(2 * 1024**3, ge=1024**2)


class DeviceSection(_Section):
    """One device, or `count` alike. Devices of one `device_class` must agree in all but cores and gpu."""

    device_class: str = Field(alias="class", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    backend: Literal["onnxruntime", "openvino", "emulated"]
    provider: str = "cpu"
    precision: Literal["fp32", "bf16", "fp16", "int8"] = "fp32"
    cores: tuple[int, ...] = Field((), description="CPUs the device's workers are pinned to")
    gpu: int = Field(0, ge=0)
    count: int = Field(1, ge=1, le=4096)
    shares: tuple[int, ...] = Field((1, 2), description="into how many equal parts a device may be split")
    emulates: str = Field("", description="emulated: the class whose kept profile it takes its time from")
    scale: float = Field(1.0, gt=0, description="emulated: times the profile")

    @field_validator("shares")
    @classmethod
    def _shares(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or value[0] != 1 or list(value) != sorted(set(value)) or value[-1] > 8:
            raise ValueError("must ascend from 1 to at most 8")
        return value


class EngineConfig(BaseSettings):
    """Everything `framepool serve` can be told."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, populate_by_name=True
    )

    engine: EngineSection = EngineSection()
    api: ApiSection = ApiSection()
    sources: SourcesSection = SourcesSection()
    planner: PlannerSection = PlannerSection()
    scheduler: SchedulerSection = SchedulerSection()
    decoders: DecodersSection = DecodersSection()
    workers: WorkersSection = WorkersSection()
    profiles: ProfilesSection = ProfilesSection()
    store: StoreSection = StoreSection()
    devices: tuple[DeviceSection, ...] = Field((), description="empty: what the machine has")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with where it came from, for `framepool config show`."""

    config: EngineConfig
    path: Path | None
    from_file: dict[str, Any] = field(repr=False)


def load_config(path: Path | None) -> LoadedConfig:
    """Reads `path` (None: defaults and environment only). Raises ConfigError naming the file or the key."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigError(f"{path} can't be read: {exc.strerror}", field="config") from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{path} is no valid TOML: {exc}", field="config") from exc
    return LoadedConfig(make_config(values, str(path or "environment")), path, values)


def make_config(values: dict[str, Any], where: str = "configuration") -> EngineConfig:
    """A checked configuration from nested values. Raises ConfigError that names the first wrong key."""
    try:
        return EngineConfig(**values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {key}: {first['msg']}; see `framepool config show`", field=key) from exc


def describe(loaded: LoadedConfig) -> str:
    """Each setting in force as TOML, with where it comes from; secrets masked."""
    lines = []
    for name, section in loaded.config:
        if isinstance(section, BaseModel):
            lines += ["", f"[{name}]"]
            lines += list(_section_lines(name, section, loaded))
    if loaded.config.devices:
        for device in loaded.config.devices:
            lines += ["", "[[devices]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in device.model_dump(by_alias=True).items()]
    else:
        lines += ["", "# devices: detected at start (framepool devices)"]
    return "\n".join(lines).strip()


def _section_lines(name: str, section: BaseModel, loaded: LoadedConfig) -> Iterator[str]:
    for key, value in section:
        if f"{ENV_PREFIX}{name}__{key}".upper() in os.environ:
            origin = "environment"
        elif key in loaded.from_file.get(name, {}):
            origin = str(loaded.path)
        else:
            origin = "default"
        text = f"{key} = {_toml(value)}" if value is not None else f"# {key} is not set"
        yield f"{text:<44} # {origin}"


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case SecretStr():
            return '"***"' if value.get_secret_value() else '""'
        case tuple() | list():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case _:
            return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
