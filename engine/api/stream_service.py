"""StreamService: registering streams and telling how they fare."""

from __future__ import annotations

from google.protobuf import empty_pb2

from framepool.engine.api import checks, requests
from framepool.engine.api.edge import Context, Edge
from framepool.engine.api.paging import page_of
from framepool.engine.api.wire_streams import stream_to_wire
from framepool.engine.control import Control
from framepool.proto import streams_pb2, streams_pb2_grpc


class StreamService(streams_pb2_grpc.StreamServiceServicer):
    def __init__(self, control: Control, edge: Edge) -> None:
        self._control = control
        self._edge = edge

    async def RegisterStream(self, request: streams_pb2.RegisterStreamRequest, context: Context) -> streams_pb2.Stream:
        def work() -> streams_pb2.Stream:
            return stream_to_wire(self._control.register_stream(requests.registration(request)))

        return await self._edge.act(context, work)

    async def GetStream(self, request: streams_pb2.GetStreamRequest, context: Context) -> streams_pb2.Stream:
        def work() -> streams_pb2.Stream:
            return stream_to_wire(self._control.get_stream(checks.stream_name(request.name, "name")))

        return await self._edge.look(context, work)

    async def ListStreams(
        self, request: streams_pb2.ListStreamsRequest, context: Context
    ) -> streams_pb2.ListStreamsResponse:
        def work() -> streams_pb2.ListStreamsResponse:
            page = page_of(
                self._control.list_streams(),
                lambda info: info.config.name,
                collection="streams",
                page_size=request.page_size,
                page_token=request.page_token,
            )
            return streams_pb2.ListStreamsResponse(
                streams=[stream_to_wire(info) for info in page.items], next_page_token=page.next_token
            )

        return await self._edge.look(context, work)

    async def UpdateStream(self, request: streams_pb2.UpdateStreamRequest, context: Context) -> streams_pb2.Stream:
        def work() -> streams_pb2.Stream:
            update = requests.update(request)
            return stream_to_wire(self._control.update_stream(update.name, update.changes))

        return await self._edge.act(context, work)

    async def DeleteStream(self, request: streams_pb2.DeleteStreamRequest, context: Context) -> empty_pb2.Empty:
        def work() -> empty_pb2.Empty:
            self._control.delete_stream(checks.stream_name(request.name, "name"))
            return empty_pb2.Empty()

        return await self._edge.act(context, work)
