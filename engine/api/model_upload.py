"""Receives an uploaded model: a header, then chunks of the file and of its external data, within a bound of bytes.

Uploads are held in memory until they are whole, so their number is bounded too (`ApiOptions.max_uploads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from framepool.engine.api import requests
from framepool.engine.api.errors import OverloadedError
from framepool.engine.api.options import ApiOptions
from framepool.engine.control import ModelUpload
from framepool.engine.errors import DeadlineError, InvalidArgumentError
from framepool.proto import models_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODEL_FILE = ""


class Uploads:
    """Counts the uploads under way. On the server's event loop."""

    def __init__(self, options: ApiOptions) -> None:
        self._options = options
        self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the uploads allowed at once."""
        if self._under_way >= self._options.max_uploads:
            raise OverloadedError(
                f"{self._under_way} models are being uploaded, the most this server takes at once; ask again shortly"
            )
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def receive(self, messages: AsyncIterator[models_pb2.AddModelRequest], timeout_s: float) -> ModelUpload:
        """The upload that `messages` make up, received within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._receive(messages)
        except TimeoutError:
            raise DeadlineError(f"the model was not uploaded within {timeout_s:.3g} s; allow more time") from None

    async def _receive(self, messages: AsyncIterator[models_pb2.AddModelRequest]) -> ModelUpload:
        header: requests.ModelHeader | None = None
        files: dict[str, list[bytes]] = {}
        latest: str | None = None
        size_bytes = 0
        limit_bytes = self._options.max_model_bytes
        async for message in messages:
            part = message.WhichOneof("part")
            if header is None:
                if part != "header":
                    raise InvalidArgumentError("the first message of AddModel must be its header", field="header")
                header = requests.model_header(message.header, self._options.model_roots)
                continue
            if part != "chunk":
                raise InvalidArgumentError("after its header, AddModel takes chunks only", field="chunk")
            if header.server_path is not None:
                raise InvalidArgumentError("a model read from header.server_path takes no chunks", field="chunk")
            name = requests.external_file(message.chunk.file) if message.chunk.file else _MODEL_FILE
            if name != latest and name in files:
                raise InvalidArgumentError(f"chunks of {name or 'the model'} must follow one another", field="chunk")
            latest = name
            size_bytes += len(message.chunk.data)
            if size_bytes > limit_bytes:
                raise InvalidArgumentError(
                    f"the model has more than {limit_bytes} bytes, the most this server takes (api.max_model_bytes)",
                    field="chunk",
                )
            files.setdefault(name, []).append(message.chunk.data)
        if header is None:
            raise InvalidArgumentError("AddModel needs a header and the model's bytes", field="header")
        if header.server_path is None and not any(files.get(_MODEL_FILE, ())):
            raise InvalidArgumentError("the uploaded model is empty; send the bytes of an ONNX file", field="chunk")
        content = {name: b"".join(files.pop(name)) for name in tuple(files)}
        return ModelUpload(
            name=header.name,
            path=header.server_path,
            content=content.pop(_MODEL_FILE, None),
            external_data=content,
            spec_toml=header.spec_toml,
            head=header.head,
            labels=header.labels,
            replace=header.replace,
        )
