"""Flags of the questions of ``plan``: a dataclass a question, with all that the question reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from core.errors import InputError
from core.records import record
from meshwright.commands import options
from meshwright.commands.output import Json

COLD_START_S = 60.0
TRIALS = Path("trials")


def words(names: str) -> tuple[str, ...]:
    """Names between blanks."""
    return tuple(names.split())


@record(kw_only=True)
class QuestionFlags:
    """What every question reads.

    Attributes:
        name: the word after ``plan``.
        first: flags of the first screen of ``--help``, the scenario first.
    """

    name: ClassVar[str] = ""
    first: ClassVar[tuple[str, ...]] = ()

    scenario: options.Scenario = ""
    json: Json = False


@record(kw_only=True)
class SearchFlags(QuestionFlags):
    """What a search of plans of one model reads."""

    model: options.Model = None
    fix: options.Fix = None
    limit: options.Limit = None
    html: options.Html = None

    @property
    def constraints(self) -> dict[str, dict[str, str]]:
        """Fixed and capped fields of plans.

        Raises:
            InputError: no FIELD=VALUE, or a field twice.
        """
        from planner.training.constraints import pairs

        return {"fix": pairs(self.fix or (), "--fix"), "limit": pairs(self.limit or (), "--limit")}


@record(kw_only=True)
class RankingFlags(QuestionFlags):
    """What a ranking of plans reads, of training or of serving."""

    objective: options.Objective = None
    top: options.Top = None
    more: options.More = False
    refine: options.Refine = None
    executor: options.Executor = "local"
    address: options.Address = ""
    workers: options.Workers = None
    store: options.Store = None
    site: options.Site = None
    pareto: options.Pareto = False
    save: options.Save = None
    rank: options.Rank = 1
    csv: options.Csv = None


@record(kw_only=True)
class JobFlags(SearchFlags):
    """A training job."""

    cluster: options.Cluster = None
    gpus: options.Gpus = None
    seq_len: options.SeqLen = None
    global_batch: options.GlobalBatch = None
    batch_tokens: options.BatchTokens = None
    precision: options.Precision = None
    adapter: options.Adapter = None
    source_len: options.SourceLen = None
    images: options.Images = None
    framework: options.Framework = None
    price: options.Price = None
    allow: options.Allow = None
    objective: options.Objective = None
    headroom: options.Headroom = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The job as arguments of the API, without its cluster and size.

        Raises:
            InputError: a number or a constraint that cannot be read.
        """
        numbers = words("model precision adapter images seq_len source_len global_batch batch_tokens price")
        names = words("framework objective headroom allow")
        asked_for = options.question(**{name: getattr(self, name) for name in numbers})
        return {**asked_for, **{name: getattr(self, name) for name in names}, **self.constraints}


@record(kw_only=True)
class TrainFlags(RankingFlags, JobFlags):
    """A ranking of training plans."""

    name: ClassVar[str] = "train"
    first: ClassVar[tuple[str, ...]] = words(
        "scenario model cluster gpus seq_len global_batch precision framework fix save json"
    )

    recipe: options.Recipe = None
    offload: options.Offload = False
    schedules: options.Schedules = None
    raw: options.Raw = False
    proven: options.Proven = False
    trials: options.Trials = None
    folder: options.Folder = TRIALS
    run: options.Run = False
    quantile: options.Quantile = "p50"


@record(kw_only=True)
class SizeFlags(JobFlags):
    """Days, dollars and energy of a training run over sizes and clusters."""

    name: ClassVar[str] = "size"
    first: ClassVar[tuple[str, ...]] = words(
        "scenario tokens days budget model cluster gpus seq_len global_batch batch_tokens json"
    )

    tokens: options.Tokens
    epochs: options.Epochs = 1.0
    days: options.Days = None
    budget: options.Budget = None


@record(kw_only=True)
class LoadFlags(SearchFlags):
    """Requests to serve, and their targets."""

    isl: options.Isl = None
    osl: options.Osl = None
    ttft: options.Ttft = None
    tpot: options.Tpot = None
    engine: options.Engine = None


@record(kw_only=True)
class ServeFlags(RankingFlags, LoadFlags):
    """A ranking of deployments."""

    name: ClassVar[str] = "serve"
    first: ClassVar[tuple[str, ...]] = words("scenario model cluster gpus isl osl rate ttft tpot save json")

    cluster: options.Cluster = None
    gpus: options.Gpus = None
    rate: options.Rate = None
    concurrency: options.Concurrency = None
    use: options.Use = None
    requests: options.Requests = None
    prefix: options.Prefix = None
    images: options.Images = None
    speculate: options.Speculate = None
    kv: options.Kv = None
    together: options.Together = False
    watts: options.Watts = None
    tries: options.Try = None
    pools: options.Pools = None
    deadline: options.Deadline = None


@record(kw_only=True)
class ImageFlags(QuestionFlags):
    """A ranking of layouts of a diffusion model, which ``plan serve`` answers for such a model."""

    name: ClassVar[str] = "serve"

    model: options.Model = None
    cluster: options.Cluster = None
    gpus: options.Gpus = None
    images: options.Images = None
    rate: options.Rate = None
    steps: options.Steps = None
    latency: options.Latency = None
    top: options.Top = None
    save: options.Save = None
    rank: options.Rank = 1
    html: options.Html = None


@record(kw_only=True)
class MixFlags(LoadFlags):
    """The cheapest mix of GPU types that carries a load."""

    name: ClassVar[str] = "mix"
    first: ClassVar[tuple[str, ...]] = words("scenario types model isl osl rate ttft tpot watts refine json")

    types: options.Types
    rate: options.Rate = None
    watts: options.Watts = None
    refine: options.Refine = None
    together: options.Together = False


