"""The default framework, by device."""

from functools import cache
from pathlib import Path

from core.cache import read_shipped
from core.loading import Strict, build
from hwmodels.device import Device

RULES_FILE = Path(__file__).parent.parent / "default_frameworks.yaml"


class DefaultRule(Strict):
    """The default framework of some devices."""

    generations: list[str]
    """Generations that the rule is for, and those based on them."""
    framework: str
    why: str


class _Rules(Strict):
    rules: list[DefaultRule]


@cache
def default_rules() -> tuple[DefaultRule, ...]:
    """The rules; together they name every shipped generation, each once."""
    return tuple(build(_Rules, read_shipped(RULES_FILE), str(RULES_FILE)).rules)


def default_framework(device: Device) -> DefaultRule:
    """The rule of a device's generation, or of the nearest that it is based on."""
    by_name = {name: rule for rule in default_rules() for name in rule.generations}
    return next(by_name[name] for name in device.generation.lineage if name in by_name)
