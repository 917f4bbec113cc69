"""The commands of ``meshwright``, one per module. Commands import heavy modules when they run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

COMMANDS = (
    "plan",
    "simulate",
    "whatif",
    "validate",
    "show",
    "profile",
    "calibrate",
    "export",
    "import",
    "sweep",
)
"""Names of the commands, in the order of ``--help``."""


def command(name: str) -> Callable[..., None]:
    """The function of a command; its docstring is the command's help."""
    attribute = f"{name}_" if name == "import" else name
    return getattr(import_module(f"meshwright.commands.{attribute}"), attribute)
