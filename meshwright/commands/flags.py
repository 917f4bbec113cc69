"""Flags as dataclasses, one field a flag: what commands read together is listed once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

from meshwright.commands import options as given
from meshwright.commands.output import Json

COLD_START_S = 60.0
TRIALS = Path("trials")


@dataclass(frozen=True)
class StepFlags:
    """A scenario of one plan, and flags that change its keys."""

    scenario: given.Scenario = ""
    model: given.Model = None
    cluster: given.OneCluster = None
    gpus: given.OneSize = None
    seq_len: given.SeqLen = None
    global_batch: given.GlobalBatch = None
    batch_tokens: given.BatchTokens = None
    precision: given.Precision = None
    framework: given.Framework = None
    price: given.Price = None
    site: given.Site = None
    fix: given.Fields = None

    def arguments(self) -> dict[str, Any]:
        """The flags as arguments of the API; ``fix`` as fields of the plan.

        Raises:
            InputError: a size or a field that cannot be read.
        """
        from meshwright.variations.flags import plan_fields

        names = (field.name for field in fields(self) if field.name not in ("scenario", "fix"))
        asked = given.question(**{name: getattr(self, name) for name in names})
        return {**asked, "fix": plan_fields(self.fix or ())}


@dataclass(frozen=True)
class PlanFlags:
    """All flags of ``plan``; each of its questions reads some of them (``plan_questions.QUESTIONS``)."""

    scenario: given.Scenario = ""
    model: given.Model = None
    cluster: given.Cluster = None
    gpus: given.Gpus = None
    seq_len: given.SeqLen = None
    global_batch: given.GlobalBatch = None
    batch_tokens: given.BatchTokens = None
    precision: given.Precision = None
    framework: given.Framework = None
    recipe: given.Recipe = None
    price: given.Price = None
    site: given.Site = None
    fix: given.Fix = None
    limit: given.Limit = None
    objective: given.Objective = None
    top: given.Top = None
    headroom: given.Headroom = None
    offload: given.Offload = False
    raw: given.Raw = False
    proven: given.Proven = False
    trials: given.Trials = None
    folder: given.Folder = TRIALS
    refine: given.Refine = None
    executor: given.Executor = "local"
    address: given.Address = ""
    workers: given.Workers = None
    store: given.Store = None
    tokens: given.Tokens = None
    days: given.Days = None
    budget: given.Budget = None
    run: given.Run = False
    quantile: given.Quantile = "p50"
    serve: given.Serve = False
    isl: given.Isl = None
    osl: given.Osl = None
    rate: given.Rate = None
    concurrency: given.Concurrency = None
    ttft: given.Ttft = None
    tpot: given.Tpot = None
    engine: given.Engine = None
    prefix: given.Prefix = None
    requests: given.Requests = None
    use: given.Use = None
    speculate: given.Speculate = None
    kv: given.Kv = None
    tries: given.Try = None
    together: given.Together = False
    mix: given.Mix = None
    watts: given.Watts = None
    day: given.Day = None
    cold_start: given.ColdStart = COLD_START_S
    pareto: given.Pareto = False
    save: given.Save = None
    rank: given.Rank = 1
    html: given.Html = None
    csv: given.Csv = None
    json: Json = False


def options_of(kind: type) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass of flags as parameters, with the types that typer reads."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=hints[field.name],
        )


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads it: its first parameter, a dataclass of flags, becomes one for each field."""
    own = inspect.signature(command, eval_str=True)
    (first, kind), *rest = ((name, parameter.annotation) for name, parameter in own.parameters.items())
    assert isinstance(kind, type) and is_dataclass(kind), (
        f"{first} of {command.__name__} is no dataclass of flags"
    )
    listed = list(options_of(kind))
    names = [parameter.name for parameter in listed]

    @wraps(command)
    def run(**flags: Any) -> None:
        command(kind(**{name: flags.pop(name) for name in names}), **flags)

    return with_signature(run, [*listed, *(own.parameters[name] for name, _ in rest)])


def with_signature(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """A command whose signature and annotations, as typer reads them, are these parameters."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
