"""Errors to gRPC status and back: the one table, read by the server to answer and by the client to raise.

A status carries google.rpc details: ErrorInfo (domain "framepool", the leaf's reason, its values as metadata) and,
where one request field is wrong, BadRequest naming it. An error that is not in the table is a fault of ours: the caller
gets INTERNAL and an incident id, the log gets the rest with credentials taken out.
"""

from __future__ import annotations

import json
import logging
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from framepool import FramepoolError
from framepool.engine import errors as engine_errors
from framepool.engine.api import errors as api_errors
from framepool.engine.api.redaction import redact_text
from framepool.engine.planning import errors as planning_errors
from framepool.engine.planning.plan import Demand
from framepool.models import errors as model_errors
from framepool.streams.errors import SourceError, SourceErrorCode

DOMAIN = "framepool"
LONGEST_MESSAGE = 2000
"""Characters of a message that are sent; details travel in HTTP/2 headers, which peers bound to 8 or 16 KiB."""

_log = logging.getLogger(__name__)

Metadata = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One kind of error: how it travels. `values` and `build` carry what it knows beside message and field."""

    kind: type[FramepoolError]
    code: grpc.StatusCode
    reason: str
    values: Callable[[Any], dict[str, str]] = lambda error: {}
    build: Callable[[str, str, Metadata], FramepoolError] | None = None

    def revive(self, message: str, field: str, metadata: Metadata) -> FramepoolError:
        """The error as the engine raised it."""
        if self.build is not None:
            return self.build(message, field, metadata)
        return self.kind(message, field=field)


def _capacity_values(error: engine_errors.CapacityError) -> dict[str, str]:
    known = {"best_slo_ms": error.best_slo_ms, "best_fps": error.best_fps}
    return {name: repr(value) for name, value in known.items() if value is not None}


def _capacity(message: str, field: str, metadata: Metadata) -> FramepoolError:
    return engine_errors.CapacityError(
        message, field=field, best_slo_ms=_number(metadata, "best_slo_ms"), best_fps=_number(metadata, "best_fps")
    )


def _infeasible_values(error: planning_errors.PlanInfeasibleError) -> dict[str, str]:
    rows = [[d.model, d.slo_ms, d.rate_fps, fastest] for d, fastest in list(error.fastest_slo_ms.items())[:20]]
    return {"fastest_slo_ms": json.dumps(rows)}


def _infeasible(message: str, field: str, metadata: Metadata) -> FramepoolError:
    rows = json.loads(metadata.get("fastest_slo_ms", "[]"))
    fastest = {Demand(model, slo_ms, rate_fps): best for model, slo_ms, rate_fps, best in rows}
    return planning_errors.PlanInfeasibleError(message, field=field, fastest_slo_ms=fastest)


def _incident_values(error: api_errors.InternalError) -> dict[str, str]:
    return {"incident": error.incident} if error.incident else {}


def _incident(message: str, field: str, metadata: Metadata) -> FramepoolError:
    return api_errors.InternalError(message, field=field, incident=metadata.get("incident", ""))


def _number(metadata: Metadata, name: str) -> float | None:
    text = metadata.get(name)
    return None if text is None else float(text)


def _source_leaves() -> tuple[Leaf, ...]:
    """One leaf per source error code: what can never be played is the request's fault, the rest may pass."""
    passing = {"refused", "timeout", "unreachable", "auth", "ended"}

    def leaf(code: SourceErrorCode) -> Leaf:
        status = grpc.StatusCode.FAILED_PRECONDITION if code.value in passing else grpc.StatusCode.INVALID_ARGUMENT

        def build(message: str, field: str, metadata: Metadata) -> FramepoolError:
            return SourceError(message, code=code, field=field)

        reason = "SOURCE_" + code.value.replace("-", "_").upper()
        return Leaf(SourceError, status, reason, lambda error: {"code": error.code.value}, build)

    return tuple(leaf(code) for code in SourceErrorCode)


