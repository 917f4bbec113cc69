"""The best plan that a search finds beside the best published one, and the parts that the gain rests on.

``benchmarks.choosing`` prints these lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from core.errors import MeshwrightError
from meshwright.validation.ledger import PredictedCase
from planner.training.constraints import Constraints
from planner.training.search import search
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.training import Step, predict
from simulator.uncertainty import default_headroom

SOFTWARE = (
    "zero",
    "context_algorithm",
    "overlap_gradients",
    "overlap_parameters",
    "overlap_tensor",
    "overlap_pipeline",
    "overlap_expert",
)
"""Fields of a plan that its software sets: a search takes them from the published plan."""
SCHEDULES = ("1f1b", "interleaved")
"""Schedules of programs whose measured runs have no pipeline; other programs have those of their runs."""
RECOMPUTATIONS = ("none", "full")
"""Recomputations of every program; others only where the published plan has them."""
SHOWN = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
    "micro_batch",
    "schedule",
    "recompute",
)
"""Fields that a comparison names where they differ."""
LEAST_SHARE = 0.005
"""Parts that differ by less than this share of the published plan's step are not named."""
LEAST_GAIN = 0.02
"""Gains below it are within the spread of repeated runs."""
FEWEST_DEVICES = 8
"""Questions on fewer devices are left out: nothing to lay out."""


@dataclass(frozen=True)
class Comparison:
    """A published plan beside the best plan of a search; step times in seconds.

    Attributes:
        case: the fastest measured case of the question.
        ours: the best plan that a search finds, none where it finds none (``problem`` says why).
        gain: predicted speed of ``ours`` over the predicted speed of the published plan, less 1.
        saves, costs: parts of the step and their difference as shares of the published plan's step.
        untested: fields of ``ours`` and values that no measured run of the same program and device has.
    """

    case: PredictedCase
    ours: Plan | None
    our_seconds: float = 0.0
    gain: float = 0.0
    saves: tuple[tuple[str, float], ...] = ()
    costs: tuple[tuple[str, float], ...] = ()
    untested: tuple[str, ...] = ()
    problem: str = ""

    def lines(self) -> Iterator[str]:
        """The comparison for people, one fact a line."""
        case, setting = self.case.case, self.case.case.setting
        yield (
            f"{setting.model.name}, {setting.cluster.devices} {setting.cluster.device.name}, batch "
            f"{setting.training.global_batch}, {case.precision}, {setting.framework.name} ({case.case_id})"
        )
        measured = case.measured_step_s or 0.0
        error = self.case.predicted_step_s / measured - 1
        yield (
            f"  published   {described(case.plan)}: {measured:.4g} s measured, "
            f"{self.case.predicted_step_s:.4g} s predicted ({error:+.1%})"
        )
        if self.ours is None:
            yield f"  best found  none: {self.problem}"
            return
        words = f"{described(self.ours)}: {self.our_seconds:.4g} s predicted"
        yield f"  best found  {words}, {self.gain:+.1%} of speed"
        for title, parts in (("saves", self.saves), ("costs", self.costs)):
            if parts:
                yield f"  {title:11} {', '.join(f'{name} {share:.1%}' for name, share in parts)}"
        if self.untested:
            yield f"  unmeasured  {', '.join(self.untested)}"


def described(plan: Plan) -> str:
    """A plan's degrees, micro batch and recomputation, and its schedule where its degrees do not say it."""
    words = [plan.describe(), f"micro {plan.micro_batch}"]
    if plan.recompute != "none":
        words.append(f"recompute {plan.recompute}")
    if plan.pipeline > 1 and plan.schedule not in SCHEDULES:
        words.append(plan.schedule)
    return ", ".join(words)


