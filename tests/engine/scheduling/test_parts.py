"""Waiting queue, workers, options and registry, each by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.errors import ConfigError
from framepool.engine.scheduling.events import Frame
from framepool.engine.scheduling.ledger import Entry
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.registry import make_scheduler
from framepool.engine.scheduling.reservation import Reservations
from framepool.engine.scheduling.routes import Route, latency_table_ns
from framepool.engine.scheduling.waiting import WaitingCounts, WaitingQueue
from framepool.engine.scheduling.workers import Worker
from framepool.engine.simulation.handmade import StageSketch, pipeline


def entry(frame_id: int, deadline_ns: int, stream: int = 0) -> Entry:
    return Entry(Frame(frame_id, stream, "m", 0, deadline_ns))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.booleans()), max_size=40))
def test_a_waiting_queue_is_ordered_and_counts_its_streams(steps):
    queue = WaitingQueue(WaitingCounts())
    members: list[Entry] = []
    for frame_id, (deadline, stream, leave) in enumerate(steps):
        if leave and members:
            queue.remove(members.pop(deadline % len(members)))
        else:
            members.append(entry(frame_id, deadline, stream))
            queue.add(members[-1])
        expected = sorted(members, key=lambda member: (member.deadline_ns, member.id))
        assert [item[2] for item in queue.items] == expected
        assert [queue.rank(member) for member in expected] == list(range(len(expected)))
        assert queue.counts.total == len(members)
        assert sum(queue.counts.by_stream.values()) == len(members)
        assert all(queue.counts.by_stream.values())


def test_take_cuts_a_batch_out_of_the_middle():
    queue = WaitingQueue(WaitingCounts())
    members = [entry(number, number * 10) for number in range(5)]
    for member in members:
        queue.add(member)
    assert queue.take(1, 3) == members[1:4]
    assert queue.first_from(11) == 1
    assert [member.queue is queue for member in members] == [True, False, False, False, True]


class TestWorker:
    def test_bookings_form_a_chain(self):
        worker = Worker("w")
        worker.book(1, 0, 0, 10)
        worker.book(2, 25, 25, 10)
        assert worker.busy_ns == 35
        worker.release(1, 30)  # late by 20
        assert worker.busy_ns == 40
        worker.delay(2, 50)
        assert worker.busy_ns == 60
        worker.cancel(2)
        assert worker.busy_ns == 30

    def test_as_predicted_moves_nothing(self):
        worker = Worker("w")
        worker.book(1, 0, 0, 10)
        worker.book(2, 0, 10, 10)
        worker.release(1, 10)
        assert worker.busy_ns == 20

    def test_unknown_batches_are_ignored(self):
        worker = Worker("w")
        assert worker.release(5, 100) is None
        worker.cancel(5)
        worker.delay(5, 7)
        assert worker.busy_ns == 0


class TestProbe:
    def route(self, workers: int, batch: int) -> Route:
        route = Route(pipeline("p", "m", [StageSketch(workers, 1.0)], batch=batch), WaitingCounts())
        for number in range(workers):
            worker = Worker(str(number))
            route.pools[0].enlist(worker)
            worker.come_up(0)
        return route

    @given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=6), st.integers(0, 6_000_000))
    def test_picks_the_earliest_start(self, busy_ns, now_ns):
        route = self.route(len(busy_ns), 1)
        for number, (worker, until_ns) in enumerate(zip(route.pools[0].workers, busy_ns, strict=True)):
            worker.book(number, 0, 0, until_ns)
            if until_ns <= now_ns:
                worker.release(number, until_ns)
        assert Reservations().probe(route, 1, now_ns) == max(min(busy_ns), now_ns) + 1_000_000

    @given(st.integers(0, 12_000_000))
    def test_largest_in_time_is_the_largest(self, by_ns):
        route = self.route(1, 8)
        assert Reservations().largest_in_time(route, 8, by_ns, 0) == min(8, by_ns // 1_000_000)


def test_a_bigger_batch_never_counts_as_quicker():
    noisy = pipeline("p", "m", [StageSketch(1, 1.0)], batch=4).stages[0]
    dipped = type(noisy)(0, 0, 1, "a", 1, 1, (1000.0, 900.0, 1500.0), 1, 1)
    assert latency_table_ns(dipped, 4) == [0, 1_000_000, 1_000_000, 1_500_000, 2_000_000]


@pytest.mark.parametrize(
    "changes",
    [
        {"publish_reserve_ns": -1},
        {"commit_ahead_ns": -1},
        {"full_batch_fraction": 0.0},
        {"service_learning": 1.5},
        {"max_attempts": 0},
    ],
)
def test_options_out_of_range_name_the_setting(changes):
    (name,) = changes
    with pytest.raises(ConfigError, match=name) as caught:
        SchedulerOptions(**changes)
    assert caught.value.field == f"scheduler.{name}"


def test_an_unknown_policy_names_those_there_are():
    with pytest.raises(ConfigError, match="ppipe, reactive"):
        make_scheduler("fastest")
