"""Puts the workers of a plan on virtual devices, and leaves as many as it can where they are. Pure.

Theory. Per class, every share 1/s needs a number of devices split into s equal parts. A device that is split so
already may hold workers the new plan wants again; those that hold most are taken first, one after another, counting
each wanted worker once. If the plan leaves devices over, more devices may keep their split than the least number.
Then workers that stay are fixed, workers of the same blocks on the same share come next (no other file to load), and
the rest fill the free slots in order.

Plans made with sharing by pool may need unlike shares on one device (1/2 + 1/4 + 1/4). The whole devices of equal
shares are formed first; what remains of a pool is packed together. With shares 1, 1/2, 1/3, 1/4 that always works
out: full devices of equal shares, and of 1/2 + 1/4 + 1/4, can be set aside without loss, and of what is left (at most
one 1/2, two 1/3, three 1/4, not both a 1/2 and two 1/4) every combination whose sum is at most one device fits on
one, at most two on two.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from framepool.engine.planning.errors import PlacementError
from framepool.engine.planning.inventory import Device, Inventory, VirtualDevice
from framepool.engine.planning.plan import PlacedPlan, Plan, StagePlan, WorkerPlace


@dataclass(frozen=True, slots=True)
class _Worker:
    """One wanted worker: `blocks` says what it would have to load."""

    pipeline_id: str
    stage_index: int
    blocks: tuple[str, int, int]

    @property
    def key(self) -> tuple[str, int]:
        return self.pipeline_id, self.stage_index


_Slots = dict[VirtualDevice, _Worker]


def place(plan: Plan, inventory: Inventory, previous: PlacedPlan | None = None) -> PlacedPlan:
    """A virtual device for every worker of `plan`; raises PlacementError where the devices don't suffice."""
    before = _previous(previous)
    wanted: dict[str, dict[int, list[_Worker]]] = defaultdict(lambda: defaultdict(list))
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            worker = _Worker(pipeline.id, stage.index, _blocks(pipeline.model, stage))
            wanted[stage.device_class][stage.share].extend([worker] * stage.devices)
    placed: _Slots = {}
    for name, by_share in wanted.items():
        devices = sorted((d for d in inventory.devices if d.device_class == name), key=lambda d: d.index)
        held = {v: w for v, w in before.items() if v.device in set(devices)}
        least = sum(math.ceil(len(workers) / share) for share, workers in by_share.items())
        if least <= len(devices):
            placed |= _place_class(devices, by_share, held)
        else:
            placed |= _place_mixed(name, devices, by_share, held)
    order = {pipeline.id: i for i, pipeline in enumerate(plan.pipelines)}
    places = [WorkerPlace(w.pipeline_id, w.stage_index, v) for v, w in placed.items()]
    places.sort(
        key=lambda p: (order[p.pipeline_id], p.stage_index, p.device.device.device_class, p.device.device.index,
                       p.device.share, p.device.slot)
    )  # fmt: skip
    return PlacedPlan(plan=plan, workers=tuple(places))


def _blocks(model: str, stage: StagePlan) -> tuple[str, int, int]:
    return model, stage.first_block, stage.last_block


def _previous(previous: PlacedPlan | None) -> _Slots:
    if previous is None:
        return {}
    stages = {(p.id, s.index): _blocks(p.model, s) for p in previous.plan.pipelines for s in p.stages}
    return {
        w.device: _Worker(w.pipeline_id, w.stage_index, stages[w.pipeline_id, w.stage_index]) for w in previous.workers
    }


def _place_class(devices: Sequence[Device], by_share: Mapping[int, Sequence[_Worker]], held: _Slots) -> _Slots:
    """Places one class with each device split into equal shares."""
    split = {v.device: v.share for v in held}
    least = {share: math.ceil(len(workers) / share) for share, workers in by_share.items()}
    spare = len(devices) - sum(least.values())
    chosen: dict[int, list[Device]] = {share: [] for share in by_share}
    wants = {share: _Wants(workers) for share, workers in by_share.items()}
    on_device: dict[Device, list[_Worker]] = defaultdict(list)
    for virtual, worker in held.items():
        on_device[virtual.device].append(worker)

    candidates = [d for d in devices if split.get(d) in chosen]
    while True:
        free = [d for d in candidates if len(chosen[split[d]]) < least[split[d]] or spare > 0]
        gains = [(wants[split[d]].met_by(on_device[d]), -d.index, d) for d in free]
        gain, _, device = max(gains, default=((0, 0), 0, None), key=lambda g: g[:2])
        if device is None or gain == (0, 0):
            break
        share = split[device]
        spare -= len(chosen[share]) >= least[share]
        chosen[share].append(device)
        candidates.remove(device)
        wants[share].take(on_device[device])
    taken = {d for group in chosen.values() for d in group}
    # Devices nobody works on come first: to split another one anew stops what runs there.
    idle = sorted((d for d in devices if d not in taken), key=lambda d: (d in split, d.index))
    for share in sorted(by_share):
        missing = max(0, least[share] - len(chosen[share]))
        chosen[share] += idle[:missing]
        idle = idle[missing:]
    placed: _Slots = {}
    for share, workers in by_share.items():
        slots = [VirtualDevice(d, share, i) for d in sorted(chosen[share], key=lambda d: d.index) for i in range(share)]
        placed |= _fill(slots, workers, held)
    return placed