def published_best(entries: Iterable[PredictedCase]) -> list[PredictedCase]:
    """The fastest measured case of each family's largest question.

    A family is one source, model, device, format and program. Its largest question has the most devices,
    then the largest batch.
    """
    families: dict[tuple[str, ...], dict[str, list[PredictedCase]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        setting = entry.case.setting
        if entry.case.measured_step_s is None or setting.cluster.devices < FEWEST_DEVICES:
            continue
        source = re.split(r"[-_\d]", entry.case.case_id, maxsplit=1)[0]
        family = source, setting.model.name, setting.cluster.device.name, entry.case.precision
        families[*family, setting.framework.name][repr(setting)].append(entry)
    best = []
    for questions in families.values():
        largest = max(questions.values(), key=lambda group: _size(group[0]))
        best.append(min(largest, key=lambda entry: entry.case.measured_step_s or 0.0))
    return best


def _size(entry: PredictedCase) -> tuple[int, int]:
    setting = entry.case.setting
    return setting.cluster.devices, setting.training.global_batch


class Practice:
    """What measured runs of a program on a device did."""

    def __init__(self, entries: Iterable[PredictedCase]) -> None:
        self._values: dict[tuple[str, str, str], set[object]] = defaultdict(set)
        self._sharded: dict[str, set[bool]] = defaultdict(set)
        self._schedules: dict[str, set[str]] = defaultdict(set)
        self._context: dict[str, int] = defaultdict(int)
        for entry in entries:
            setting, plan = entry.case.setting, entry.case.plan
            if entry.case.measured_step_s is None:
                continue
            for name in SHOWN:
                key = setting.framework.name, setting.cluster.device.name, name
                self._values[key].add(getattr(plan, name))
            name = setting.framework.name
            self._context[name] = max(self._context[name], plan.context)
            if plan.tensor > 1:
                self._sharded[name].add(plan.sequence_parallel)
            if plan.pipeline > 1 and get_schedule(plan.schedule).has_closed_form:
                self._schedules[name].add(plan.schedule)

    def schedules(self, framework: str) -> tuple[str, ...]:
        """Schedules that a program's runs have and that a search can score."""
        return tuple(sorted(self._schedules[framework])) or SCHEDULES

    def has_context(self, framework: str) -> bool:
        """Whether a run of a program has context parallelism."""
        return self._context[framework] > 1

    def sequence_parallel(self, framework: str) -> bool | None:
        """Whether a program's runs with tensor parallelism shard the sequence; none where they differ."""
        seen = self._sharded[framework]
        return next(iter(seen)) if len(seen) == 1 else None

    def untested(self, entry: PredictedCase, plan: Plan) -> tuple[str, ...]:
        """Fields whose value no measured run of the same program and device has."""
        setting = entry.case.setting
        return tuple(
            f"{name} {getattr(plan, name)}"
            for name in SHOWN
            if getattr(plan, name)
            not in self._values[setting.framework.name, setting.cluster.device.name, name]
        )


def compare(entry: PredictedCase, practice: Practice) -> Comparison:
    """Search the question of a published plan, with what its software sets, and compare.

    Schedules and context parallelism are those of the program's runs; recomputation is none, full, or as
    published. Memory keeps the headroom of ``meshwright plan``, or less where the published plan, which ran,
    is predicted to leave less.
    """
    setting, published = entry.case.setting, entry.case.plan
    free = 1 - entry.predicted_peak_bytes / setting.cluster.device.memory_bytes
    headroom = min(max(free, 0.0), default_headroom(setting))
    timed: list[tuple[float, Plan]] = []
    problem = "no plan is predicted to fit"
    for constraints in _searches(entry, practice):
        try:
            result = search(setting, setting.cluster.devices, constraints, top=1, headroom=headroom)
        except MeshwrightError as error:
            problem = str(error)
            continue
        if len(result.plans):
            timed.append((float(result.step.time[0]), result.plans.plan(0)))
    if not timed:
        return Comparison(entry, None, problem=problem)
    seconds, ours = min(timed, key=lambda each: each[0])
    saves, costs = (), ()
    if get_schedule(published.schedule).has_closed_form:
        saves, costs = _parts(*(predict(setting, Plans.of(plan)) for plan in (published, ours)))
    gain = entry.predicted_step_s / seconds - 1
    return Comparison(entry, ours, seconds, gain, saves, costs, practice.untested(entry, ours))


def _searches(entry: PredictedCase, practice: Practice) -> Iterator[Constraints]:
    published, program = entry.case.plan, entry.case.setting.framework.name
    fixed = {name: getattr(published, name) for name in SOFTWARE}
    if practice.sequence_parallel(program) is False:
        fixed["sequence_parallel"] = False
    if not practice.has_context(program):
        fixed["context"] = 1
    if published.expert_tensor > 1:
        fixed["expert_tensor"] = published.expert_tensor
    # One pipeline stage has no schedule but 1F1B.
    schedules = dict.fromkeys(("1f1b", *practice.schedules(program)))
    for recompute in dict.fromkeys((*RECOMPUTATIONS, published.recompute)):
        for schedule in schedules:
            yield Constraints(fixed={**fixed, "recompute": recompute, "schedule": schedule})


def _parts(published: Step, ours: Step) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Parts that our plan saves and costs, the largest first, as shares of the published plan's step."""
    total = float(published.time[0])
    saved = {
        name: float(seconds[0] - ours.seconds[name][0]) / total for name, seconds in published.seconds.items()
    }
    order = sorted(saved, key=lambda name: -abs(saved[name]))
    saves = tuple((name, saved[name]) for name in order if saved[name] >= LEAST_SHARE)
    costs = tuple((name, -saved[name]) for name in order if saved[name] <= -LEAST_SHARE)
    return saves, costs


def summary(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Lines that sum up comparisons."""
    gains = sorted(each.gain for each in comparisons if each.ours is not None)
    if not gains:
        return
    yield (
        f"{len(gains)} families: our best is predicted {median(gains):+.1%} faster in the median, "
        f"{gains[0]:+.1%} to {gains[-1]:+.1%}; {sum(gain < LEAST_GAIN for gain in gains)} gain less than "
        f"{LEAST_GAIN:.0%}"
    )
    tested = sorted(each.gain for each in comparisons if each.ours is not None and not each.untested)
    if tested:
        yield (
            f"{len(tested)} of the plans found use only values of runs with the same program and device: "
            f"{median(tested):+.1%} in the median, at most {tested[-1]:+.1%}"
        )
