"""Flags as dataclasses, one field a flag: what commands read together is listed once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

from core.records import record
from meshwright.commands import options


@record()
class StepFlags:
    """A scenario of one plan, and flags that change its keys."""

    scenario: options.Scenario = ""
    model: options.Model = None
    cluster: options.OneCluster = None
    gpus: options.OneSize = None
    seq_len: options.SeqLen = None
    global_batch: options.GlobalBatch = None
    batch_tokens: options.BatchTokens = None
    precision: options.Precision = None
    adapter: options.Adapter = None
    framework: options.Framework = None
    price: options.Price = None
    site: options.Site = None
    fix: options.Fields = None
    allow: options.Allow = None

    def arguments(self) -> dict[str, Any]:
        """The flags as arguments of the API; ``fix`` as fields of the plan.

        Raises:
            InputError: a size or a field that cannot be read.
        """
        from meshwright.variations.flags import plan_fields

        names = (field.name for field in fields(self) if field.name not in ("scenario", "fix"))
        arguments = options.question(**{name: getattr(self, name) for name in names})
        return {**arguments, "fix": plan_fields(self.fix or ())}


def options_of(kind: type) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass of flags as parameters, with the types that typer reads."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )


def parameters_of(kinds: Iterable[type]) -> dict[str, inspect.Parameter]:
    """The fields of several dataclasses of flags as parameters, each once."""
    return {flag.name: flag for kind in reversed(list(kinds)) for flag in options_of(kind)}


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads it: its first parameter, a dataclass of flags, becomes one for each field."""
    signature = inspect.signature(command, eval_str=True)
    (first, kind), *rest = ((name, parameter.annotation) for name, parameter in signature.parameters.items())
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise TypeError(f"{first} of {command.__name__} is no dataclass of flags")
    listed = list(options_of(kind))
    names = [parameter.name for parameter in listed]

    @wraps(command)
    def run(**flags: Any) -> None:
        command(kind(**{name: flags.pop(name) for name in names}), **flags)

    return with_signature(run, [*listed, *(signature.parameters[name] for name, _ in rest)])


def with_signature(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """A command whose signature and annotations, as typer reads them, are these parameters."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
