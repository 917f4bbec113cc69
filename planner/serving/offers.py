"""GPU types on offer: devices available and their price."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from core.errors import InputError, UnknownNameError
from hwmodels.cluster import Cluster, clusters
from hwmodels.device import devices
from hwmodels.usual_clusters import USUAL

FORM = re.compile(r"(?P<name>[^=@]+)(=(?P<count>\d{1,7}))?(@(?P<price>\d{1,5}(\.\d{1,4})?))?")
FORMS = "NAME, NAME=COUNT, NAME@PRICE or NAME=COUNT@PRICE"


@dataclass(frozen=True)
class Offer:
    """One GPU type.

    Attributes:
        cluster: nodes of it; in a mix, a node or an NVLink domain of several.
        available: devices that can be rented; None for no limit.
        usd_per_hour: price of one device, $ an hour; 0 where none is known.
    """

    cluster: Cluster
    available: int | None
    usd_per_hour: float

    @property
    def name(self) -> str:
        """Name of the device."""
        return self.cluster.device.name

    @property
    def devices(self) -> int:
        """Devices that a search may use."""
        return self.cluster.devices if self.available is None else min(self.available, self.cluster.devices)

    @classmethod
    def parse(cls, text: str, flag: str = "--types", needs_price: bool = True) -> Offer:
        """Read ``NAME[=COUNT][@PRICE]``: a device or a cluster, devices available, $ an hour and device.

        Args:
            text: the offer.
            flag: where it stands, for errors.
            needs_price: whether a price is needed.

        Raises:
            InputError: another form, or no price.
            UnknownNameError: no such device or cluster.
        """
        match = FORM.fullmatch(text.strip())
        if match is None:
            raise InputError(f"must be {FORMS}, found {text!r}", flag)
        name = match["name"].strip()
        if clusters.resolve(name) is None and devices.resolve(name) is None:
            raise UnknownNameError("device or cluster", name, [*clusters.names(), *USUAL], flag)
        cluster = clusters.get(name, flag)
        price = float(match["price"]) if match["price"] else cluster.device.price_per_hour_usd
        if needs_price and not price:
            raise InputError(f"{name} has no price; write {name}@PRICE, $ an hour and device", flag)
        count = int(match["count"]) if match["count"] else None
        if count == 0:
            raise InputError(f"{name} must have at least one device, found 0", flag)
        return cls(cluster, count, price)

    def resized(self, devices: int) -> Offer:
        """The offer with so many devices available, all in use.

        Raises:
            InputError: the cluster has fewer.
        """
        return replace(self, cluster=self.cluster.resized(devices), available=devices)


def of_cluster(cluster: Cluster) -> Offer:
    """All devices of a cluster that are in use, at list price."""
    return Offer(cluster, cluster.devices, cluster.device.price_per_hour_usd)


def check_types(offers: list[Offer] | tuple[Offer, ...], flag: str) -> None:
    """Refuse a GPU type that is given twice.

    Raises:
        InputError: one is.
    """
    names = [offer.name for offer in offers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice} is given twice; give a GPU type once, with the count of all", flag)