class _Wants:
    """What is still to be placed on one share: by worker, and by what the workers would load."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._keys = Counter(w.key for w in workers)
        self._blocks = Counter(w.blocks for w in workers)

    def met_by(self, held: Sequence[_Worker]) -> tuple[int, int]:
        """How many wanted workers `held` are, and how many have the wanted blocks."""
        keys, blocks = Counter(w.key for w in held), Counter(w.blocks for w in held)
        return (keys & self._keys).total(), (blocks & self._blocks).total()

    def take(self, held: Sequence[_Worker]) -> None:
        self._keys -= Counter(w.key for w in held)
        self._blocks -= Counter(w.blocks for w in held)


def _fill(slots: Sequence[VirtualDevice], workers: Sequence[_Worker], held: _Slots) -> _Slots:
    """Assigns workers to slots of one share: those that stay, those with the same blocks, then the rest."""
    placed: _Slots = {}
    left = list(workers)

    def assign(suits: Callable[[_Worker, VirtualDevice], bool]) -> None:
        for slot in slots:
            if slot not in placed:
                match = next((i for i, w in enumerate(left) if suits(w, slot)), None)
                if match is not None:
                    placed[slot] = left.pop(match)

    assign(lambda w, slot: slot in held and held[slot].key == w.key)
    assign(lambda w, slot: slot in held and held[slot].blocks == w.blocks)
    assign(lambda w, slot: True)
    return placed


def _place_mixed(
    name: str, devices: Sequence[Device], by_share: Mapping[int, Sequence[_Worker]], held: _Slots
) -> _Slots:
    """Places one class with unlike shares on a device where a pool needs it; each device serves one pool."""
    pools: dict[tuple[str, int], list[tuple[int, _Worker]]] = defaultdict(list)
    for share in sorted(by_share):
        for worker in by_share[share]:
            pools[worker.blocks[0], worker.stage_index].append((share, worker))
    loads = [load for key in sorted(pools) for load in _packed(pools[key])]
    if len(loads) > len(devices):
        raise PlacementError(
            f"the plan needs {len(loads)} devices of class {name!r} and there are {len(devices)}; plan again for the"
            " devices at hand"
        )
    placed: _Slots = {}
    free = list(devices)
    homes = {slot: worker.key for slot, worker in held.items()}

    def stays(load: Sequence[tuple[int, _Worker]], device: Device) -> int:
        here = Counter((v.share, key) for v, key in homes.items() if v.device == device)
        return sum(min(n, here[item]) for item, n in Counter((share, w.key) for share, w in load).items())

    # Loads that can stay choose first; ties go by order, so the answer is always the same.
    for load in sorted(loads, key=lambda x: -max(stays(x, d) for d in devices)):
        device = max(free, key=lambda d: (stays(load, d), -d.index))
        free.remove(device)
        workers: dict[int, list[_Worker]] = defaultdict(list)
        for share, worker in load:
            workers[share].append(worker)
        for share, group in workers.items():
            placed |= _fill([VirtualDevice(device, share, i) for i in range(len(group))], group, held)
    return placed


def _packed(items: Sequence[tuple[int, _Worker]]) -> list[list[tuple[int, _Worker]]]:
    """Workers of one pool packed onto as few devices as their shares allow (see the module docstring)."""
    waiting: dict[int, list[tuple[int, _Worker]]] = defaultdict(list)
    for item in items:
        waiting[item[0]].append(item)

    def take(*shares: int) -> list[tuple[int, _Worker]]:
        return [waiting[share].pop(0) for share in shares]

    full = []
    for share in sorted(waiting):
        while len(waiting[share]) >= share:
            full.append(take(*[share] * share))
    while len(waiting[2]) >= 1 and len(waiting[4]) >= 2:
        full.append(take(2, 4, 4))
    rest: list[list[tuple[int, _Worker]]] = []
    for item in (item for share in sorted(waiting) for item in waiting[share]):
        for load in rest:
            if sum(Fraction(1, share) for share, _ in load) + Fraction(1, item[0]) <= 1:
                load.append(item)
                break
        else:
            rest.append([item])
    return full + rest
