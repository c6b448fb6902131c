"""Errors of the engine, one leaf for each thing a caller can do about it.

Where along a frame's way each belongs: registration (InvalidArgument, NotFound, AlreadyExists, CapacityError),
planning (PlanInfeasibleError inside CapacityError's cause), devices (DeviceError), the engine itself
(EngineStoppedError). A frame that is dropped is not an error; it is counted with its reason.
"""

from framepool import FramepoolError


class ConfigError(FramepoolError):
    """The configuration is wrong; `field` is the dotted path of the setting."""


class InvalidArgumentError(FramepoolError):
    """A request field has a value that can never be right; `field` names it."""


class NotFoundError(FramepoolError):
    """The named stream, model or detection page does not exist."""


class AlreadyExistsError(FramepoolError):
    """The name is taken."""


class FailedPreconditionError(FramepoolError):
    """The request is right but not now: e.g. a model that streams still use can't be removed."""


class CapacityError(FramepoolError):
    """The stream's SLO or fps can't be met beside what runs. `best_slo_ms`/`best_fps` say what would fit (or None)."""

    def __init__(
        self, message: str, *, field: str = "", best_slo_ms: float | None = None, best_fps: float | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.best_slo_ms = best_slo_ms
        self.best_fps = best_fps


class DeviceError(FramepoolError):
    """A device or its provider did not load; the message holds the cause. Never replaced by a slower device."""


class DeadlineError(FramepoolError):
    """The engine did not answer in time; the request may still take effect."""


class EngineStoppedError(FramepoolError):
    """The engine is stopping; ask again when it is back."""
