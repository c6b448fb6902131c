"""DetectionService: stored detections by page, new ones by watching.

A watcher costs no thread: its coroutine sleeps until the subscription wakes it, a heartbeat is due or the client is
gone, so a quiet stream's watcher ends as promptly as a busy one's. A reader that is slow holds back only its own
coroutine (HTTP/2 flow control); the subscription behind it is bounded and says what it lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from framepool.engine.api import checks, requests
from framepool.engine.api.edge import Context, Edge, time_left_s
from framepool.engine.api.errors import OverloadedError
from framepool.engine.api.wire_detections import frame_to_wire
from framepool.engine.api.wire_values import timestamp
from framepool.engine.control import Control, DetectionFilter, Positioned, Subscription, WatchItem
from framepool.engine.errors import EngineStoppedError
from framepool.proto import detections_pb2, detections_pb2_grpc

_ITEMS_AT_ONCE = 64


class DetectionService(detections_pb2_grpc.DetectionServiceServicer):
    """Lives on the server's event loop; `stopping` is set there when watchers are to go."""

    def __init__(self, control: Control, edge: Edge) -> None:
        self._control = control
        self._edge = edge
        self._wakes: set[asyncio.Event] = set()
        self._stopping = False

    @property
    def watchers(self) -> int:
        """Watchers now."""
        return len(self._wakes)

    def stop(self) -> None:
        """Ends every watcher with UNAVAILABLE. On the event loop."""
        self._stopping = True
        for wake in self._wakes:
            wake.set()

    async def QueryDetections(
        self, request: detections_pb2.QueryDetectionsRequest, context: Context
    ) -> detections_pb2.QueryDetectionsResponse:
        def work() -> detections_pb2.QueryDetectionsResponse:
            page = self._control.query_detections(
                requests.detection_filter(request.filter),
                checks.page_size(request.page_size),
                checks.page_token(request.page_token),
            )
            return detections_pb2.QueryDetectionsResponse(
                frames=[frame_to_wire(frame) for frame in page.frames], next_page_token=page.next_page_token
            )

        return await self._edge.look(context, work)

    async def WatchDetections(self, request: detections_pb2.WatchDetectionsRequest, context: Context) -> None:
        await self._edge.serve(context, self._watch(request, context))

    async def _watch(self, request: detections_pb2.WatchDetectionsRequest, context: Context) -> None:
        query = requests.detection_filter(request.filter)
        cursor = requests.resume_cursor(request)
        async with self._place() as wake, self._subscription(query, cursor, context) as subscription:
            subscription.set_wake(_waker(asyncio.get_running_loop(), wake))
            await context.write(_heartbeat(subscription))
            while True:
                wake.clear()
                items = subscription.take(_ITEMS_AT_ONCE)
                for item in items:
                    await context.write(_item_to_wire(item))
                if self._stopping or (subscription.closed and not items):
                    raise EngineStoppedError("the engine ended the watch; resume it from the last cursor")
                if not items and not await _woken(wake, self._edge.options.heartbeat_s):
                    await context.write(_heartbeat(subscription))

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[asyncio.Event]:
        """A watcher's place among those allowed."""
        limit = self._edge.options.max_watchers
        if self._stopping:
            raise EngineStoppedError("the engine is stopping; watch again when it is back")
        if len(self._wakes) >= limit:
            raise OverloadedError(f"{limit} watchers are connected, the most this server takes; try again later")
        wake = asyncio.Event()
        self._wakes.add(wake)
        try:
            yield wake
        finally:
            self._wakes.discard(wake)

    @asynccontextmanager
    async def _subscription(
        self, query: DetectionFilter, cursor: int | None, context: Context
    ) -> AsyncIterator[Subscription]:
        """A subscription that is closed whatever happens, also when the client leaves before it is there."""
        subscription = await self._edge.quick.run(
            lambda: self._control.watch_detections(query, cursor),
            timeout_s=time_left_s(context, self._edge.options.quick_timeout_s),
            unclaimed=lambda late: late.close(),
        )
        try:
            yield subscription
        finally:
            subscription.close()


def _waker(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> Callable[[], None]:
    def call() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake.set)

    return call


async def _woken(wake: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(wake.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


def _heartbeat(subscription: Subscription) -> detections_pb2.WatchDetectionsResponse:
    cursor = subscription.position if isinstance(subscription, Positioned) else 0
    return detections_pb2.WatchDetectionsResponse(
        heartbeat=detections_pb2.WatchDetectionsResponse.Heartbeat(cursor=cursor, time=timestamp(time.time_ns()))
    )


def _item_to_wire(item: WatchItem) -> detections_pb2.WatchDetectionsResponse:
    if item.frame is None:
        gap = detections_pb2.WatchDetectionsResponse.Gap(lost_frames=item.lost)
        return detections_pb2.WatchDetectionsResponse(gap=gap)
    return detections_pb2.WatchDetectionsResponse(frame=frame_to_wire(item.frame))
