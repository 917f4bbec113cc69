"""Usage errors of typer as the sentences that other errors are: where, what, found, allowed."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any


@cache
def other_words(kind: str) -> Mapping[str, str]:
    """Words of other tools, by those that say the same here: of ``options`` or ``verbs``."""
    from core.cache import read_shipped

    return read_shipped(Path(__file__).with_name("other_words.yaml"))[kind]


OTHER_COMMANDS = MappingProxyType(
    {
        "--set": "whatif",
        "--sweep": "whatif",
        "--replan": "whatif",
    }
)
"""Commands that an option belongs to; those of ``plan`` are found among its flags."""

FORMER = MappingProxyType({"--serve": "plan serve", "--mix": "plan mix --types", "--day": "plan day --rates"})
"""Options of ``plan`` that became questions of their own."""


SHORT_OPTION = 2
"""Characters of an option with one dash: the first option that begins with its letter is offered."""


def usage_sentence(error: Any, commands: Any) -> str:
    """One sentence for a usage error of typer or click, with the command whose ``--help`` says more.

    Args:
        error: the usage error.
        commands: context of the group of commands, for errors without a context.
    """
    from core.errors import plain_problem, suggestion

    context, parameter = error.ctx, getattr(error, "param", None)
    command = (
        context.command if context is not None else commands.command.commands.get(commands.invoked_subcommand)
    )
    path = (
        context.command_path
        if context is not None
        else f"meshwright {commands.invoked_subcommand or ''}".strip()
    )
    options = command.params if command is not None else []
    kind, problem = type(error).__name__, error.format_message().rstrip(".")
    if kind == "MissingParameter":
        problem = f"{_spelling(parameter)} is missing{_purpose(parameter)}"
    elif kind == "NoSuchOption":
        spellings = [name for option in options for name in option.opts if name.startswith("--")]
        nearest = _nearest(error.option_name, spellings, path)
        if path.endswith(" rl") and not (nearest or get_close_matches(error.option_name, spellings, 1, 0.75)):
            nearest = (
                "; batch, algorithm and the rest are keys of a scenario (docs/rl.md), which --save writes"
            )
        nearest = nearest or suggestion(error.option_name, spellings)
        problem = f"{error.option_name}: no such option{nearest}".rstrip("?")
    elif kind == "BadOptionUsage":
        named = next((option for option in options if error.option_name in option.opts), None)
        problem = f"{error.option_name}: a value is missing{_purpose(named)}"
    elif parameter is not None:
        inputs = [fault["input"] for fault in getattr(error.__cause__, "errors", list)()]
        value = f", found {inputs[0]!r}" if inputs else ""
        if inputs and str(inputs[0])[:1].isdigit():  # a number with a unit
            value += _purpose(parameter)
        problem = f"{_spelling(parameter)}: {plain_problem(error.message)}{value}"
    elif kind == "UsageError" and "extra argument" in problem:
        extra = problem.rpartition("(")[2].rstrip(")")
        problem = f"{extra}: one argument too many; a value with blanks needs quotes"
    return f"{problem}; see {path} --help"


def _nearest(typed: str, spellings: list[str], path: str) -> str:
    """What an unknown option is called here, or the command that has it; empty where neither is known."""
    from meshwright.commands.plan_flags import ASKED, OTHERWISE, flag, readers
    from planner.serving.question import FIELDS
    from simulator.plan import Plan

    words = other_words("options").get(typed, "").split(" | ")
    if len(typed) == SHORT_OPTION:
        words = [name for name in spellings if name.startswith(f"-{typed}")]
    field = typed.removeprefix("--").replace("-", "_")
    if field in (FIELDS if path.endswith(" serve") else Plan.model_fields):
        words.append(f"--fix {field}=VALUE")
    for same in words:
        if same.replace(",", " ").split(" ")[0] in spellings:
            return f"; did you mean {same!r}"
    names = {flag(name): name for kind in ASKED for name in kind.__dataclass_fields__}
    name, question = names.get(typed, ""), path.rpartition(" ")[2]
    if (question, name) in OTHERWISE:
        return f"; {OTHERWISE[question, name]}"
    command = (OTHER_COMMANDS | FORMER).get(typed) or next((f"plan {reader}" for reader in readers(name)), "")
    return f"; it belongs to {command!r}" if command else ""


def _spelling(parameter: Any) -> str:
    """The flag as typed, or the argument's name."""
    return " or ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()


def _purpose(parameter: Any) -> str:
    text = (getattr(parameter, "help", None) or "").rstrip(".")
    return f" ({text})" if text else ""
