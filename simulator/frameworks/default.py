"""The default framework, by device."""

from functools import cache
from pathlib import Path

from core.cache import read_shipped
from core.loading import Strict, build
from hwmodels.device import Device, Generation

RULES_FILE = Path(__file__).parent.parent / "default_frameworks.yaml"


class DefaultRule(Strict):
    """The default framework of some devices."""

    generations: list[Generation] | None = None
    """Architectures that the rule applies to; empty: all other architectures."""
    framework: str
    why: str


class _Rules(Strict):
    rules: list[DefaultRule]


@cache
def default_rules() -> tuple[DefaultRule, ...]:
    """The rules in order; the last holds for every device."""
    return tuple(build(_Rules, read_shipped(RULES_FILE), str(RULES_FILE)).rules)


def default_framework(device: Device) -> DefaultRule:
    """The first rule that holds for a device."""
    rules = default_rules()
    holding = (rule for rule in rules if rule.generations is None or device.generation in rule.generations)
    return next(holding, rules[-1])
