"""Stores on SQLite that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from framepool.engine.store.store import DetectionStore, StoreOptions


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., DetectionStore]]:
    stores: list[DetectionStore] = []

    def open_store(folder: Path = tmp_path, **options: Any) -> DetectionStore:
        stores.append(DetectionStore.open("", folder, StoreOptions(**options)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()
