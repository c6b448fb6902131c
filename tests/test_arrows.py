"""Who may import whom: the arrows of ARCHITECTURE.md, held by reading every import statement of the tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("engine", "models", "streams", "proto", "benchmarks", "framepool")

PURE = ("engine.planning", "engine.scheduling", "engine.simulation")
HEAVY = ("torch", "torchvision", "onnxruntime", "openvino", "cv2", "av", "grpc", "sqlalchemy")

MAY_NOT_IMPORT: dict[str, tuple[str, ...]] = {
    "streams": ("framepool.engine", "framepool.models", "framepool.proto", "framepool.benchmarks"),
    "models": ("framepool.engine", "framepool.streams", "framepool.proto", "framepool.benchmarks"),
    "proto": ("framepool.engine", "framepool.models", "framepool.streams", "framepool.benchmarks"),
    "engine.planning": ("framepool.engine.runtime", "framepool.engine.store", "framepool.engine.api", *HEAVY),
    "engine.scheduling": ("framepool.engine.runtime", "framepool.engine.store", "framepool.engine.api", *HEAVY),
    "engine.simulation": ("framepool.engine.runtime", "framepool.engine.store", "framepool.engine.api", *HEAVY),
    "engine.runtime": ("framepool.engine.api", "framepool.engine.store", "framepool.engine.client",
                       "framepool.engine.core", "grpc"),
    "engine.store": ("framepool.engine.runtime", "framepool.engine.api", "framepool.engine.core", "grpc"),
    "engine.api": ("framepool.engine.runtime", "framepool.engine.store", "framepool.engine.core",
                   "framepool.engine.cli", "sqlalchemy"),
    "engine.client": ("framepool.engine.runtime", "framepool.engine.store", "framepool.engine.core",
                      "framepool.engine.cli", "sqlalchemy"),
    "engine": ("framepool.benchmarks",),
}  # fmt: skip
"""By package: prefixes of modules that nothing in it imports."""
ALLOWED = {("engine.cli.app", "framepool.benchmarks")}
"""The root of the command line hangs in `framepool bench`."""


def modules() -> list[tuple[str, Path]]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" in path.name:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts), path))
    return found


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("package", sorted(MAY_NOT_IMPORT))
def test_arrows(package: str) -> None:
    seen = 0
    for name, path in modules():
        if name != package and not name.startswith(f"{package}."):
            continue
        seen += 1
        for imported in imports(path):
            for forbidden in MAY_NOT_IMPORT[package]:
                if (name, forbidden) in ALLOWED:
                    continue
                assert not f"{imported}.".startswith(f"{forbidden}."), f"{name} imports {imported}"
    assert seen > 1


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_use_no_clock_and_no_threads(package: str) -> None:
    """Time is an argument. The planner may look at a clock to give up, and simulated arrivals are drawn from a seed."""
    allowed = {
        "engine.planning.search": {"time"},
        "engine.planning.solving": {"time"},
        "engine.planning.covering": {"time"},
        "engine.simulation.arrivals": {"random"},  # seeded
        "engine.simulation.driver": {"random"},
        "engine.simulation.service": {"random"},  # draws from the generator it is given
    }
    for name, path in modules():
        if name.startswith(f"{package}."):
            used = {imported.split(".")[0] for imported in imports(path)}
            assert not used & {"time", "threading", "asyncio", "random", "socket"} - allowed.get(name, set()), name


def test_relative_imports_are_not_used() -> None:
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            level = node.level if isinstance(node, ast.ImportFrom) else 0
            assert not level, name


def test_importing_framepool_pulls_in_no_heavy_library() -> None:
    """Neither torch nor a GPU library comes with the package, its control types or its client."""
    code = (
        "import sys, framepool, framepool.engine.control, framepool.engine.client, framepool.models.spec; "
        "print(sorted(set(sys.modules) & {'torch', 'torchvision', 'onnxruntime', 'openvino', 'cv2', 'tensorrt'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
