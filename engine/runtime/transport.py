"""ZeroMQ sockets as the runtime uses them: bounded, never blocking for ever, no lingering at exit."""

from __future__ import annotations

import zmq

HIGH_WATER_MARK = 4096
"""Messages queued per peer before sends fail. Messages are small (slots are named, not sent); in-flight batches are
bounded far below this by the scheduler."""


def router(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """The engine's one socket: hears every child, sends to any by its id. Unroutable sends raise."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    _bound(socket)
    socket.bind(endpoint)
    return socket


def dealer(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, identity: str, send_timeout_ms: int
) -> zmq.Socket[bytes]:
    """A child's socket to the engine."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity.encode())
    _bound(socket)
    socket.setsockopt(zmq.SNDTIMEO, send_timeout_ms)
    socket.connect(endpoint)
    return socket


def pull(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """A stage worker's door for orders from its peers."""
    socket = context.socket(zmq.PULL)
    _bound(socket)
    socket.bind(endpoint)
    return socket


def _bound(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.LINGER, 0)


class PeerSockets:
    """A worker's sockets to the workers after it, opened when first needed, replaced when a peer was restarted."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._open: dict[str, tuple[str, zmq.Socket[bytes]]] = {}

    def send(self, worker_id: str, endpoint: str, data: bytes) -> bool:
        """Sends without waiting; False when the peer's queue is full."""
        known = self._open.get(worker_id)
        if known is None or known[0] != endpoint:
            if known is not None:
                known[1].close(0)
            socket = self._context.socket(zmq.PUSH)
            _bound(socket)
            socket.connect(endpoint)
            self._open[worker_id] = known = (endpoint, socket)
        try:
            known[1].send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self, linger_ms: int) -> None:
        for _, socket in self._open.values():
            socket.close(linger_ms)
        self._open = {}
