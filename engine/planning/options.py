"""Settings of the planner."""

from __future__ import annotations

from dataclasses import dataclass

from framepool.engine.planning.program import Sharing
from framepool.engine.planning.templates import TemplateOptions


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """How to plan. The defaults are those of the live engine on the devices at hand.

    `slo_margin` is the share of each SLO kept free for what no profile knows (jitter, decoding, publishing).
    `max_stages` 1 means no partition; `min_stages` 2 with `distinct_classes` asks for pipelines across unlike classes;
    `sequences` allows only these sequences of class names. `restrict_sequences` is PPipe's restriction to one template
    per class sequence of a model; `chains` is DART-r's: one template a model, on whole devices, as many on each of its
    stages. `batch_building` charges a batch with the time until it is built, at the rate that the model gets without
    partition. `enough`: capacity for more than this many times the demand is not looked
    for; beyond it, latency counts (math.inf: throughput only). `tie_break` False returns any plan of best z.
    `keep_faster` keeps templates that are better in latency only, for plans that pay for slack (see `queueing`).
    `use_spare` gives devices that are left over to the models served.
    """

    slo_margin: float = 0.1
    max_stages: int = 2
    min_stages: int = 1
    sharing: Sharing = Sharing.DEVICE
    restrict_sequences: bool = False
    chains: bool = False
    batch_building: bool = True
    max_batch: int = 16
    sequences: tuple[tuple[str, ...], ...] | None = None
    distinct_classes: bool = False
    enough: float = 2.0
    tie_break: bool = True
    keep_faster: bool = False
    use_spare: bool = True
    time_limit_s: float = 5.0
    gap: float = 1e-4

    def templates(self) -> TemplateOptions:
        return TemplateOptions(
            slo_margin=self.slo_margin,
            min_stages=self.min_stages,
            max_stages=self.max_stages,
            max_batch=self.max_batch,
            sequences=self.sequences,
            whole_devices=self.chains,
            distinct_classes=self.distinct_classes,
            keep_faster=self.tie_break or self.keep_faster,
            any_share=self.sharing is Sharing.POOL,
        )
