"""``meshwright plan train | serve | mix | day | size | rl``: one question each, with flags of ``plan``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import OptionInfo

from meshwright.commands.flags import PlanFlags, options_of, with_signature
from meshwright.commands.options import SERVING

MORE = "More options"
EXECUTION = ("executor", "address", "workers", "store")
OUTPUT = ("pareto", "rank", "html", "csv")


def words(names: str, *more: str) -> tuple[str, ...]:
    """Names between blanks, and further ones."""
    return (*names.split(), *more)


Types = Annotated[
    str,
    typer.Option(
        "--types", metavar="TYPES", help="GPU types: l4,a100-sxm-80gb=8,h100-sxm@2.5 (=maximum, @price)."
    ),
]
Rates = Annotated[
    str,
    typer.Option("--rates", metavar="RATES", help="Requests per second in equal parts of a day: 2,5,9,4."),
]
Tokens = Annotated[str, typer.Option("--tokens", metavar="N", help="Training tokens (15e12, 15T).")]


@dataclass(frozen=True)
class PlanQuestion:
    """One question of ``plan``.

    Attributes:
        help: for people; its first line is the summary.
        first: flags of the first screen of ``--help``, the scenario first.
        rest: other flags that the question reads.
        fixed: values of flags that the question implies.
        own: flags that the question spells itself, and their types; they are required.
    """

    help: str
    first: tuple[str, ...]
    rest: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags that the question reads, in the order of ``--help``."""
        return (*self.first, *self.rest)


