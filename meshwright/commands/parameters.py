"""Parameters of commands that convert given values only.

typer builds a pydantic validator for each parameter, whether or not the user gave it; ``plan --help`` reads
none, and needs no pydantic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from core.errors import InputError


def _process(parameter: Any, convert: Any, context: Any, value: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    text = getattr(described, "annotation", None) is str and type(value) is str and value
    if not text and not _is_default(parameter, context, value):
        return convert(context, value)
    if value is None and parameter.multiple:
        value = ()
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _is_default(parameter: Any, context: Any, value: Any) -> bool:
    """Whether a value is the one that the command's signature states, which has its type."""
    source = context.get_parameter_source(parameter.name)
    return value is None or (source is not None and source.name == "DEFAULT")


def _given_only(parameters: list[Any]) -> list[Any]:
    """Parameters of which optional ones are not converted where they are not given."""
    for parameter in parameters:
        optional = parameter.nargs == 1 and not parameter.required
        if optional and "process_value" not in vars(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)
    return parameters


def _refuse_twice(parameters: Iterable[Any], args: Sequence[str]) -> None:
    """Refuse an option that is typed twice where one value counts.

    Raises:
        InputError: such an option.
    """
    typed = Counter(arg.partition("=")[0] for arg in args if arg.startswith("--"))
    for parameter in parameters:
        count = sum(typed[name] for name in parameter.opts)
        if count > 1 and not parameter.multiple and not getattr(parameter, "is_flag", False):
            raise InputError(f"is given {count} times; one value counts", parameter.opts[0])


class LazyCommand(TyperCommand):
    """A command that converts given values only."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options, each once."""
        _refuse_twice(self.params, args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters."""
        return _given_only(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """Commands behind options that convert given values only."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters."""
        return _given_only(super().get_params(ctx))
