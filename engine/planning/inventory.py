"""Devices at hand: classes, devices and their virtual shares. Pure data, made by configuration or detection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices that behave alike.

    `link_gbps` is the network link of the server a device sits in, shared by `devices_per_link` devices; None means
    that stages exchange tensors through shared memory and transfer costs nothing in the plan. `shares` lists the
    allowed splits: 1 (whole device), 2 (halves), ... `memory_bytes`: what a stage on a whole device may take, on 1/s of
    it the s-th part (None: no bound).
    """

    name: str
    count: int
    link_gbps: float | None = None
    devices_per_link: int = 1
    shares: tuple[int, ...] = (1,)
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One piece of hardware: `id` is unique ("cpu-0"), `index` counts within its class."""

    id: str
    device_class: str
    index: int


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """Slot `slot` (0 <= slot < share) of a device split into `share` equal parts; one stage worker runs on it."""

    device: Device
    share: int
    slot: int

    @property
    def id(self) -> str:
        return self.device.id if self.share == 1 else f"{self.device.id}/{self.slot + 1}of{self.share}"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything a plan may use. Every device's class is in `classes`, and `count` equals its devices."""

    classes: tuple[DeviceClass, ...]
    devices: tuple[Device, ...]

    def device_class(self, name: str) -> DeviceClass:
        """The class of that name; KeyError where there is none (a bug, not user input)."""
        for candidate in self.classes:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
