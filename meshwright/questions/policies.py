"""Policies of a deployment beside its replicas: those that a search keeps, and values to try."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from core.errors import InputError, UnknownNameError
from planner.serving.policies import TRIED
from simulator.serving.question.deployment import Deployment
from simulator.serving.routers import routers
from simulator.serving.routers.migration import migrations
from simulator.serving.scalers import scalers
from simulator.serving.starts import starts

KEPT = ("migrate", "tiers", "recompute", "adapters", "start", "finetuning")
"""Keys that runs on the event engine and saved scenarios keep. Of these the steady state prices adapters."""
WITHOUT = "off"
TIER = re.compile(r"(?P<place>[a-z]+):(?P<gigabytes>\d{1,9}(\.\d{1,6})?)")


def kept_policies(deployment: Deployment) -> dict[str, Any]:
    """The stated keys among ``KEPT``."""
    stated = deployment.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: stated[key] for key in KEPT if key in stated}


def tried_policies(written: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Values to try by key, from ``migrate=off,llumnix`` and ``tiers=off,host:200+nvme:2000``.

    Raises:
        UnknownNameError: a key that cannot be tried, or an unknown policy (the nearest name is offered).
        InputError: another form, or a key twice.
    """
    tried: dict[str, tuple[Any, ...]] = {}
    for text in written:
        key, equals, values = text.partition("=")
        key = key.strip()
        if key not in TRIED:
            raise UnknownNameError("policy to try", key, TRIED, "--try")
        if not equals or not values.strip():
            raise InputError(f"must be KEY=VALUE,VALUE, found {text!r}", "--try")
        if key in tried:
            raise InputError(f"{key} is given twice; list its values once", "--try")
        tried[key] = tuple(_value(key, value.strip(), f"--try {key}") for value in values.split(","))
    return tried


def _value(key: str, text: str, where: str) -> Any:
    """One value; None for ``off``."""
    if text == WITHOUT:
        return None
    if key in READERS:
        return READERS[key](text, where)
    if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text) is None or not float(text) > 0:
        raise InputError(f"must be a positive number or {WITHOUT}, found {text!r}", where)
    return float(text)


def _tiers(text: str, where: str) -> list[dict[str, Any]]:
    """Tiers on shared links, the fastest first, from ``host:200+nvme:2000`` (GB)."""
    tiers = [TIER.fullmatch(part.strip()) for part in text.split("+")]
    if not all(tiers):
        raise InputError(f"must be PLACE:GIGABYTES joined by +, or {WITHOUT}, found {text!r}", where)
    return [
        {"place": tier["place"], "gigabytes": float(tier["gigabytes"]), "recompute": 0.0}
        for tier in tiers
        if tier is not None
    ]


def _whole(text: str, where: str) -> int:
    """A whole number of replicas."""
    if re.fullmatch(r"[1-9]\d{0,3}", text) is None:
        raise InputError(f"must be a number of encoders from 1 to 9,999 or {WITHOUT}, found {text!r}", where)
    return int(text)


def _named(what: str, names: Mapping[str, Any], wrapped: bool = False) -> Callable[[str, str], Any]:
    """A reader of names of policies; ``wrapped`` as a mapping with the key `kind`."""

    def read(text: str, where: str) -> Any:
        if text not in names:
            raise UnknownNameError(what, text, [*names, WITHOUT], where)
        return {"kind": text} if wrapped else text

    return read


READERS: Mapping[str, Callable[[str, str], Any]] = {
    "tiers": _tiers,
    "migrate": _named("migration", migrations, wrapped=True),
    "start.from": _named("source of weights", starts),
    "router": _named("router", routers),
    "scaler": _named("scaler", scalers),
    "encoder": _whole,
}
