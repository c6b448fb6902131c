"""The planner's door: profiles, devices and demands in, a `Plan`, or the best that could be offered, out.

What lies behind it, in the order of a plan's making; all of it pure, without threads, and with no clock but for
giving up:

    options      what may be planned
    templates    every way to cut a model into stages on classes, shares and a batch size; `pruning` thins them out
    program      the mixed-integer program over them; `linear` runs one in HiGHS
    search       bound, start, pruning by prices, branch and bound: many devices; `allotting`: a strong start;
                 `covering`: few devices
    queueing     what part of a capacity chance arrivals let one use
    spare        devices left over go to the models served
    assembly     counts to pipelines
    solving      all of that in order: `solve`
    offers       what would fit beside what runs: `best_offer`
    placement    which worker sits on which device: `place`
    checker      recomputes a plan and its placement from the profiles alone
"""

from framepool.engine.planning.errors import PlacementError, PlanInfeasibleError, PlanningError
from framepool.engine.planning.offers import Offer, best_offer
from framepool.engine.planning.options import PlannerOptions
from framepool.engine.planning.program import Sharing
from framepool.engine.planning.solving import expected_rates, fastest_slo_ms, solve

__all__ = [
    "Offer",
    "PlacementError",
    "PlanInfeasibleError",
    "PlannerOptions",
    "PlanningError",
    "Sharing",
    "best_offer",
    "expected_rates",
    "fastest_slo_ms",
    "solve",
]
