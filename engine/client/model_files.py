"""A model on the client's disk as messages: header, then chunks of its file and of the external data it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from framepool.engine.errors import InvalidArgumentError
from framepool.proto import models_pb2

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What to add: `path` on this machine, or with `server_path` a file on the engine's.

    `external_data` names files beside `path` that hold weights, relative to its folder; None: those that the model
    itself names.
    """

    name: str
    path: Path | None = None
    server_path: str = ""
    external_data: Sequence[str] | None = None
    spec_toml: str = ""
    head: str = ""
    labels: Sequence[str] = ()
    replace: bool = False


def messages(source: ModelSource) -> Iterator[models_pb2.AddModelRequest]:
    """The upload, a chunk at a time. InvalidArgumentError, before the first message, where a file can't be read."""
    files: list[tuple[str, Path]] = []
    if (source.path is None) == (not source.server_path):
        raise InvalidArgumentError("a model is added from one of path and server_path", field="path")
    if source.path is not None:
        names = external_files(source.path) if source.external_data is None else source.external_data
        files = [("", source.path), *((name, source.path.parent / name) for name in names)]
        for _, path in files:
            _readable(path)
    return _messages(source, files)


def _messages(source: ModelSource, files: list[tuple[str, Path]]) -> Iterator[models_pb2.AddModelRequest]:
    yield models_pb2.AddModelRequest(
        header=models_pb2.AddModelRequest.Header(
            model_id=source.name,
            spec_toml=source.spec_toml,
            head=source.head,
            labels=source.labels,
            replace=source.replace,
            server_path=source.server_path,
        )
    )
    for name, path in files:
        with path.open("rb") as opened:
            while data := opened.read(CHUNK_BYTES):
                yield models_pb2.AddModelRequest(chunk=models_pb2.AddModelRequest.Chunk(file=name, data=data))


def _readable(path: Path) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be read: {error.strerror}", field="path") from error


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the external data files that the model at `path` names, as it names them.

    None where it can't be read as a model (the engine then says why), and none that lead out of its folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    _readable(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError):
        return ()
    nodes = [node for function in model.functions for node in function.node]
    names = {
        entry.value
        for tensor in (*_tensors(model.graph), *_tensors_of_nodes(nodes))
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    folder = path.resolve().parent
    return tuple(sorted(name for name in names if (folder / name).resolve().is_relative_to(folder)))


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor of a graph and of the graphs inside it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _tensors(graph)
