"""EngineService: devices, plan, stats, profiling and version."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator

from framepool import __version__
from framepool.engine.api import checks, requests
from framepool.engine.api.edge import Context, Edge, time_left_s
from framepool.engine.api.errors import OverloadedError
from framepool.engine.api.wire_engine import device_to_wire, progress_to_wire, stats_to_wire
from framepool.engine.api.wire_plan import plan_to_wire
from framepool.engine.control import Control, Progress
from framepool.engine.errors import DeadlineError
from framepool.proto import engine_pb2, engine_pb2_grpc

API_VERSION = "v1"


class EngineService(engine_pb2_grpc.EngineServiceServicer):
    def __init__(self, control: Control, edge: Edge) -> None:
        self._control = control
        self._edge = edge
        self._profiling = threading.Lock()

    async def ListDevices(
        self, request: engine_pb2.ListDevicesRequest, context: Context
    ) -> engine_pb2.ListDevicesResponse:
        def work() -> engine_pb2.ListDevicesResponse:
            devices = self._control.devices()
            return engine_pb2.ListDevicesResponse(devices=[device_to_wire(device) for device in devices])

        return await self._edge.look(context, work)

    async def GetPlan(self, request: engine_pb2.GetPlanRequest, context: Context) -> engine_pb2.PlacedPlan:
        return await self._edge.look(context, lambda: plan_to_wire(self._control.plan()))

    async def Replan(self, request: engine_pb2.ReplanRequest, context: Context) -> engine_pb2.PlacedPlan:
        return await self._edge.act(context, lambda: plan_to_wire(self._control.replan()))

    async def GetStats(self, request: engine_pb2.GetStatsRequest, context: Context) -> engine_pb2.EngineStats:
        window_s = requests.latency_window_s(request)
        return await self._edge.look(context, lambda: stats_to_wire(self._control.stats(window_s)))

    async def GetVersion(self, request: engine_pb2.GetVersionRequest, context: Context) -> engine_pb2.Version:
        return engine_pb2.Version(version=__version__, api_version=API_VERSION)

    async def Profile(self, request: engine_pb2.ProfileRequest, context: Context) -> None:
        """One profiling at a time: two would disturb each other. A client that leaves ends it at a step's end."""
        await self._edge.serve(context, self._profile(request, context))

    async def _profile(self, request: engine_pb2.ProfileRequest, context: Context) -> None:
        model = checks.model_name(request.model, "model")
        begin = functools.partial(self._control.profile, model, request.force)
        relay = _Relay(asyncio.get_running_loop(), begin, self._profiling)
        limit_s = time_left_s(context, self._edge.options.profile_timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                running = asyncio.ensure_future(self._edge.slow.run(relay.pump, timeout_s=limit_s))
                running.add_done_callback(lambda _: relay.finish())
                try:
                    while (progress := await relay.steps.get()) is not None:
                        await context.write(progress_to_wire(progress))
                    await running
                finally:
                    relay.stop()
                    running.cancel()
        except TimeoutError:
            raise DeadlineError(f"profiling took more than {limit_s:.3g} s; what is measured is kept") from None


class _Relay:
    """Carries progress from the thread that profiles to the event loop. Bounded: beyond 1000 steps the oldest go."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, begin: Callable[[], Iterator[Progress]], only_one: threading.Lock
    ) -> None:
        self.steps: asyncio.Queue[Progress | None] = asyncio.Queue()
        self._loop = loop
        self._begin = begin
        self._only_one = only_one
        self._stopped = False

    def pump(self) -> None:
        """Runs the profiling to its end, or to the step after `stop`. In a lane's thread."""
        if not self._only_one.acquire(blocking=False):
            raise OverloadedError("a model is being profiled; ask again when that is done")
        try:
            for progress in self._begin():
                if self._stopped or self._loop.is_closed():
                    break
                self._loop.call_soon_threadsafe(self._put, progress)
        finally:
            self._only_one.release()

    def _put(self, progress: Progress | None) -> None:
        while self.steps.qsize() >= 1000:
            self.steps.get_nowait()
        self.steps.put_nowait(progress)

    def finish(self) -> None:
        """No step follows. On the event loop."""
        self._put(None)

    def stop(self) -> None:
        self._stopped = True
