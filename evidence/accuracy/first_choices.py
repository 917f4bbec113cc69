"""First choices of searches beside published plans, family by family of Megatron Bridge's tables.

A family is a model, GPU, number of GPUs, sequence and number format. The search gets the question of its best
measured row, without recipes: the plan is found over the levers that the release offers.
``benchmarks.choosing`` prints these lines.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.errors import MeshwrightError
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import PUBLISHED
from planner.training.constraints import Constraints
from planner.training.headroom import headroom_share
from planner.training.lever_space import SEARCHED
from planner.training.search import search
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.plan import Plan

TABLES = PUBLISHED / "megatron_bridge.csv"
SLOWER, BELOW, ABOVE = 0.02, 0.08, 0.25
"""Limits of the counts: below the published plan's prediction; below, and above, the best measured run."""
STRUCTURE = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
    "expert_tensor",
    "micro_batch",
    "schedule",
    "zero",
)
OF_QUESTION = {
    "trains_mtp": (True, False),
    "attention": ("flash-mx8", "unfused"),
    "narrow_output": (True,),
    "fused_latent_rope": (False,),
}
"""Levers of a row that are part of its question, and their values: whether a layer is trained, which products
run in 8 bits, and that a release has no fused attention or rotation for a model's heads, is no choice of
speed."""


@dataclass(frozen=True)
class FirstChoice:
    """A family's best measured run beside the first choice of a search; rates in tokens/s/GPU.

    Attributes:
        case: the best measured run, with the prediction of its own plan.
        measured, published, first: rates measured, predicted for its plan and for the first choice.
        plan: the first choice; None where nothing fits (``problem``).
        absent: why the published plan is not in the space, empty if it is.
        peak: its share of the device's memory; ``room`` the share that a search may fill.
        cpu_s: CPU time of the search, s.
    """

    case: PredictedCase
    measured: float
    published: float
    first: float
    plan: Plan | None
    absent: str
    peak: float
    room: float
    cpu_s: float
    problem: str = ""

    @property
    def against_published(self) -> float:
        """Predicted rate of the first choice over that of the published plan, less 1."""
        return self.first / self.published - 1

    @property
    def against_measured(self) -> float:
        """Predicted rate of the first choice over the best measured one, less 1."""
        return self.first / self.measured - 1

    @property
    def shown(self) -> bool:
        """Whether the published plan is in the space and fits with the default headroom."""
        return not self.absent and self.peak <= self.room

    def line(self) -> str:
        """The family in one line."""
        setting, plan = self.case.case.setting, self.plan
        name = f"{setting.model.name} {setting.cluster.devices} {setting.cluster.device.name}"
        words = "none: " + self.problem
        if plan is not None:
            levers = [str(getattr(plan, key)) for key in [*SEARCHED][:3] if getattr(plan, key)]
            levers += ["overlap"] * plan.overlap_expert + ["+".join(plan.recompute_modules or ())]
            words = (
                f"{plan.describe()} mbs{plan.micro_batch} Z{plan.zero} {plan.recompute} {' '.join(levers)}"
            )
        note = "" if self.shown else f" [{self.absent or 'headroom'}]"
        return (
            f"{name:34s} {self.case.case.precision:6s} {self.measured:8,.0f} {self.published:8,.0f} "
            f"{self.first:8,.0f} {self.against_published:+7.1%} {self.against_measured:+7.1%} "
            f"{self.peak:5.0%} {self.cpu_s:5.1f}s  {words.strip()}{note}"
        )


def families(entries: Iterable[PredictedCase]) -> list[PredictedCase]:
    """The best measured run of each family."""
    groups: dict[tuple[object, ...], list[PredictedCase]] = defaultdict(list)
    for entry in entries:
        setting = entry.case.setting
        if entry.case.measured_step_s is not None:
            key = setting.model.name, setting.cluster.device.name, setting.cluster.devices
            groups[*key, setting.training.seq_len, entry.case.precision].append(entry)
    return [min(group, key=_seconds_a_token) for group in groups.values()]


def _seconds_a_token(entry: PredictedCase) -> float:
    return (entry.case.measured_step_s or np.inf) / entry.case.setting.training.tokens


