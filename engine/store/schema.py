"""The tables. Times are UTC as integer nanoseconds since 1970 (`_unix_ns`); they sort, and lose nothing.

frames        one row a published frame that has detections; `cursor` grows with publishing, over all streams
detections    its rows
streams       registrations; ids are never given twice. The password lies apart, encrypted (see `secrets`)
purges        what is no longer kept: how many frames up to which cursor, so that a late watcher hears of its gap
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

_BigId = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows itself only where the key is exactly INTEGER (which is 64 bits there)."""

versions = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

streams = Table(
    "streams",
    metadata,
    Column("id", _BigId, primary_key=True, autoincrement=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("config", Text, nullable=False),
    Column("secret", LargeBinary),
    Column("create_time_unix_ns", BigInteger, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

frames = Table(
    "frames",
    metadata,
    Column("cursor", _BigId, primary_key=True, autoincrement=False),
    Column("stream", String(63), nullable=False),
    Column("stream_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("capture_unix_ns", BigInteger, nullable=False),
    Column("media_time_ns", BigInteger, nullable=False),
    Column("latency_ns", BigInteger, nullable=False),
    Column("in_time", Boolean, nullable=False),
    Column("width_px", Integer, nullable=False),
    Column("height_px", Integer, nullable=False),
    Column("model", String(63), nullable=False),
    Index("ix_frames_stream_cursor", "stream", "cursor"),
    Index("ix_frames_capture", "capture_unix_ns", "cursor"),
)

detections = Table(
    "detections",
    metadata,
    Column("cursor", _BigId, ForeignKey("frames.cursor", ondelete="CASCADE"), primary_key=True),
    Column("row", Integer, primary_key=True),
    Column("label", String(200), nullable=False),
    Column("class_id", Integer, nullable=False),
    Column("score", Float, nullable=False),
    Column("x1", Float, nullable=False),
    Column("y1", Float, nullable=False),
    Column("x2", Float, nullable=False),
    Column("y2", Float, nullable=False),
    Column("keypoints", LargeBinary),
    Column("embedding", LargeBinary),
)

purges = Table(
    "purges",
    metadata,
    Column("through_cursor", _BigId, primary_key=True, autoincrement=False),
    Column("frames", BigInteger, nullable=False),
)
