"""Streams, feeds and frames as the data plane knows them. Plain records; only the data plane's thread touches them.

A *stream* is what was registered: it keeps its counters as long as it is registered. A *feed* is its decoding from one
(re)start to the next: an arena of frame slots and a decoder process that fills them. When a stream's source or model is
changed the stream gets a new feed while frames of the old one are still on their way.

Every slot of a feed's arena is at any time with exactly one of: the decoder (granted), or a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from framepool.engine.control import StreamConfig, StreamCounters, StreamState
from framepool.engine.runtime.activations import ActivationSlot
from framepool.engine.runtime.arena import Arena
from framepool.engine.runtime.latency import LatencyWindow, RecentSums
from framepool.engine.runtime.messages import ArenaRef
from framepool.engine.runtime.slots import Lease, SlotBook
from framepool.engine.scheduling.events import DropReason
from framepool.models.spec import ModelSpec

IN_TIME, ENDED, INGESTED = 0, 1, 2
"""Columns of a stream's recent sums."""


@dataclass(slots=True)
class Tally:
    """Counters of a stream while it runs; `counters` gives them as a value."""

    ingested: int = 0
    completed: int = 0
    in_time: int = 0
    dropped: dict[DropReason, int] = field(default_factory=dict)
    decode_errors: int = 0
    reconnects: int = 0

    def counters(self) -> StreamCounters:
        return StreamCounters(
            self.ingested, self.completed, self.in_time, dict(self.dropped), self.decode_errors, self.reconnects
        )

    def add(self, other: Tally) -> None:
        self.ingested += other.ingested
        self.completed += other.completed
        self.in_time += other.in_time
        self.decode_errors += other.decode_errors
        self.reconnects += other.reconnects
        for reason, count in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count


class Stream:
    """A registered stream. `config` holds no password here."""

    __slots__ = (
        "_labels_wanted", "codec", "config", "error", "error_code", "feed", "frames", "height_px", "id", "latency",
        "measured_fps", "media_ns", "next_seq", "recent", "removed", "spec", "state", "tally", "width_px",
    )  # fmt: skip

    def __init__(self, stream_id: int, config: StreamConfig, spec: ModelSpec, next_seq: int, now_ns: int) -> None:
        self.id = stream_id
        self.config = config
        self.spec = spec
        self.next_seq = next_seq
        self.media_ns = -1
        self.state = StreamState.CONNECTING if config.enabled else StreamState.DISABLED
        self.error = ""
        self.error_code = ""
        self.codec = ""
        self.width_px = self.height_px = 0
        self.measured_fps = 0.0
        self.tally = Tally()
        self.latency = LatencyWindow()
        self.recent = RecentSums(3, now_ns)
        self.frames: dict[int, LiveFrame] = {}
        self.feed: Feed | None = None
        self.removed = False
        self._labels_wanted = frozenset(config.labels)

    @property
    def slo_ns(self) -> int:
        return round(self.config.slo_ms * 1e6)

    def reconfigure(self, config: StreamConfig, spec: ModelSpec) -> None:
        self.config = config
        self.spec = spec
        self._labels_wanted = frozenset(config.labels)

    def wants(self, label: str, score: float) -> bool:
        """Whether a detection is published under the stream's own filter."""
        return score >= self.config.min_score and (not self._labels_wanted or label in self._labels_wanted)


class Feed:
    """See the module docstring. `users` counts frames and batches that may still read the arena."""

    __slots__ = ("arena", "book", "closing", "decoder", "granted", "id", "open", "ref", "source", "stream", "users")

    def __init__(self, feed_id: int, stream: Stream, source: FeedSource, arena: Arena) -> None:
        self.id = feed_id
        self.stream = stream
        self.source = source
        self.arena = arena
        self.ref = ArenaRef(arena.spec.name, arena.spec.slots, arena.spec.slot_bytes)
        self.book = SlotBook(arena.spec.slots)
        self.granted: dict[int, Lease] = {}
        self.decoder = ""
        self.users = 0
        self.closing = False
        self.open = True

    def grant_all(self) -> list[tuple[int, int]]:
        """Leases every free slot to the decoder; returns what to tell it."""
        news: list[tuple[int, int]] = []
        while (lease := self.book.lease()) is not None:
            self.granted[lease.slot] = lease
            news.append((lease.slot, lease.generation))
        return news

    def take_back_granted(self) -> None:
        """The decoder is gone: what it held is free."""
        for lease in self.granted.values():
            self.book.release(lease)
        self.granted.clear()


