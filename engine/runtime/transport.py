"""Messages between the processes of one engine, over Unix stream sockets: framed, bounded, never blocking for ever.

A *node* is one process's end: it listens, dials, or both, and knows its peers by the names they gave. Wire format: each
message is its length (uint32, little-endian) and its bytes; a connection's first message is the name of who dialled.

What can't be sent at once waits in a buffer of the node, bounded; `send` never waits. A peer that is gone, or does not
read until that buffer is full, is told by False. A message is delivered once, in the order it was sent to that peer, or
not at all if either process ends.

Why no messaging library: its I/O threads double the wake-ups a message costs, and a wake-up on a shared machine costs
more than all else a message needs (docs/decisions).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

LENGTH = struct.Struct("<I")
MOST_MESSAGE_BYTES = 16 << 20
"""A peer that announces more speaks another language: its connection is closed."""
MOST_UNSENT_BYTES = 4 << 20
"""Kept per peer before sends fail. Messages are small (slots are named, not sent); in-flight batches are bounded far
below this by the scheduler."""
READ_BYTES = 256 << 10
BACKLOG = 256

Received = list[tuple[str, bytes]]
"""(name of the peer, message), in the order of each peer."""


@dataclass(slots=True, eq=False)
class _Peer:
    """One connection. `name` is "" until it was told; `rest` holds the beginning of a message, `unsent` what waits."""

    socket: socket.socket
    name: str
    rest: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)


class Node:
    """See the module docstring. `wait`, `dial` and `close` belong to one thread; `send` and `ring` to any."""

    def __init__(self, name: str, path: str = "") -> None:
        """Listens at `path` (none: only dials). Raises OSError where the path is taken or too long."""
        self.name = name
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Peer] = {}
        self._peers: dict[str, _Peer] = {}
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._epoll.register(self._bell.fileno(), select.EPOLLIN)
        self._listener: socket.socket | None = None
        if path:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.setblocking(False)
            try:
                Path(path).unlink(missing_ok=True)
                self._listener.bind(path)
                self._listener.listen(BACKLOG)
            except OSError:
                self.close()
                raise
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    # Any thread

    def ring(self) -> None:
        """Makes `wait` return. Raises OSError when the node is closed."""
        with contextlib.suppress(BlockingIOError):  # it rings already
            self._ringer.send(b"!")

    def send(self, peer_name: str, message: bytes) -> bool:
        """Sends without waiting; False where the peer is unknown, gone, or has not read for so long that no more is
        kept for it."""
        framed = LENGTH.pack(len(message)) + message
        with self._lock:
            peer = self._peers.get(peer_name)
            if peer is None:
                return False
            if peer.unsent:
                if len(peer.unsent) + len(framed) > MOST_UNSENT_BYTES:
                    return False
                peer.unsent += framed
                return True
            try:
                sent = peer.socket.send(framed)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._forget(peer)
                return False
            if sent < len(framed):
                peer.unsent += memoryview(framed)[sent:]
                self._epoll.modify(peer.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
            return True

    # The owner's thread

    def dial(self, peer_name: str, path: str) -> bool:
        """Connects to the node that listens at `path`, known as `peer_name` from now on; False where none does."""
        dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        dialled.setblocking(False)
        try:
            dialled.connect(path)
        except OSError:
            dialled.close()
            return False
        with self._lock:
            self._add(_Peer(dialled, ""), peer_name)
        return self.send(peer_name, self.name.encode())

    def knows(self, peer_name: str) -> bool:
        """Whether there is a connection to it."""
        return peer_name in self._peers

    def hang_up(self, peer_name: str) -> None:
        """Closes the connection to a peer, if there is one."""
        with self._lock:
            peer = self._peers.get(peer_name)
            if peer is not None:
                self._forget(peer)

    def wait(self, timeout_s: float) -> Received:
        """What has come, after waiting for it up to `timeout_s` (rounded up to milliseconds by the system)."""
        received: Received = []
        for fd, events in self._epoll.poll(timeout_s):
            peer = self._by_fd.get(fd)
            if peer is None:
                self._silence() if fd == self._bell.fileno() else self._accept(fd)
                continue
            if events & select.EPOLLOUT:
                self._send_on(peer)
            if events & ~select.EPOLLOUT:
                self._read(peer, received)
        return received

    def close(self, linger_s: float = 0.0) -> None:
        """Closes everything; what waits to be sent is tried for `linger_s`."""
        until_s = time.monotonic() + linger_s
        while any(peer.unsent for peer in self._by_fd.values()) and time.monotonic() < until_s:
            self.wait(0.02)
        with self._lock:
            for peer in list(self._by_fd.values()):
                self._forget(peer)
        if self._listener is not None:
            if path := self._listener.getsockname():
                Path(path).unlink(missing_ok=True)
            self._listener.close()
        self._epoll.close()
        self._bell.close()
        self._ringer.close()

    # Connections

    def _silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass

    def _accept(self, fd: int) -> None:
        if self._listener is None or fd != self._listener.fileno():
            return  # closed since
        try:
            accepted, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it stays in the backlog; do not spin on it
                time.sleep(0.01)
            return
        accepted.setblocking(False)
        with self._lock:
            self._add(_Peer(accepted, ""), "")

    def _add(self, peer: _Peer, name: str) -> None:
        self._by_fd[peer.socket.fileno()] = peer
        self._epoll.register(peer.socket.fileno(), select.EPOLLIN)
        if name:
            self._name(peer, name)

    def _name(self, peer: _Peer, name: str) -> None:
        """A name belongs to whoever gave it last: a restarted process takes the place of the one before."""
        before = self._peers.get(name)
        if before is not None:
            self._forget(before)
        peer.name = name
        self._peers[name] = peer

    def _forget(self, peer: _Peer) -> None:
        if self._by_fd.pop(peer.socket.fileno(), None) is None:
            return
        if self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
        peer.socket.close()  # which takes it out of the epoll set too

    def _send_on(self, peer: _Peer) -> None:
        with self._lock:
            if not peer.unsent or peer.socket.fileno() < 0:
                return
            try:
                sent = peer.socket.send(peer.unsent)
            except BlockingIOError:
                return
            except OSError:
                self._forget(peer)
                return
            del peer.unsent[:sent]
            if not peer.unsent:
                self._epoll.modify(peer.socket.fileno(), select.EPOLLIN)

    def _read(self, peer: _Peer, received: Received) -> None:
        if peer.socket.fileno() < 0:
            return
        try:
            data = peer.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            with self._lock:
                self._forget(peer)
            return
        if peer.rest:
            data = peer.rest + data
        at, end = 0, len(data)
        while end - at >= LENGTH.size:
            size = LENGTH.unpack_from(data, at)[0]
            if size > MOST_MESSAGE_BYTES:
                with self._lock:
                    self._forget(peer)
                return
            stop = at + LENGTH.size + size
            if stop > end:
                break
            message = data[at + LENGTH.size : stop]
            at = stop
            if peer.name:
                received.append((peer.name, message))
            else:
                with self._lock:
                    self._name(peer, message.decode(errors="replace"))
        peer.rest = data[at:]
