"""Makes the Python code of the .proto files: ``python -m framepool.proto.generate`` (``--check`` only compares).

Runs from a source tree with the extra ``dev``. The files are named ``framepool/proto/x.proto`` to the compiler, so that
the generated modules import one another as ``framepool.proto.x_pb2`` wherever the package is installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

PACKAGE_PATH = Path("framepool") / "proto"


def sources(folder: Path) -> list[Path]:
    """The .proto files of `folder`, by name."""
    return sorted(folder.glob("*.proto"))


def generate(proto_dir: Path, out_root: Path) -> list[Path]:
    """Writes the generated code of `proto_dir` under `out_root`/framepool/proto; returns the files.

    RuntimeError where the compiler refuses a file; it has said why on stderr.
    """
    from grpc_tools import protoc

    well_known = resources.files("grpc_tools") / "_proto"
    out_root.joinpath(PACKAGE_PATH).mkdir(parents=True, exist_ok=True)
    arguments = [
        "protoc",
        f"-I{PACKAGE_PATH.as_posix()}={proto_dir}",
        f"-I{well_known}",
        f"--python_out={out_root}",
        f"--pyi_out={out_root}",
        f"--grpc_python_out={out_root}",
        *(str(PACKAGE_PATH / source.name) for source in sources(proto_dir)),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"the protocol compiler refused a file of {proto_dir}")
    return sorted(out_root.joinpath(PACKAGE_PATH).glob("*_pb2*"))


def stale(proto_dir: Path) -> list[str]:
    """Names of generated files that differ from, lack or outlive what the .proto files give now."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = {made.name: made.read_bytes() for made in generate(proto_dir, Path(scratch))}
    kept = {path.name: path.read_bytes() for path in proto_dir.glob("*_pb2*") if path.is_file()}
    return sorted(name for name in fresh.keys() | kept.keys() if fresh.get(name) != kept.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m framepool.proto.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is stale")
    options = parser.parse_args()
    proto_dir = Path(__file__).resolve().parent
    outdated = stale(proto_dir)
    if options.check:
        for name in outdated:
            print(f"stale: proto/{name}; run python -m framepool.proto.generate", file=sys.stderr)
        return 1 if outdated else 0
    with tempfile.TemporaryDirectory() as scratch:
        fresh = {made.name: made.read_bytes() for made in generate(proto_dir, Path(scratch))}
    for name in outdated:
        target = proto_dir / name
        if name in fresh:
            target.write_bytes(fresh[name])
        else:
            target.unlink()
        print(f"proto/{name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