def _stated(entry: PredictedCase) -> dict[str, object]:
    """Plan fields of a measured run, and of its release where the plan leaves them out."""
    return {**entry.case.setting.framework.defaults, **entry.case.plan.model_dump()}


def asked_levers(entry: PredictedCase) -> dict[str, object]:
    """The levers of a measured run that are part of its question."""
    stated = _stated(entry)
    return {name: stated[name] for name, values in OF_QUESTION.items() if stated.get(name) in values}


def first_choice(entry: PredictedCase) -> FirstChoice:
    """Search the question of a measured run and compare."""
    case = entry.case
    setting = replace(case.setting, framework=frameworks.get(case.setting.framework.name))
    fixed = asked_levers(entry)
    headroom = headroom_share(None, setting)
    tokens = setting.training.tokens / setting.cluster.devices
    start, rate, plan, problem = time.process_time(), 0.0, None, ""
    try:
        ranked = search(
            setting, setting.cluster.devices, Constraints.of(fixed), headroom=headroom, alternatives=True
        )
        if len(ranked.plans):
            rate, plan = tokens / float(ranked.step.time[0]), ranked.plans.plan(0)
        problem = "" if len(ranked.plans) else "nothing fits"
    except MeshwrightError as error:
        problem = str(error)
    return FirstChoice(
        case=entry,
        measured=tokens / (case.measured_step_s or np.nan),
        published=tokens / entry.predicted_step_s,
        first=rate,
        plan=plan,
        absent=_absent(
            Space.of(setting, setting.cluster.devices, headroom=headroom), case.plan, _stated(entry)
        ),
        peak=entry.predicted_peak_bytes / setting.cluster.device.memory_bytes,
        room=1 - headroom,
        cpu_s=time.process_time() - start,
        problem=problem,
    )


def _absent(space: Space, plan: Plan, fields: dict[str, object]) -> str:
    """The first field whose value the space lacks, and the value."""
    for name in STRUCTURE:
        if getattr(plan, name) not in space.values[name] and name != "recompute":
            return f"{name}={getattr(plan, name)}"
    levers, choices = space.levers, space.setting.choices
    if levers is None:
        return ""
    offered = space.setting.framework.offers
    for name in SEARCHED:
        value = fields.get(name)
        usual = getattr(choices, name, False)
        if value not in (None, usual, *offered.get(name, ()), *levers.values[name]):
            return f"{name}={value}"
    return ""


def lines(choices: list[FirstChoice]) -> Iterator[str]:
    """One line a family, then the counts."""
    yield "family, tokens/s/GPU: best measured, its plan predicted, first choice predicted"
    for choice in choices:
        yield choice.line()
    many = len(choices)
    slower = [choice for choice in choices if choice.against_published < -SLOWER]
    below = [choice for choice in choices if choice.against_measured < -BELOW]
    above = [choice for choice in choices if choice.against_measured > ABOVE]
    listed = [choice for choice in choices if choice.shown]
    worst = min((choice.against_published for choice in choices), default=0.0)
    yield f"{many} families"
    yield f"  first choice over {SLOWER:.0%} slower than the published plan, both predicted: {len(slower)}"
    fitting = sum(choice.shown for choice in slower)
    yield f"    of them with a published plan that the search could have shown: {fitting}"
    yield f"  worst first choice against the published plan's prediction: {worst:+.1%}"
    yield f"  first choice over {BELOW:.0%} below the best measured run: {len(below)}"
    yield f"  first choice over {ABOVE:.0%} above the best measured run: {len(above)}"
    absent = sum(bool(choice.absent) for choice in choices)
    count = f"{len(listed)} of {many} ({absent} absent)"
    yield f"  published plan in the space and not removed by headroom: {count}"


def first_choices(path: Path = TABLES, beginnings: Iterable[str] = ()) -> list[FirstChoice]:
    """The first choice of each family of a file, of models that begin with some words."""
    choices = []
    for entry in families(evaluate([path]).entries):
        name = entry.case.setting.model.name
        if not beginnings or name.startswith(tuple(beginnings)):
            print(f"searching {entry.case.case_id} ...", file=sys.stderr)
            choices.append(first_choice(entry))
    return choices
