"""Nodes over real sockets: order, names, what is gone, what is not read, many threads at once."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from framepool.engine.runtime.transport import LENGTH, MOST_MESSAGE_BYTES, MOST_UNSENT_BYTES, Node, Received


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Node]:
    node = Node("hub", str(tmp_path / "hub"))
    yield node
    node.close()


def dialled(hub: Node, tmp_path: Path, name: str) -> Node:
    node = Node(name)
    assert node.dial("hub", str(tmp_path / "hub"))
    until_s = time.monotonic() + 5
    while not hub.knows(name) and time.monotonic() < until_s:
        assert hub.wait(0.05) == []
    assert hub.knows(name)
    return node


def heard(node: Node, count: int, timeout_s: float = 5.0) -> Received:
    found: Received = []
    until_s = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < until_s:
        found += node.wait(0.05)
    return found


def test_messages_arrive_whole_and_in_order_both_ways(hub: Node, tmp_path: Path) -> None:
    node = dialled(hub, tmp_path, "a")
    sent = [b"", b"x", bytes(100_000), *(str(i).encode() for i in range(500))]
    for message in sent:
        assert node.send("hub", message)
    node.wait(0)
    found = heard(hub, 3)
    while len(found) < len(sent):  # the big one needs its sender to go on sending
        node.wait(0.01)
        found += hub.wait(0.05)
    assert found == [("a", message) for message in sent]
    assert hub.send("a", b"answer")
    assert heard(node, 1) == [("hub", b"answer")]
    node.close()


def test_one_message_of_many_megabytes(hub: Node, tmp_path: Path) -> None:
    node = dialled(hub, tmp_path, "a")
    big = bytes(range(256)) * (3 << 12)
    assert node.send("hub", big)
    found: Received = []
    until_s = time.monotonic() + 10
    while not found and time.monotonic() < until_s:
        node.wait(0.01)
        found = hub.wait(0.01)
    assert found == [("a", big)]
    node.close()


def test_unknown_gone_and_absent_peers_are_told_by_false(hub: Node, tmp_path: Path) -> None:
    assert not hub.send("nobody", b"x")
    node = dialled(hub, tmp_path, "a")
    node.close()
    hub.wait(0.5)
    assert not hub.send("a", b"x")
    lonely = Node("b")
    assert not lonely.dial("hub", str(tmp_path / "no-such-node"))
    assert not lonely.send("hub", b"x")
    lonely.close()


def test_a_peer_that_does_not_read_fills_its_bound_and_no_more(hub: Node, tmp_path: Path) -> None:
    node = dialled(hub, tmp_path, "a")
    message = bytes(64 << 10)
    taken = 0
    began_s = time.monotonic()
    while hub.send("a", message):
        taken += 1
        assert taken < 1000
    assert time.monotonic() - began_s < 5
    assert MOST_UNSENT_BYTES // len(message) - 1 <= taken <= MOST_UNSENT_BYTES // len(message) + 16
    found = 0
    until_s = time.monotonic() + 10
    while found < taken and time.monotonic() < until_s:  # what was taken arrives when it is read
        found += len(node.wait(0.01))
        hub.wait(0)
    assert found == taken
    assert hub.send("a", b"again")
    node.close()


def test_a_restarted_process_takes_the_place_of_the_one_before(hub: Node, tmp_path: Path) -> None:
    first = dialled(hub, tmp_path, "a")
    second = Node("a")
    assert second.dial("hub", str(tmp_path / "hub"))
    assert second.send("hub", b"new")
    assert heard(hub, 1) == [("a", b"new")]
    assert hub.send("a", b"for the new one")
    assert heard(second, 1) == [("hub", b"for the new one")]
    assert first.wait(0.1) == []
    assert not first.knows("hub")
    first.close()
    second.close()


def test_threads_send_at_once_and_a_ring_ends_the_wait(hub: Node, tmp_path: Path) -> None:
    node = dialled(hub, tmp_path, "a")

    def send(thread: int) -> None:
        for number in range(300):
            assert node.send("hub", f"{thread} {number}".encode())

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    found: Received = []
    until_s = time.monotonic() + 10
    while len(found) < 1200 and time.monotonic() < until_s:
        node.wait(0)  # its owner sends on what found no room at once
        found += hub.wait(0.01)
    for thread in threads:
        thread.join(5)
    for thread in range(4):
        mine = [text for _, text in found if text.startswith(b"%d " % thread)]
        assert mine == [f"{thread} {number}".encode() for number in range(300)]
    timer = threading.Timer(0.05, hub.ring)
    timer.start()
    began_s = time.monotonic()
    assert hub.wait(30) == []
    assert time.monotonic() - began_s < 10
    timer.join()
    node.close()


def test_who_announces_too_much_is_hung_up_on(hub: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "hub"))
        stranger.sendall(LENGTH.pack(MOST_MESSAGE_BYTES + 1) + b"x")
        stranger.settimeout(5)
        hub.wait(0.5)
        assert hub.wait(0.5) == []
        with contextlib.suppress(ConnectionResetError):  # as unread bytes are left behind
            assert stranger.recv(1) == b""


def test_a_path_that_is_too_long_is_an_error() -> None:
    with pytest.raises(OSError, match="too long"):
        Node("hub", "/tmp/" + "x" * 200)
