"""Streams over decoder processes: even, bounded, and steady."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.config import DecodersSection
from framepool.engine.decoders import Decoders
from framepool.engine.runtime.decoder_process import DecoderConfig
from framepool.engine.runtime.fleet import ChildSpec


class FakeFleet:
    def __init__(self) -> None:
        self.specs: list[ChildSpec] = []

    def ensure(self, specs: Iterable[ChildSpec]) -> list[Future[None]]:
        self.specs.extend(specs)
        return []


def decoders(most: int, per_process: int) -> tuple[Decoders, FakeFleet]:
    fleet: Any = FakeFleet()
    made = Decoders(fleet, "/run/engine", DecodersSection(max_processes=most, streams_per_process=per_process))
    made.start()
    return made, fleet


def test_a_second_process_starts_when_the_first_is_full() -> None:
    made, fleet = decoders(most=2, per_process=2)
    assert [made.assign(stream) for stream in range(6)] == [
        "decoder-0", "decoder-0", "decoder-1", "decoder-1", "decoder-0", "decoder-1",
    ]  # fmt: skip
    assert [spec.id for spec in fleet.specs] == ["decoder-0", "decoder-1"]


def test_a_stream_that_starts_anew_keeps_its_process_and_a_freed_place_is_used() -> None:
    made, fleet = decoders(most=2, per_process=1)
    assert (made.assign(1), made.assign(2)) == ("decoder-0", "decoder-1")
    assert made.assign(1) == "decoder-0"
    made.release(2)
    made.release(2)
    assert made.assign(3) == "decoder-1"
    assert len(fleet.specs) == 2


def test_a_process_is_told_where_its_engine_is() -> None:
    _, fleet = decoders(most=1, per_process=1)
    config = msgspec.msgpack.decode(fleet.specs[0].make_config("decoder-0.3"), type=DecoderConfig)
    assert (config.child_id, config.engine_endpoint) == ("decoder-0.3", "/run/engine")
    assert config.title.startswith("framepool: decoder")


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60), st.integers(1, 3), st.integers(1, 3))
def test_processes_stay_within_the_bound_and_even(steps: list[tuple[int, bool]], most: int, per_process: int) -> None:
    made, fleet = decoders(most, per_process)
    placed: dict[int, str] = {}
    for stream, comes in steps:
        if comes:
            known = placed.get(stream)
            place = placed[stream] = made.assign(stream)
            assert known in (None, place)
            others = Counter(p for s, p in placed.items() if s != stream)
            if known is None:
                assert others[place] == min(others[spec.id] for spec in fleet.specs)
        else:
            made.release(stream)
            placed.pop(stream, None)
    assert 1 <= len(fleet.specs) <= most
