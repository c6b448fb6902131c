"""Every message between the engine, decoder processes and stage workers. MessagePack through msgspec: typed, no code.

Naming: engine -> child are orders, child -> engine are reports. All `_ns` are CLOCK_MONOTONIC of the host.
A slot is named by arena name, slot number and generation; arenas are described once, in `ArenaSpecMessage`.
"""

from __future__ import annotations

import msgspec

ENGINE = "engine"
"""The name by which children know the engine's node."""


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base: compact positional encoding, tagged with the class name."""


class ArenaRef(Message, frozen=True):
    name: str
    slots: int
    slot_bytes: int


class FrameInput(Message, frozen=True):
    """A frame in a batch: where its picture lies and what its head needs to map back to source pixels."""

    frame_id: int
    arena: ArenaRef
    slot: int
    generation: int
    transform: tuple[float, ...]


class RowInput(Message, frozen=True):
    """A frame's activations: row `row` of a slot written by an earlier batch of `rows` rows (stage > 0)."""

    arena: ArenaRef
    slot: int
    generation: int
    row: int
    rows: int


class HopOrder(Message, frozen=True):
    """One stage of the route. `output` is the activation slot to write (None for the model's last stage)."""

    stage: int
    worker_id: str
    endpoint: str
    earliest_ns: int
    latest_ns: int
    start_ns: int
    output_arena: ArenaRef | None
    output_slot: int
    output_generation: int


class BatchOrder(Message, frozen=True):
    """Run a batch: the worker executes hops[hop] and hands the order, hop + 1, to hops[hop + 1].endpoint.

    `rows` gives each frame's input for hops[0] when that is not the model's first stage.
    """

    batch_id: int
    frames: tuple[FrameInput, ...]
    rows: tuple[RowInput, ...]
    hops: tuple[HopOrder, ...]
    hop: int
    sent_ns: int


class ArenaGone(Message, frozen=True):
    """The arena was unlinked: drop the mapping."""

    name: str


class Stop(Message, frozen=True):
    """Finish what is queued, then exit."""


class AddFeed(Message, frozen=True):
    """Decode a stream into the slots of an arena, from frame number `first_seq` on.

    One *feed*: a stream from one (re)start of its decoding to the next. The password is only ever sent here. A file is
    read from `resume_media_ns` on (-1: from its start). `phase_ns`: see streams.pacing.
    """

    feed_id: int
    stream: str
    source: str
    username: str
    password: str
    model_width_px: int
    model_height_px: int
    resize: str
    pad_value: int
    target_fps: float
    offline: bool
    loop: bool
    first_seq: int
    resume_media_ns: int
    phase_ns: int
    arena: ArenaRef

    def __repr__(self) -> str:
        return f"AddFeed(feed_id={self.feed_id}, stream={self.stream!r})"


class RemoveFeed(Message, frozen=True):
    feed_id: int


class GrantSlots(Message, frozen=True):
    """Slots the stream may fill, as (slot, generation)."""

    feed_id: int
    slots: tuple[tuple[int, int], ...]


class ChildReady(Message, frozen=True):
    """Loaded and warm. `endpoint` is where a stage worker takes batches from its peers ("" for decoders).

    `latency_us` is what it measured of its stage for batches of 1, 2, ... (empty: it was not asked to).
    """

    child_id: str
    endpoint: str
    facts: dict[str, str]
    latency_us: tuple[float, ...]


class ChildRefused(Message, frozen=True):
    """Could not start; `message` holds the cause and `kind` the error class by name."""

    child_id: str
    kind: str
    message: str


class FrameReady(Message, frozen=True):
    """A frame lies in its slot."""

    feed_id: int
    seq: int
    slot: int
    generation: int
    capture_ns: int
    decoded_ns: int
    capture_unix_ns: int
    media_time_ns: int
    width_px: int
    height_px: int
    transform: tuple[float, ...]


class FrameLost(Message, frozen=True):
    """A frame was ingested and given up inside the decoder; `reason` is a DropReason value."""

    feed_id: int
    seq: int
    capture_ns: int
    reason: str


class RoomRequest(Message, frozen=True):
    feed_id: int


class FeedReport(Message, frozen=True):
    """The stream's state as its decoder sees it. Texts are redacted already; `new_` counts since the last report."""

    feed_id: int
    state: str
    error_code: str
    error: str
    width_px: int
    height_px: int
    codec: str
    measured_fps: float
    new_decode_errors: int
    new_reconnects: int


class FeedClosed(Message, frozen=True):
    """The stream's thread is gone; its arena is no longer written."""

    feed_id: int


class FrameResult(Message, frozen=True):
    """Detections of one frame as raw little-endian arrays (see models.detections for shapes)."""

    frame_id: int
    boxes: bytes
    scores: bytes
    classes: bytes
    keypoints: bytes
    keypoints_per_row: int
    embedding: bytes


class StageReport(Message, frozen=True):
    """A hop was run. `received_ns` is when the worker took the order in, `input_ns` when inputs were in place,
    `infer_ns` when the model had run, `end_ns` when head or hand-over was done too."""

    batch_id: int
    stage: int
    worker_id: str
    sent_ns: int
    received_ns: int
    start_ns: int
    input_ns: int
    infer_ns: int
    end_ns: int
    results: tuple[FrameResult, ...]
    failed_frames: tuple[int, ...]
    failure: str


class StageRefusal(Message, frozen=True):
    batch_id: int
    stage: int
    worker_id: str
    reason: str


class StageFailure(Message, frozen=True):
    batch_id: int
    stage: int
    worker_id: str
    message: str


Order = BatchOrder | ArenaGone | Stop | AddFeed | RemoveFeed | GrantSlots
Report = (
    ChildReady
    | ChildRefused
    | FrameReady
    | FrameLost
    | RoomRequest
    | FeedReport
    | FeedClosed
    | StageReport
    | StageRefusal
    | StageFailure
)

encoder = msgspec.msgpack.Encoder()
"""Stateless; encodes any message to bytes."""
decode_order: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
decode_report: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
