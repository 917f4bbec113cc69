"""The commands of ``meshwright``, one per module. Commands import heavy modules when they run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

INTERRUPTED = 130
"""Exit status after Ctrl-C, TERM or HUP."""

COMMANDS = (
    "plan",
    "simulate",
    "whatif",
    "validate",
    "show",
    "profile",
    "calibrate",
    "observe",
    "learn",
    "export",
    "import",
    "sweep",
    "ui",
    "mcp",
)
"""Names of the commands, in the order of ``--help``."""


PLAN_QUESTIONS = ("train", "serve", "mix", "day", "size", "rl")
"""Words after ``plan`` that ask one question, with its own flags."""


def command(name: str) -> Callable[..., None]:
    """The function of a command (``plan``, ``plan train``); its docstring is the command's help."""
    first, _, question = name.partition(" ")
    if question:
        from meshwright.commands.plan_questions import question_command

        return question_command(question)
    name = first
    attribute = f"{name}_" if name == "import" else name
    return getattr(import_module(f"meshwright.commands.{attribute}"), attribute)
