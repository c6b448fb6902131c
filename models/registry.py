"""The registered models on disk: served graph, spec and partition of each, bundled ones included.

    <root>/<name>/model.onnx (+ its weights files)   spec.toml   partition.json

An entry appears whole or not at all: it is made in a folder of its own and renamed into place. Bundled models are
served from there too, made on first use.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from framepool.models.blocks import MAX_BLOCKS
from framepool.models.children import run_child
from framepool.models.errors import ModelError, ModelExistsError, ModelNotFoundError, ModelSpecError
from framepool.models.importing import SERVED_FILE, check_name, import_model
from framepool.models.partition import Partition
from framepool.models.partitioning import partition_from_json
from framepool.models.spec import ModelSpec
from framepool.models.spec_toml import parse_toml, spec_from_toml, spec_to_toml
from framepool.models.zoo_catalog import ZooModel, zoo

SPEC_FILE = "spec.toml"
PARTITION_FILE = "partition.json"
PARTITION_TIMEOUT_S = 1800.0
_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A registered model. `path` is the served graph: one input, `frames` uint8 [n, H, W, 3]."""

    name: str
    path: Path
    spec: ModelSpec
    builtin: bool


class ModelRegistry:
    """See the module docstring. Safe to call from several threads; long work holds no lock that reads need."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._zoo = zoo()
        self._lock = threading.Lock()
        self._partition_lock = threading.Lock()
        self._entries: dict[str, ModelEntry] = {}
        self._partitions: dict[str, Partition] = {}
        root.mkdir(parents=True, exist_ok=True)
        for leftover in root.glob(f"{_PARTIAL}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def list(self) -> tuple[ModelEntry, ...]:
        """All models by name; bundled ones that were never used are made now."""
        names = {path.parent.name for path in self._root.glob(f"*/{SPEC_FILE}")} | set(self._zoo)
        return tuple(self.get(name) for name in sorted(names) if not name.startswith(_PARTIAL))

    def get(self, name: str) -> ModelEntry:
        """The model of that name. Raises ModelNotFoundError, naming those there are."""
        with self._lock:
            known = self._entries.get(name)
            if known is not None:
                return known
            entry = self._load(name)
            if entry is None:
                bundled = self._zoo.get(name)
                if bundled is None:
                    raise self._not_found(name)
                entry = self._make_bundled(name, bundled)
            self._entries[name] = entry
            return entry

    def add(
        self,
        name: str,
        source: Path | bytes,
        *,
        external_data: Mapping[str, bytes] | None = None,
        spec_toml: str = "",
        head: str = "",
        labels: Sequence[str] = (),
        replace: bool = False,
    ) -> ModelEntry:
        """Registers a model from a file, or from its bytes with those of its weights files by name. Raises ModelError.

        A name that is taken is refused unless `replace`; bundled models can't be replaced.
        """
        check_name(name)
        if name in self._zoo:
            raise ModelExistsError(f"model {name!r} comes with framepool; choose another name", field="name")
        if not replace and (self._root / name).exists():
            raise ModelExistsError(
                f"a model named {name!r} is registered; choose another name, or replace it", field="name"
            )
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=self._root) as scratch:
            folder = Path(scratch)
            file = (
                source
                if isinstance(source, Path)
                else _unpacked(folder / "upload", f"{name}.onnx", source, external_data or {})
            )
            made = folder / "entry"
            imported = import_model(file, name, made, spec_toml=spec_toml, head=head, labels=labels)
            (made / SPEC_FILE).write_text(spec_to_toml(imported.spec), encoding="utf-8")
            with self._lock:
                self._put(made, name)
                entry = ModelEntry(name, self._root / name / SERVED_FILE, imported.spec, builtin=False)
                self._entries[name] = entry
                self._partitions.pop(name, None)
        return entry

    def remove(self, name: str) -> None:
        """Forgets a model and its files. Raises ModelNotFoundError; ModelError for a bundled one."""
        if name in self._zoo:
            raise ModelError(f"model {name!r} comes with framepool and can't be removed", field="name")
        with self._lock:
            folder = self._root / name
            if not _is_name(name) or not (folder / SPEC_FILE).exists():
                raise self._not_found(name)
            self._entries.pop(name, None)
            self._partitions.pop(name, None)
            gone = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._root))
            folder.rename(gone / "entry")
            shutil.rmtree(gone, ignore_errors=True)

    def partition(self, name: str) -> Partition:
        """How the model may be cut; worked out when first asked for (seconds to minutes), then kept."""
        entry = self.get(name)
        known = self.known_partition(name)
        if known is not None:
            return known
        with self._partition_lock:
            known = self.known_partition(name)
            if known is not None:
                return known
            request = {"path": str(entry.path), "digest": entry.spec.digest, "max_blocks": MAX_BLOCKS}
            text = run_child(
                "framepool.models.partition_child", request, PARTITION_TIMEOUT_S, f"cutting model {name!r}"
            )
            kept = entry.path.parent / PARTITION_FILE
            partial = kept.with_suffix(".tmp")
            partial.write_text(text, encoding="utf-8")
            partial.replace(kept)
            partition = self._partitions[name] = partition_from_json(text)
        return partition

    def known_partition(self, name: str) -> Partition | None:
        """The partition where it was worked out before."""
        known = self._partitions.get(name)
        if known is not None:
            return known
        entry = self.get(name)
        try:
            partition = partition_from_json((entry.path.parent / PARTITION_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, ModelError):
            return None
        if partition.model_digest != entry.spec.digest:
            return None
        self._partitions[name] = partition
        return partition

    def _load(self, name: str) -> ModelEntry | None:
        if not _is_name(name):
            return None
        path = self._root / name / SPEC_FILE
        try:
            spec = spec_from_toml(path.read_text(encoding="utf-8"), str(path))
        except (OSError, ModelSpecError):
            return None
        served = path.parent / SERVED_FILE
        return ModelEntry(name, served, spec, builtin=name in self._zoo) if served.exists() else None

    def _make_bundled(self, name: str, bundled: ZooModel) -> ModelEntry:
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=self._root) as scratch:
            made = Path(scratch) / "entry"
            imported = import_model(bundled.file, name, made, spec_toml=_given(bundled.spec))
            (made / SPEC_FILE).write_text(spec_to_toml(imported.spec), encoding="utf-8")
            self._put(made, name)
        return ModelEntry(name, self._root / name / SERVED_FILE, imported.spec, builtin=True)

    def _put(self, made: Path, name: str) -> None:
        target = self._root / name
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._root))
            target.rename(old / "entry")
            made.rename(target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            made.rename(target)

    def _not_found(self, name: str) -> ModelNotFoundError:
        there = sorted({path.parent.name for path in self._root.glob(f"*/{SPEC_FILE}")} | set(self._zoo))
        return ModelNotFoundError(f"no model is named {name[:60]!r}; there are {', '.join(there)}", field="model")


def _is_name(name: str) -> bool:
    """Whether a name can be a folder of the registry."""
    try:
        check_name(name)
    except ModelSpecError:
        return False
    return True


def _given(spec: ModelSpec) -> str:
    """A bundled spec as a user would give it: what the dry run finds out is left to it."""
    values = parse_toml(spec_to_toml(spec), "spec")
    for key in ("digest", "opset", "max_batch", "batch_safe"):
        values.pop(key)
    return tomli_w.dumps(values)


def _unpacked(folder: Path, file_name: str, content: bytes, external_data: Mapping[str, bytes]) -> Path:
    """An uploaded model as files. Names were checked by whoever took them in; they are checked again."""
    folder.mkdir()
    path = folder / file_name
    path.write_bytes(content)
    for name, data in external_data.items():
        if Path(name).name != name or name in (path.name, "", ".", ".."):
            raise ModelSpecError(f"weights file name {name[:60]!r} must be a plain file name", field="external_data")
        (folder / name).write_bytes(data)
    return path
