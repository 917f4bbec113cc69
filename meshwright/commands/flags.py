"""Flags as dataclasses, one field a flag: what commands read together is listed once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

from core.records import record
from meshwright.commands import options
from meshwright.commands.output import Json

COLD_START_S = 60.0
TRIALS = Path("trials")


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


@record()
class PlanFlags:
    """All flags of ``plan``; each of its questions reads some of them (``plan_questions.QUESTIONS``)."""

    scenario: options.Scenario = ""
    model: options.Model = None
    cluster: options.Cluster = None
    gpus: options.Gpus = None
    seq_len: options.SeqLen = None
    global_batch: options.GlobalBatch = None
    batch_tokens: options.BatchTokens = None
    precision: options.Precision = None
    adapter: options.Adapter = None
    framework: options.Framework = None
    recipe: options.Recipe = None
    price: options.Price = None
    site: options.Site = None
    fix: options.Fix = None
    limit: options.Limit = None
    allow: options.Allow = None
    objective: options.Objective = None
    top: options.Top = None
    headroom: options.Headroom = None
    offload: options.Offload = False
    schedules: options.Schedules = None
    raw: options.Raw = False
    proven: options.Proven = False
    more: options.More = False
    trials: options.Trials = None
    folder: options.Folder = TRIALS
    refine: options.Refine = None
    executor: options.Executor = "local"
    address: options.Address = ""
    workers: options.Workers = None
    store: options.Store = None
    tokens: options.Tokens = None
    days: options.Days = None
    budget: options.Budget = None
    run: options.Run = False
    quantile: options.Quantile = "p50"
    serve: options.Serve = False
    isl: options.Isl = None
    osl: options.Osl = None
    rate: options.Rate = None
    images: options.Images = None
    steps: options.Steps = None
    latency: options.Latency = None
    concurrency: options.Concurrency = None
    ttft: options.Ttft = None
    tpot: options.Tpot = None
    engine: options.Engine = None
    prefix: options.Prefix = None
    requests: options.Requests = None
    use: options.Use = None
    speculate: options.Speculate = None
    kv: options.Kv = None
    tries: options.Try = None
    together: options.Together = False
    mix: options.Mix = None
    watts: options.Watts = None
    day: options.Day = None
    cold_start: options.ColdStart = COLD_START_S
    staleness: options.Staleness = None
    pareto: options.Pareto = False
    save: options.Save = None
    rank: options.Rank = 1
    html: options.Html = None
    csv: options.Csv = None
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
