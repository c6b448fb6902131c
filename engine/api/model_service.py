"""ModelService: adding, showing and removing models."""

from __future__ import annotations

from collections.abc import AsyncIterator

from google.protobuf import empty_pb2

from framepool.engine.api import checks
from framepool.engine.api.edge import Context, Edge, time_left_s
from framepool.engine.api.model_upload import Uploads
from framepool.engine.api.paging import page_of
from framepool.engine.api.wire_models import cut_to_wire, model_to_wire
from framepool.engine.control import Control
from framepool.proto import models_pb2, models_pb2_grpc


class ModelService(models_pb2_grpc.ModelServiceServicer):
    def __init__(self, control: Control, edge: Edge) -> None:
        self._control = control
        self._edge = edge
        self._uploads = Uploads(edge.options)

    async def AddModel(
        self, request_iterator: AsyncIterator[models_pb2.AddModelRequest], context: Context
    ) -> models_pb2.Model:
        return await self._edge.serve(context, self._add(request_iterator, context))

    async def _add(self, messages: AsyncIterator[models_pb2.AddModelRequest], context: Context) -> models_pb2.Model:
        limit_s = self._edge.options.slow_timeout_s
        with self._uploads.place():
            upload = await self._uploads.receive(messages, time_left_s(context, limit_s))
            return await self._edge.slow.run(
                lambda: model_to_wire(self._control.add_model(upload)), timeout_s=time_left_s(context, limit_s)
            )

    async def GetModel(self, request: models_pb2.GetModelRequest, context: Context) -> models_pb2.Model:
        def work() -> models_pb2.Model:
            return model_to_wire(self._control.get_model(checks.model_name(request.name, "name")))

        return await self._edge.look(context, work)

    async def ListModels(
        self, request: models_pb2.ListModelsRequest, context: Context
    ) -> models_pb2.ListModelsResponse:
        def work() -> models_pb2.ListModelsResponse:
            page = page_of(
                self._control.list_models(),
                lambda info: info.name,
                collection="models",
                page_size=request.page_size,
                page_token=request.page_token,
            )
            return models_pb2.ListModelsResponse(
                models=[model_to_wire(info) for info in page.items], next_page_token=page.next_token
            )

        return await self._edge.look(context, work)

    async def ListCuts(self, request: models_pb2.ListCutsRequest, context: Context) -> models_pb2.ListCutsResponse:
        def work() -> models_pb2.ListCutsResponse:
            cuts = self._control.model_cuts(checks.model_name(request.name, "name"))
            return models_pb2.ListCutsResponse(cuts=[cut_to_wire(cut) for cut in cuts])

        return await self._edge.look(context, work)

    async def RemoveModel(self, request: models_pb2.RemoveModelRequest, context: Context) -> empty_pb2.Empty:
        def work() -> empty_pb2.Empty:
            self._control.remove_model(checks.model_name(request.name, "name"))
            return empty_pb2.Empty()

        return await self._edge.act(context, work)
