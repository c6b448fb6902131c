"""Bearer token: refuses calls that do not send the server's token. Health checks pass without one."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_status import rpc_status

from framepool.engine.api.errors import UnauthenticatedError
from framepool.engine.api.status import to_status

_OPEN = "/grpc.health.v1.Health/"


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """Compares in constant time; the token itself is in no message."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN) or self._admits(handler_call_details):
            return handler
        return _refusing(handler)

    def _admits(self, details: Any) -> bool:
        sent = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        given = sent[0] if len(sent) == 1 else ""
        raw = given if isinstance(given, bytes) else given.encode()
        return hmac.compare_digest(raw, self._expected)


def _refusing(handler: Any) -> Any:
    """A handler of the same kind that refuses."""
    error = UnauthenticatedError(
        "this server asks for a token; set FRAMEPOOL_TOKEN or send authorization: Bearer TOKEN"
    )

    async def refuse(request: Any, context: Any) -> Any:
        await context.abort_with_status(rpc_status.to_status(to_status(error)))

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[(handler.request_streaming, handler.response_streaming)]
    return make(
        refuse,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
