"""The edge: how every call of every service is run, timed and answered. Knows nothing of what the calls say."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from grpc_status import rpc_status

from framepool.engine.api.lanes import Lane
from framepool.engine.api.options import ApiOptions
from framepool.engine.api.status import to_status

Answer = TypeVar("Answer")
Context = Any
"""A grpc.aio.ServicerContext; its stubs leave most of it untyped."""


class Edge:
    """Owned by `ApiServer`, shared by its services; used on the server's event loop only."""

    def __init__(self, options: ApiOptions) -> None:
        self.options = options
        factor = options.queue_factor
        self.quick = Lane("quick", threads=options.quick_calls, waiting=factor * options.quick_calls)
        self.slow = Lane("slow", threads=options.slow_calls, waiting=factor * options.slow_calls)

    async def look(self, context: Context, work: Callable[[], Answer]) -> Answer:
        """Answers with what `work` returns: a call that only looks or is otherwise quick."""
        timeout_s = time_left_s(context, self.options.quick_timeout_s)
        return await self.serve(context, self.quick.run(work, timeout_s=timeout_s))

    async def act(self, context: Context, work: Callable[[], Answer]) -> Answer:
        """Answers with what `work` returns: a call that probes, plans or waits for hardware."""
        timeout_s = time_left_s(context, self.options.slow_timeout_s)
        return await self.serve(context, self.slow.run(work, timeout_s=timeout_s))

    async def serve(self, context: Context, answer: Coroutine[Any, Any, Answer]) -> Answer:
        """What `answer` comes to; whatever it raises becomes the call's status. A client that leaves cancels it."""
        try:
            return await answer
        except Exception as error:  # the edge: every fault becomes a status here, none escapes
            await context.abort_with_status(rpc_status.to_status(to_status(error)))
            raise

    def close(self) -> None:
        self.quick.close()
        self.slow.close()


def time_left_s(context: Context, limit_s: float) -> float:
    """Seconds the call may still take: what the client allows, at most `limit_s`."""
    left_s = context.time_remaining()
    return limit_s if left_s is None else max(0.0, min(limit_s, left_s))
