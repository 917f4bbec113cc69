"""``meshwright plan train | serve | mix | day | size | rl``: one question each, with its own flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from typer.models import OptionInfo

from meshwright.commands.flags import parameters_of, with_signature
from meshwright.commands.plan_flags import ASKED, QuestionFlags

MORE = "More options"

HELP = {
    "train": """Search the parallel layouts of a training job, and rank the plans that fit.

    [bold]Example:[/bold] meshwright plan train --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8k --global-batch 128
    """,  # noqa: E501 - one line to copy
    "serve": """Search serving deployments within latency targets, and rank them.

    [bold]Example:[/bold] meshwright plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501 - one line to copy
    "mix": """Rent the cheapest mix of GPU types that carries a load within its latency targets.

    [bold]Example:[/bold] meshwright plan mix --types l4,a100-sxm-80gb=8,h100-sxm@2.5 --model llama3.1-8b --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501 - one line to copy
    "day": """Plan the replicas of a deployment over a day of changing load.

    [bold]Example:[/bold] meshwright plan day --rates 2,5,9,4 --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --ttft 0.5 --tpot 0.03
    """,  # noqa: E501 - one line to copy
    "size": """Choose the number of GPUs: days, dollars and energy of a training run over sizes and clusters.

    [bold]Example:[/bold] meshwright plan size --tokens 15T --days 60 --model llama3.1-70b --cluster dgx-h100,dgx-b200 --gpus 256..2048 --seq-len 8k --batch-tokens 4M
    """,  # noqa: E501 - one line to copy
    "rl": """Split devices between the trainer and the rollout engine of post-training, and rank the plans.

    [bold]Example:[/bold] meshwright plan rl --model qwen3-8b --cluster dgx-h100 --gpus 16

    [bold]With a workload of one's own:[/bold] meshwright plan rl rl-qwen3-30b --staleness 1
    """,
}
"""Help of each question; its first line is the summary."""

ASKED_AS = {"size": "train", "mix": "serve", "day": "serve"}
"""Questions that take the scenarios of another one."""
KINDS = {"train": "training", "serve": "serving", "rl": "post-training"}


def kinds_of(name: str) -> list[type[QuestionFlags]]:
    """Flags of a question; of ``plan serve`` those of diffusion models too."""
    return [kind for kind in ASKED if kind.name == name]


def question_command(name: str) -> Callable[..., None]:
    """The function of ``plan NAME``, with the signature of its flags."""
    kinds = kinds_of(name)
    read, first = parameters_of(kinds), kinds[0].first
    parameters = [
        read[flag].replace(annotation=_in_panel(read[flag].annotation, None if flag in first else MORE))
        for flag in (*first, *(flag for flag in read if flag not in first))
    ]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    def run(**values: Any) -> None:
        from meshwright.commands.plan import answer

        check_kind(name, values["scenario"])
        answer(name, values)

    run.__doc__ = HELP[name]
    return with_signature(run, parameters)


def check_kind(name: str, scenario: str) -> None:
    """Refuse a scenario of another kind.

    Raises:
        InputError: another question of ``plan`` takes it, or none does.
    """
    from core.errors import InputError
    from meshwright.commands.serving_plan import planned_by

    asks = ASKED_AS.get(name, name)
    if scenario and (other := planned_by(scenario)) != asks:
        if not other:
            raise InputError(f"no question of plan takes it: meshwright simulate {scenario}", scenario)
        raise InputError(f"is a {KINDS[other]} scenario: meshwright plan {other} {scenario}", scenario)


def _in_panel(kind: Any, panel: str | None) -> Any:
    """An option of ``plan`` in a panel of its own ``--help``."""
    if get_origin(kind) is not Annotated:
        return kind
    first, *rest = get_args(kind)
    in_panel = []
    for info in rest:
        if isinstance(info, OptionInfo):
            copied = OptionInfo.__new__(OptionInfo)
            copied.__dict__.update(vars(info))
            copied.rich_help_panel = panel
            info = copied
        in_panel.append(info)
    return Annotated[(first, *in_panel)]