_Code = grpc.StatusCode
LEAVES: tuple[Leaf, ...] = (
    Leaf(engine_errors.InvalidArgumentError, _Code.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    Leaf(engine_errors.ConfigError, _Code.INVALID_ARGUMENT, "CONFIG"),
    Leaf(engine_errors.NotFoundError, _Code.NOT_FOUND, "NOT_FOUND"),
    Leaf(engine_errors.AlreadyExistsError, _Code.ALREADY_EXISTS, "ALREADY_EXISTS"),
    Leaf(engine_errors.FailedPreconditionError, _Code.FAILED_PRECONDITION, "FAILED_PRECONDITION"),
    Leaf(engine_errors.CapacityError, _Code.RESOURCE_EXHAUSTED, "CAPACITY", _capacity_values, _capacity),
    Leaf(engine_errors.DeviceError, _Code.FAILED_PRECONDITION, "DEVICE"),
    Leaf(engine_errors.DeadlineError, _Code.DEADLINE_EXCEEDED, "DEADLINE"),
    Leaf(engine_errors.EngineStoppedError, _Code.UNAVAILABLE, "ENGINE_STOPPED"),
    Leaf(model_errors.ModelInvalidError, _Code.INVALID_ARGUMENT, "MODEL_INVALID"),
    Leaf(model_errors.ModelUnsupportedError, _Code.UNIMPLEMENTED, "MODEL_UNSUPPORTED"),
    Leaf(model_errors.ModelSpecError, _Code.INVALID_ARGUMENT, "MODEL_SPEC"),
    Leaf(model_errors.ModelNotFoundError, _Code.NOT_FOUND, "MODEL_NOT_FOUND"),
    Leaf(model_errors.ModelExistsError, _Code.ALREADY_EXISTS, "MODEL_EXISTS"),
    Leaf(model_errors.ExportError, _Code.FAILED_PRECONDITION, "MODEL_EXPORT"),
    Leaf(model_errors.ModelError, _Code.FAILED_PRECONDITION, "MODEL"),
    Leaf(
        planning_errors.PlanInfeasibleError,
        _Code.FAILED_PRECONDITION,
        "PLAN_INFEASIBLE",
        _infeasible_values,
        _infeasible,
    ),
    Leaf(planning_errors.PlacementError, _Code.FAILED_PRECONDITION, "PLACEMENT"),
    Leaf(planning_errors.PlanningError, _Code.FAILED_PRECONDITION, "PLANNING"),
    Leaf(api_errors.OverloadedError, _Code.RESOURCE_EXHAUSTED, "OVERLOADED"),
    Leaf(api_errors.UnauthenticatedError, _Code.UNAUTHENTICATED, "UNAUTHENTICATED"),
    Leaf(api_errors.UnreachableError, _Code.UNAVAILABLE, "UNREACHABLE"),
    Leaf(api_errors.InternalError, _Code.INTERNAL, "INTERNAL", _incident_values, _incident),
    *_source_leaves(),
)


def leaf_of(error: FramepoolError) -> Leaf | None:
    """The table's row for `error`: that of its source code or of the nearest class above it, else None."""
    if isinstance(error, SourceError):
        reason = "SOURCE_" + error.code.value.replace("-", "_").upper()
        return next(leaf for leaf in LEAVES if leaf.reason == reason)
    for kind in type(error).__mro__:
        for leaf in LEAVES:
            if leaf.kind is kind:
                return leaf
    return None


def to_status(error: BaseException) -> status_pb2.Status:
    """The status that answers a call which ended with `error`; logs what is not in the table."""
    leaf = leaf_of(error) if isinstance(error, FramepoolError) else None
    if leaf is None or not isinstance(error, FramepoolError):
        return to_status(_report_fault(error))
    message = _bounded(redact_text(str(error)))
    info = error_details_pb2.ErrorInfo(reason=leaf.reason, domain=DOMAIN, metadata=leaf.values(error))
    details: list[Any] = [info]
    if error.field:
        info.metadata["field"] = error.field[:200]
        if leaf.code is _Code.INVALID_ARGUMENT:
            violation = error_details_pb2.BadRequest.FieldViolation(field=error.field[:200], description=message[:500])
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    code: int = leaf.code.value[0]
    return status_pb2.Status(code=code, message=message, details=[_packed(detail) for detail in details])


def from_status(status: status_pb2.Status) -> FramepoolError | None:
    """The error a status of this server stands for, or None where it holds no ErrorInfo of ours."""
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if not detail.Is(info.DESCRIPTOR) or not detail.Unpack(info) or info.domain != DOMAIN:
            continue
        for leaf in LEAVES:
            if leaf.reason == info.reason:
                return leaf.revive(status.message, info.metadata.get("field", ""), dict(info.metadata))
    return None


def _report_fault(error: BaseException) -> api_errors.InternalError:
    incident = uuid.uuid4().hex[:12]
    trace = "".join(traceback.format_exception(error))
    _log.error("incident %s: a call ended with an unexpected error\n%s", incident, redact_text(trace))
    return api_errors.InternalError(
        f"the engine met an unexpected fault; its log tells more under incident {incident}", incident=incident
    )


def _bounded(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


def _packed(detail: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