@record(kw_only=True)
class DayFlags(LoadFlags):
    """Replicas over a day of changing load."""

    name: ClassVar[str] = "day"
    first: ClassVar[tuple[str, ...]] = words(
        "scenario rates model cluster gpus isl osl ttft tpot cold_start json"
    )

    rates: options.Rates
    cluster: options.Cluster = None
    gpus: options.Gpus = None
    cold_start: options.ColdStart = COLD_START_S
    refine: options.Refine = None


@record(kw_only=True)
class RlFlags(QuestionFlags):
    """A split of devices between trainer and rollouts; a scenario says the rest."""

    name: ClassVar[str] = "rl"
    first: ClassVar[tuple[str, ...]] = words(
        "scenario model cluster gpus isl osl framework staleness save html json"
    )

    model: options.Model = None
    cluster: options.Cluster = None
    gpus: options.Gpus = None
    isl: options.Isl = None
    osl: options.Osl = None
    framework: options.Framework = None
    html: options.Html = None
    staleness: options.Staleness = None
    top: options.Top = None
    save: options.Save = None
    rank: options.Rank = 1


ASKED: tuple[type[QuestionFlags], ...] = (
    *(TrainFlags, ServeFlags, ImageFlags, MixFlags, DayFlags, SizeFlags, RlFlags),
)
"""Flags of all questions, in the order of ``PLAN_QUESTIONS``."""
BY_SCENARIO = {"train": TrainFlags, "serve": ServeFlags, "rl": RlFlags}
"""Questions that ``plan SCENARIO`` asks, by the scenario's kind."""

SPELLINGS = {"raw": "--all", "tries": "--try", "scenario": "SCENARIO"}
"""Flags that are not spelt as their fields are named."""
OTHERWISE = {
    ("serve", "precision"): "serving plans take --fix weights=fp8 and --fix kv=fp8",
    ("serve", "price"): "serving plans take a price with the GPU type (--cluster dgx-h100=8@2.5)",
    **{("serve", name): "only plans of diffusion models read it" for name in words("steps latency")},
}
"""What says the same in a question that does not read a flag."""

QuestionT = TypeVar("QuestionT", bound=QuestionFlags)


def flag(name: str) -> str:
    """A field's spelling on the command line."""
    return SPELLINGS.get(name, f"--{name.replace('_', '-')}")


def readers(name: str) -> list[str]:
    """Questions that read a flag."""
    return list(dict.fromkeys(kind.name for kind in ASKED if name in kind.__dataclass_fields__))


def read_as(kind: type[QuestionT], values: Mapping[str, Any], why: str = "") -> QuestionT:
    """Flags of one question, out of those of a command that answers several.

    Args:
        kind: the question.
        values: by name, of all questions of the command.
        why: reason of refusals; by default the questions that read the flag.

    Raises:
        InputError: a flag is given that the question does not read.
    """
    defaults = {each.name: each.default for reader in ASKED for each in fields(reader)}
    for name, value in values.items():
        if name not in kind.__dataclass_fields__ and value != defaults[name]:
            others = [f"plan {reader}" for reader in readers(name) if reader != kind.name]
            instead = f"it is of {' and of '.join(others)}, not of plan {kind.name}"
            reason = why or OTHERWISE.get((kind.name, name), instead)
            raise InputError(f"{reason}; leave it out", flag(name))
    return kind(**{name: value for name, value in values.items() if name in kind.__dataclass_fields__})


@dataclass(frozen=True)
class Part:
    """A part of a question that reads fewer flags than the question.

    Attributes:
        unread: flags that it does not read.
        why: reason of refusals.
    """

    unread: tuple[str, ...]
    why: str


ONE_SIZE = words("recipe offload schedules proven more site trials")
"""Flags that only rankings of training plans at one size read."""
PARTS = {
    "runs": Part((*ONE_SIZE, "save", "csv"), "rankings of one size read it"),
    "sizes": Part((*ONE_SIZE, "save", "csv"), "rankings of one size read it"),
    "fronts": Part(ONE_SIZE, "rankings of one size read it"),
    "groups": Part(
        words("recipe offload proven more site trials refine raw pareto"),
        "a ranking of groups does not read it",
    ),
    "fronts of deployments": Part(
        words("watts requests speculate kv site tries pools deadline"), "fronts do not read it"
    ),
    "not refined": Part(words("executor address workers store"), "it says where --refine runs"),
    "not saved": Part(("rank",), "it says which plan --save writes"),
}


def refuse_unread(flags: QuestionFlags, part: str) -> None:
    """Refuse flags that a part of a question does not read.

    Raises:
        InputError: such a flag is given.
    """
    unread = PARTS[part]
    refuse_given(given_of(flags, unread.unread), unread.why)


def given_of(flags: QuestionFlags, names: Iterable[str]) -> dict[str, Any]:
    """Flags that differ from their defaults, by their spelling."""
    defaults = flags.__dataclass_fields__
    return {
        flag(name): getattr(flags, name)
        for name in names
        if name in defaults and getattr(flags, name) != defaults[name].default
    }


def refuse_given(flags: Mapping[str, Any], why: str) -> None:
    """Refuse flags that are not None.

    Raises:
        InputError: such a flag is given.
    """
    for spelling, value in flags.items():
        if value is not None:
            raise InputError(f"{why}; leave it out", spelling)
