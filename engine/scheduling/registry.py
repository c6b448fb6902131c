"""Policies by name. To add one: a file with a class of the interface in policy.py, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from framepool.engine.errors import ConfigError
from framepool.engine.scheduling.core import Scheduler
from framepool.engine.scheduling.framepool import FramepoolPolicy
from framepool.engine.scheduling.options import SchedulerOptions
from framepool.engine.scheduling.policy import Policy
from framepool.engine.scheduling.ppipe import PPipePolicy
from framepool.engine.scheduling.reactive import ReactivePolicy
from framepool.engine.scheduling.state import SchedulerState

POLICIES: MappingProxyType[str, Callable[[SchedulerState], Policy]] = MappingProxyType(
    {
        "framepool": FramepoolPolicy,
        "ppipe": PPipePolicy,
        "reactive": ReactivePolicy,
    }
)


def make_scheduler(policy: str, options: SchedulerOptions | None = None) -> Scheduler:
    """A fresh scheduler with that policy. Raises ConfigError for an unknown name."""
    factory = POLICIES.get(policy)
    if factory is None:
        known = ", ".join(sorted(POLICIES))
        raise ConfigError(f"scheduler.policy is {policy!r}; it must be one of: {known}", field="scheduler.policy")
    return Scheduler(factory, options or SchedulerOptions())