@dataclass(frozen=True, slots=True)
class FeedSource:
    """What a decoder needs to know. The password is never shown. `phase_ns`: see streams.pacing (-1: none)."""

    source: str
    username: str
    password: str = field(repr=False)
    target_fps: float
    offline: bool
    loop: bool
    phase_ns: int = -1


class LiveFrame:
    """A frame on its way. Times are monotonic; `inference_ns` and `transfer_ns` add up as its stages report."""

    __slots__ = (
        "activation", "activation_row", "arrived_ns", "batch_id", "capture_ns", "capture_unix_ns", "decoded_ns", "feed",
        "head_done_ns", "height_px", "id", "inference_ns", "lease", "media_time_ns", "seq", "transfer_ns", "transform",
        "width_px",
    )  # fmt: skip

    def __init__(
        self,
        frame_id: int,
        feed: Feed,
        lease: Lease,
        seq: int,
        *,
        capture_ns: int,
        capture_unix_ns: int,
        decoded_ns: int,
        arrived_ns: int,
        media_time_ns: int,
        size_px: tuple[int, int],
        transform: tuple[float, ...],
    ) -> None:
        self.id = frame_id
        self.feed = feed
        self.lease = lease
        self.seq = seq
        self.capture_ns = capture_ns
        self.capture_unix_ns = capture_unix_ns
        self.decoded_ns = decoded_ns
        self.arrived_ns = arrived_ns
        self.media_time_ns = media_time_ns
        self.width_px, self.height_px = size_px
        self.transform = transform
        self.inference_ns = 0
        self.transfer_ns = arrived_ns - decoded_ns
        self.head_done_ns = 0
        self.batch_id = 0
        self.activation: ActivationSlot | None = None
        self.activation_row = 0

    def restart_parts(self) -> None:
        """The frame begins again at the first stage: what a lost try took is no part of its inference."""
        self.inference_ns = 0
        self.transfer_ns = self.arrived_ns - self.decoded_ns


class LiveBatch:
    """A dispatched batch until its last hop is heard of. `outputs[i]` is what hop i writes (None: the last stage).

    `inputs` are the slots of earlier batches that hop 0 reads. Nothing is freed before every hop was reported, its
    worker died, or `expires_ns` came (a hand-over that never arrived).
    """

    __slots__ = ("expires_ns", "feeds", "frames", "inputs", "open_hops", "outputs", "stages", "workers")

    def __init__(
        self,
        frames: Sequence[LiveFrame],
        workers: Sequence[str],
        stages: Sequence[int],
        outputs: Sequence[ActivationSlot | None],
        inputs: Sequence[ActivationSlot],
        expires_ns: int,
    ) -> None:
        self.frames = {frame.id: (row, frame) for row, frame in enumerate(frames)}
        self.feeds = tuple(frame.feed for frame in frames)
        self.workers = tuple(workers)
        self.stages = tuple(stages)
        self.outputs = list(outputs)
        self.inputs = tuple(inputs)
        self.open_hops = set(range(len(stages)))
        self.expires_ns = expires_ns


@dataclass(slots=True)
class WorkerLink:
    """A running stage worker as the data plane reaches it."""

    worker_id: str
    child_id: str
    endpoint: str
    busy: RecentSums
    waiting: dict[int, int] = field(default_factory=dict)
    """Orders sent to it and not reported: batch id -> time by which a healthy worker has reported (monotonic ns)."""


@dataclass(slots=True)
class DecoderLink:
    """A decoder process. `child_id` is "" while it is down; its feeds wait for it to come back."""

    decoder_id: str
    child_id: str = ""
    feeds: dict[int, Feed] = field(default_factory=dict)


def labelled(labels: Sequence[str], class_id: int) -> str:
    """The label of a class; its number where the model has no name for it."""
    return labels[class_id] if 0 <= class_id < len(labels) else str(class_id)