QUESTIONS = {
    "train": PlanQuestion(
        """Search the parallel layouts of a training job, and rank the plans that fit.

    [bold]Example:[/bold] meshwright plan train --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8k --global-batch 128
    """,  # noqa: E501 - one line to copy
        words("scenario model cluster gpus seq_len global_batch precision framework fix save json"),
        words(
            "batch_tokens adapter price limit allow objective top headroom offload schedules raw proven more",
            *words("trials folder site refine"),
            *EXECUTION,
            *OUTPUT,
        ),
    ),
    "serve": PlanQuestion(
        """Search serving deployments within latency targets, and rank them.

    [bold]Example:[/bold] meshwright plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501
        ("scenario", "model", "cluster", "gpus", "isl", "osl", "rate", "ttft", "tpot", "save", "json"),
        (
            *words("concurrency use requests prefix speculate kv engine fix limit objective"),
            *words("together watts top more refine tries site"),
            *EXECUTION,
            *OUTPUT,
        ),
        {"serve": True},
    ),
    "mix": PlanQuestion(
        """Rent the cheapest mix of GPU types that carries a load within its latency targets.

    [bold]Example:[/bold] meshwright plan mix --types l4,a100-sxm-80gb=8,h100-sxm@2.5 --model llama3.1-8b --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501
        ("scenario", "mix", "model", "isl", "osl", "rate", "ttft", "tpot", "watts", "refine", "json"),
        ("engine", "fix", "limit", "together", "html"),
        own={"mix": Types},
    ),
    "day": PlanQuestion(
        """Plan the replicas of a deployment over a day of changing load.

    [bold]Example:[/bold] meshwright plan day --rates 2,5,9,4 --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501
        ("scenario", "day", "model", "cluster", "gpus", "isl", "osl", "ttft", "tpot", "cold_start", "json"),
        ("engine", "fix", "limit", "refine", "html"),
        own={"day": Rates},
    ),
    "size": PlanQuestion(
        """Choose the number of GPUs: days, dollars and energy of a training run over sizes and clusters.

    [bold]Example:[/bold] meshwright plan size --tokens 15T --days 60 --model llama3.1-70b --cluster dgx-h100,dgx-b200 --gpus 256..2048 --seq-len 8k --batch-tokens 4M
    """,  # noqa: E501
        words("scenario tokens days budget model cluster gpus seq_len global_batch batch_tokens json"),
        words("price html precision adapter framework fix limit allow objective headroom"),
        own={"tokens": Tokens},
    ),
    "rl": PlanQuestion(
        """Split devices between the trainer and the rollout engine of post-training, and rank the plans.

    [bold]Example:[/bold] meshwright plan rl rl-qwen3-30b --staleness 1
    """,
        words("scenario staleness top save rank json"),
    ),
}
"""Questions of ``plan`` by name; `meshwright plan SCENARIO` reads the question off the scenario."""


ASKED_AS = {"size": "train", "mix": "serve", "day": "serve"}
"""Questions that take the scenarios of another one."""
KINDS = {"train": "training", "serve": "serving", "rl": "post-training"}


SPELT = {"--mix": ("mix", "--types"), "--day": ("day", "--rates")}
"""Flags of ``plan`` that a question spells otherwise: the question, and its spelling."""


def flags_of(name: str) -> tuple[str, ...]:
    """Flags that a question reads: its own, and those of ``plan`` that no question lists."""
    listed = {flag for question in QUESTIONS.values() for flag in (*question.flags, *question.fixed)}
    more = {flag.name: _serves(flag.annotation) for flag in options_of(PlanFlags) if flag.name not in listed}
    reads = {"train": False, "serve": True}
    return (*QUESTIONS[name].flags, *(flag for flag, serves in more.items() if serves == reads.get(name)))


def _serves(kind: Any) -> bool:
    """Whether an option is shown among those of serving plans."""
    return any(info.rich_help_panel == SERVING for info in get_args(kind)[1:] if isinstance(info, OptionInfo))


def question_command(name: str) -> Callable[..., None]:
    """The function of ``plan NAME``, with the signature of its flags."""
    question = QUESTIONS[name]
    known = {flag.name: flag for flag in options_of(PlanFlags)}
    parameters = []
    for flag in flags_of(name):
        panel = None if flag in question.first else MORE
        if flag in question.own:
            kind = _in_panel(question.own[flag], panel)
            parameters.append(known[flag].replace(default=inspect.Parameter.empty, annotation=kind))
        else:
            parameters.append(known[flag].replace(annotation=_in_panel(known[flag].annotation, panel)))
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    def run(**values: Any) -> None:
        from core.errors import InputError
        from meshwright.commands.plan import answer
        from meshwright.questions.numbers import number

        if name == "size":
            values["tokens"] = number(values["tokens"], "--tokens")
        check_kind(name, values["scenario"])
        try:
            answer(PlanFlags(**question.fixed, **values))
        except InputError as error:
            if error.where in SPELT and name in SPELT[error.where]:
                raise InputError(error.problem, SPELT[error.where][1]) from None
            raise

    run.__doc__ = question.help
    return with_signature(run, parameters)


def check_kind(name: str, scenario: str) -> None:
    """Refuse a scenario of another kind.

    Raises:
        InputError: another question of ``plan`` takes it, or none does; or ``plan rl`` without one.
    """
    from core.errors import InputError
    from meshwright.commands.serving_plan import planned_by

    asks = ASKED_AS.get(name, name)
    if not scenario and asks == "rl":
        raise InputError("a scenario with workload.kind: rl is needed, for instance rl-qwen3-30b", "SCENARIO")
    if scenario and (other := planned_by(scenario)) != asks:
        if not other:
            raise InputError(f"no question of plan takes it: meshwright simulate {scenario}", scenario)
        raise InputError(f"is a {KINDS[other]} scenario: meshwright plan {other} {scenario}", scenario)


def _in_panel(kind: Any, panel: str | None) -> Any:
    """An option of ``plan`` in a panel of its own ``--help``."""
    if get_origin(kind) is not Annotated:
        return kind
    first, *rest = get_args(kind)
    moved = []
    for info in rest:
        if isinstance(info, OptionInfo):
            copied = OptionInfo.__new__(OptionInfo)
            copied.__dict__.update(vars(info))
            copied.rich_help_panel = panel
            info = copied
        moved.append(info)
    return Annotated[(first, *moved)]
