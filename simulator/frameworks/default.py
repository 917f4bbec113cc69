"""The default framework, by device."""

from functools import cache
from pathlib import Path

from core.cache import read_shipped
from core.loading import Strict, build
from hwmodels.device import Device
from simulator.state.adapter import Adapter

RULES_FILE = Path(__file__).parent.parent / "default_frameworks.yaml"


class DefaultRule(Strict):
    """The default framework of some devices."""

    generations: list[str]
    """Generations that the rule is for, and those based on them."""
    framework: str
    why: str


class AdapterRule(Strict):
    """The default framework of adapters."""

    framework: str
    devices: int
    """Most devices that the rule is for, unless the frozen weights are in a format of ``coded``."""
    coded: list[str]
    """Formats of frozen weights that the other defaults do not have."""
    why: str


class _Rules(Strict):
    rules: list[DefaultRule]
    adapters: AdapterRule


@cache
def default_rules() -> tuple[DefaultRule, ...]:
    """The rules; together they name every shipped generation, or one that it is based on, each once."""
    return tuple(_read().rules)


@cache
def _read() -> _Rules:
    return build(_Rules, read_shipped(RULES_FILE), str(RULES_FILE))


def adapter_rule() -> AdapterRule:
    """The rule of adapters."""
    return _read().adapters


def default_name(device: Device, adapter: Adapter | None, devices: int) -> str:
    """Name of the default framework.

    Args:
        device: of the cluster.
        adapter: what is trained; None for all parameters.
        devices: number of devices.
    """
    rule = adapter_rule()
    if adapter is not None and (devices <= rule.devices or adapter.base in rule.coded):
        return rule.framework
    return default_framework(device).framework


def default_framework(device: Device) -> DefaultRule:
    """The rule of a device's generation, or of the nearest that it is based on."""
    by_name = {name: rule for rule in default_rules() for name in rule.generations}
    return next(by_name[name] for name in device.generation.lineage if name in by_name)
