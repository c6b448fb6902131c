"""How much of a pipeline's capacity can be used when frames arrive by chance and must not wait long. Pure.

Theory. Seen from a model's queue its pipelines are c servers that each take a time D for a frame, and a frame may wait
for a time W: what its SLO leaves beside the pipeline's own latency. With memoryless arrivals and 1 % of frames lost
that is the queue M/D/c with impatience, whose greatest utilisation depends on c and W / D alone. Servers of all
pipelines of the model are pooled, as its frames take whichever is free, so c is the model's rate times D (Little).
Burstier arrivals act like fewer servers: in the diffusion limit a queue's decay goes with c / (variance of the gaps),
so c is divided by it. A plan made with capacities cut down so needs no margin: each template pays for the little slack
it has.

The table was simulated, 60,000 arrivals a cell, first come first served, waits above W lost; a test repeats some cells.
The rule is a guess at what two-stage pipelines do; `engine.simulation.tuning` corrects it, model by model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from framepool.engine.planning.templates import TemplateSet

FloatArray = NDArray[np.float64]

SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
WAITS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""In units of the service time."""
UTILISATION = np.minimum(
    1.0,
    [
        [0.009, 0.009, 0.009, 0.011, 0.015, 0.019, 0.036, 0.148, 0.243, 0.364, 0.531, 0.71, 0.873],
        [0.076, 0.08, 0.085, 0.095, 0.119, 0.152, 0.264, 0.403, 0.549, 0.647, 0.771, 0.875, 0.951],
        [0.15, 0.158, 0.168, 0.188, 0.231, 0.292, 0.456, 0.564, 0.696, 0.774, 0.859, 0.928, 0.977],
        [0.215, 0.227, 0.241, 0.27, 0.331, 0.419, 0.574, 0.666, 0.778, 0.839, 0.902, 0.951, 0.988],
        [0.317, 0.335, 0.352, 0.396, 0.482, 0.586, 0.714, 0.786, 0.865, 0.904, 0.945, 0.977, 0.996],
        [0.39, 0.411, 0.433, 0.486, 0.584, 0.684, 0.792, 0.847, 0.906, 0.935, 0.965, 0.988, 1.0],
        [0.486, 0.511, 0.539, 0.602, 0.714, 0.798, 0.871, 0.91, 0.947, 0.967, 0.984, 0.996, 1.002],
        [0.551, 0.58, 0.612, 0.684, 0.79, 0.855, 0.91, 0.939, 0.967, 0.981, 0.992, 1.0, 1.004],
        [0.633, 0.666, 0.702, 0.78, 0.869, 0.914, 0.949, 0.967, 0.986, 0.992, 1.0, 1.002, 1.006],
        [0.68, 0.716, 0.755, 0.835, 0.908, 0.941, 0.967, 0.983, 0.992, 0.998, 1.002, 1.004, 1.008],
        [0.743, 0.78, 0.822, 0.894, 0.947, 0.969, 0.986, 0.992, 1.0, 1.002, 1.004, 1.006, 1.008],
        [0.784, 0.825, 0.865, 0.928, 0.965, 0.983, 0.992, 0.998, 1.002, 1.004, 1.006, 1.008, 1.008],
        [0.825, 0.869, 0.91, 0.959, 0.984, 0.994, 1.0, 1.002, 1.004, 1.006, 1.008, 1.008, 1.008],
        [0.855, 0.898, 0.935, 0.975, 0.992, 0.998, 1.002, 1.004, 1.006, 1.008, 1.008, 1.008, 1.008],
        [0.906, 0.951, 0.979, 0.996, 1.002, 1.004, 1.006, 1.008, 1.008, 1.008, 1.008, 1.008, 1.008],
    ],
)  # fmt: skip
"""float64 [SERVERS, WAITS]: offered load per server at which 1 % is lost, at most 1."""

OUT_OF_TIME = 1e-3
"""Share of its use that is left to a template that needs the reserve itself: next to none, but the SLO may be met."""


def utilisation(servers: FloatArray, waits: FloatArray) -> FloatArray:
    """Greatest utilisation by servers c >= 1 and waits W / D >= 0, interpolated (logarithmic in c).

    Beyond the table what can't be used shrinks with the square root of c, as where nobody may wait (Erlang).
    """
    rows = np.interp(np.log(np.maximum(servers, 1.0)), np.log(SERVERS), np.arange(len(SERVERS)))
    columns = np.interp(waits, WAITS, np.arange(len(WAITS)))
    i = np.minimum(rows.astype(np.int64), len(SERVERS) - 2)
    j = np.minimum(columns.astype(np.int64), len(WAITS) - 2)
    down, right = rows - i, columns - j
    low = UTILISATION[i, j] * (1 - right) + UTILISATION[i, j + 1] * right
    high = UTILISATION[i + 1, j] * (1 - right) + UTILISATION[i + 1, j + 1] * right
    unused = 1 - (low * (1 - down) + high * down)
    shares: FloatArray = 1 - unused * np.sqrt(SERVERS[-1] / np.maximum(servers, SERVERS[-1]))
    return shares


@dataclass(frozen=True, slots=True)
class Queueing:
    """What arrives, for plans that count only the capacity that can be used.

    `rate_fps`: by model, the rate at which its frames arrive in all (it sets how many servers are pooled). `gap_cv`:
    coefficient of variation of the gaps between them (1: memoryless). `slack`: share of the time left that counts as
    time to wait. `reserve`: share of the SLO that is kept for what can't be foreseen (service times that vary), so that
    nobody waits in it. `usable`: by model, what else is lost or won, as a factor.
    """

    rate_fps: Mapping[str, float]
    gap_cv: float = 1.0
    slack: float = 1.0
    reserve: float = 0.0
    usable: Mapping[str, float] = field(default_factory=dict)

    def share(self, templates: TemplateSet) -> FloatArray:
        """float64 [T]: how much of each template's capacity can be used."""
        slo_us = np.array(templates.slos_us)[templates.tightest]
        left_us = (1 - self.reserve) * slo_us - templates.latency_us - templates.build_us
        wait_us = np.maximum(left_us, 0.0) * self.slack
        service_us = 1e6 * templates.batch / np.where(np.isinf(templates.rate_fps), np.nan, templates.rate_fps).T
        longest_us = np.nanmax(service_us, axis=0)
        pooled = self.rate_fps[templates.model] * longest_us / 1e6 / max(self.gap_cv, 1e-3) ** 2
        shares = utilisation(pooled, wait_us / longest_us) * self.usable.get(templates.model, 1.0)
        return np.where(left_us < 0, shares * OUT_OF_TIME, shares)
