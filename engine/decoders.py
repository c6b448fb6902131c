"""Which decoder process a feed goes to, and the processes themselves.

The first decoder is started with the engine and stays; more are started as streams fill those there are, up to the
bound, and idle ones stay for the next stream. A new feed goes to the decoder with the fewest.
"""

from __future__ import annotations

import os

import msgspec

from framepool.engine.config import DecodersSection
from framepool.engine.runtime.decoder_process import DecoderConfig
from framepool.engine.runtime.fleet import ChildSpec, Fleet

DECODER_MODULE = "framepool.engine.runtime.decoder_process"


class Decoders:
    """Keeps count of feeds by decoder. Used under the engine's control lock."""

    def __init__(self, fleet: Fleet, engine_endpoint: str, settings: DecodersSection) -> None:
        self._fleet = fleet
        self._engine_endpoint = engine_endpoint
        self._most = settings.max_processes or max(1, os.cpu_count() or 1)
        self._per_process = settings.streams_per_process
        self._feeds: dict[str, set[int]] = {}

    def start(self) -> None:
        """Starts the first decoder, so that the first stream need not wait for it."""
        self._add()

    def assign(self, stream_id: int) -> str:
        """The decoder for a stream's new feed (the one it had, where it had one)."""
        for decoder_id, streams in self._feeds.items():
            if stream_id in streams:
                return decoder_id
        least = min(self._feeds, key=lambda decoder_id: len(self._feeds[decoder_id]))
        if len(self._feeds[least]) >= self._per_process and len(self._feeds) < self._most:
            least = self._add()
        self._feeds[least].add(stream_id)
        return least

    def release(self, stream_id: int) -> None:
        """The stream needs no decoder any more."""
        for streams in self._feeds.values():
            streams.discard(stream_id)

    def _add(self) -> str:
        decoder_id = f"decoder-{len(self._feeds)}"
        self._feeds[decoder_id] = set()
        self._fleet.ensure([ChildSpec(decoder_id, DECODER_MODULE, lambda child_id: self._config(child_id))])
        return decoder_id

    def _config(self, child_id: str) -> bytes:
        return msgspec.msgpack.encode(DecoderConfig(child_id, f"framepool: {child_id}", self._engine_endpoint))
