"""What searches promise beside what anybody reached: families' first choices over their best measured runs.

    python -m benchmarks.promised RUNS.csv [MORE.csv ...] [--only WORDS] [--kind KIND]
        [--every-lever] [--write]

A family is a model, device, sequence, format and code base; its question is the one with the most devices,
its best run the best of the files and of the rows that ship. Of it a search gets what
``benchmarks.proven`` gives it, without levers that came after the best run's release
(``release_lacks`` of evidence/training/sources.yaml) unless all are asked for. The runs of the best run's
source are left out of the domains of levers, and of the evidence that decides how wide bands are. Rows that
count in no figure, or whose framework another one stands for, and families of fewer than 8 devices are left
out, as are releases without levers to search. Printed for each kind: predicted speed of the first choice over
the best measured one, how often it is above 1.3, above it without a mark, and how often the measured step
lies in the first choice's band. A mark is that of answers, for which the best run is evidence too; the same
is printed of marks without the runs of its source, to which the width of marked plans is fitted, and the step
that answers expect of first choices (``ModelErrors.over_promised``). Families
whose best run has a layout that its source did not choose for speed (``given_plans``) are counted apart, and
of models with experts those whose first choice has levers that the best run had not: no run could keep them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import numpy as np
import yaml

from core.errors import MeshwrightError
from core.files import write_text
from evidence.accuracy.proven import asked_levers
from evidence.command import command
from evidence.fits.part_errors import NINE_IN_TEN, weighted_quantile
from evidence.training import lever_effects
from evidence.training.leave_out import left_out_width, measured_devices
from evidence.training.parts import lacked_levers, named, source_of, sources
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import published_files
from planner.training.constraints import Constraints
from planner.training.headroom import headroom_share
from planner.training.measured_runs import PlanEvidence, RunEvidence, measured_runs
from planner.training.metrics import utilisation
from planner.training.search import search
from simulator.frameworks import Framework, frameworks
from simulator.frameworks.code_bases import code_base
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.training.domains import used, without_source
from simulator.uncertainty import ERRORS_FILE, EVIDENCE, Evidence, band, evidence_of, kind_of, model_errors

FAR = 1.3
FEWEST_DEVICES = 8
UNDECIDABLE = ("SWIFT", "MSW", "BMT")
"""Sources whose rows state no plan that a search could be judged by (README of the collections)."""
KINDS = ("experts", "hybrids", "dense")


@dataclass(frozen=True)
class Promised:
    """A family's first choice.

    ``ratio`` is its predicted speed over the best measured one; ``width`` the half-width of its band with the
    best run's source left out, were the plan borne out by runs; ``with_source`` what all measured runs say of
    it, ``left`` what those of other sources do; ``given`` says that the layout of the best run was not chosen
    for speed; ``new`` names the levers of experts that the best run had not.
    """

    case: PredictedCase
    kind: str
    ratio: float
    width: float
    with_source: PlanEvidence
    left: PlanEvidence
    given: bool
    plan: str
    new: tuple[str, ...] = ()

    def half_width(self, rests_on: PlanEvidence) -> float:
        """Half-width of the band, wider where measured runs do not bear the plan out."""
        return self.width * (model_errors().unproven if rests_on.marked else 1.0)

    def inside(self, rests_on: PlanEvidence) -> bool:
        """Whether the measured step lies in the band of the first choice."""
        return abs(self.ratio - 1.0) <= self.half_width(rests_on)

    def line(self) -> str:
        """The family in one line."""
        setting, case = self.case.case.setting, self.case.case
        name = (
            f"{setting.model.name} {setting.cluster.devices} {setting.cluster.device.name} {case.precision}"
        )
        run_ratio = (case.measured_step_s or np.nan) / self.case.predicted_step_s
        outside = not self.inside(self.with_source)
        marks = f"{'marked' * self.with_source.marked:6s} {'outside' * outside:7s} {'given' * self.given:5s}"
        figures = f"{run_ratio:5.2f} {self.ratio:5.2f} +-{self.half_width(self.with_source):4.0%}"
        new = f"; new: {', '.join(self.new)}" if self.new else ""
        return f"{self.kind:8s}{name:46s} {figures} {marks}  {case.case_id}: {self.plan}{new}"


def families(entries: Iterable[PredictedCase]) -> list[PredictedCase]:
    """The best measured run of the largest question of each family."""
    groups: dict[tuple[object, ...], list[PredictedCase]] = defaultdict(list)
    for entry in entries:
        setting, case = entry.case.setting, entry.case
        measured = case.measured_step_s is not None and not case.is_guess and "framework" not in case.assumed
        named = source_of(case.case_id) not in UNDECIDABLE
        if measured and named and setting.framework.offers and setting.cluster.devices >= FEWEST_DEVICES:
            # Files spell the name of one model in several ways.
            model = repr(setting.model.model_copy(update={"name": ""}))
            key = model, setting.cluster.device.name, setting.training.seq_len, case.precision
            groups[*key, code_base(setting.framework.name)].append(entry)
    best = []
    for group in groups.values():
        most_devices = max(entry.case.setting.cluster.devices for entry in group)
        largest = [entry for entry in group if entry.case.setting.cluster.devices == most_devices]
        best.append(
            min(
                largest,
                key=lambda entry: (entry.case.measured_step_s or 0) / entry.case.setting.training.tokens,
            )
        )
    return best


def own_source(entry: PredictedCase) -> str:
    """The source of a run, whatever a file calls it."""
    return canonical(source_of(entry.case.case_id))


def canonical(source: str) -> str:
    """The name of a source in ``sources.yaml``."""
    return sources().same_as.get(source, source)


def of_its_time(framework: Framework, lacks: Mapping[str, Sequence[object]]) -> Framework:
    """A release that does not offer some values of levers yet."""
    offers = {
        name: [value for value in values if value not in lacks.get(name, ())]
        for name, values in framework.offers.items()
    }
    return framework.model_copy(update={"offers": offers})


def promised(
    entry: PredictedCase,
    evidence: Evidence = EVIDENCE[0],
    given: bool = False,
    lacks: Mapping[str, Sequence[object]] | None = None,
) -> Promised | None:
    """The first choice of a family's search; None where it finds none.

    Args:
        entry: the best measured run.
        evidence: what other sources measured near it.
        given: whether its layout was not chosen for speed.
        lacks: values of levers that its release lacked, by plan field.
    """
    case = entry.case
    setting = replace(
        case.setting, framework=of_its_time(frameworks.get(case.setting.framework.name), lacks or {})
    )
    with without_source(own_source(entry)):
        try:
            ranked = search(
                setting,
                setting.cluster.devices,
                Constraints.of(asked_levers(entry)),
                headroom=headroom_share(None, setting),
                alternatives=True,
            )
        except (MeshwrightError, IndexError):
            return None
        if not len(ranked.plans):
            return None
        seconds, plan = float(ranked.step.time[0]), ranked.plans.plan(0)
        others = [run for run in measured_runs() if canonical(source_of(run.case)) != own_source(entry)]
        reached = utilisation(ranked.setting, seconds, causal=True)
        confidences, left = (RunEvidence(ranked.setting, runs).of(plan, reached) for runs in (None, others))
        half = float(band(ranked.setting, ranked.step)[0]) * left_out_width(entry.case.setting, evidence)
    levers = [
        f"{n}={getattr(plan, n)}" for n in ("dispatcher", "grouped_launches", "graphs") if getattr(plan, n)
    ]
    words = [
        plan.describe(),
        f"mbs{plan.micro_batch}",
        plan.recompute,
        *levers,
        "overlap" * plan.overlap_expert,
    ]
    ratio = (case.measured_step_s or np.nan) / seconds
    new = new_levers(entry, ranked.setting.of(plan), plan)
    return Promised(
        entry, kind_of(case.setting.model), ratio, half, confidences, left, given, " ".join(words), new
    )


def new_levers(entry: PredictedCase, setting: Setting, plan: Plan) -> tuple[str, ...]:
    """Levers of experts that a plan turns on and that a family's best run had not."""
    if setting.model.moe is None or plan.expert == 1:
        return ()
    best = lever_effects.stated_levers(entry)
    return tuple(
        lever for lever, value in used(setting, plan.overlap_expert).items() if str(best[lever]) != value
    )


def unproven_width(judged: Iterable[Promised]) -> float:
    """How much wider the bands of marked plans have to be for nine of ten, each source with one vote.

    Marks are those that the best run's source has no part in: what a question of a new source meets.
    """
    marked = [choice for choice in judged if choice.left.marked and not choice.given]
    if not marked:
        return 1.0
    sizes, sources = (
        [abs(choice.ratio - 1) / choice.width for choice in marked],
        [own_source(choice.case) for choice in marked],
    )
    return max(1.0, weighted_quantile(sizes, sources, NINE_IN_TEN))


def width_lines(judged: Sequence[Promised]) -> Iterator[str]:
    """The width of marked plans' bands, and what it holds of sources that it was not fitted to."""
    marked = [choice for choice in judged if choice.left.marked and not choice.given]
    inside = [
        abs(choice.ratio - 1) / choice.width
        <= unproven_width(other for other in judged if own_source(other.case) != own_source(choice.case))
        for choice in marked
    ]
    if marked:
        yield (
            f"bands of marked plans: {unproven_width(judged):.2f} times as wide, shipped "
            f"{model_errors().unproven:.2f}; fitted to other sources they hold {np.mean(inside):.0%} of "
            f"{len(marked)}"
        )


def over_promised(judged: Iterable[Promised]) -> float:
    """Median of best measured steps over those that first choices promise, each source with one vote."""
    fair = [choice for choice in judged if not choice.given]
    if not fair:
        return 1.0
    ratios, sources = [choice.ratio for choice in fair], [own_source(choice.case) for choice in fair]
    return weighted_quantile(ratios, sources, 0.5)


def corrected(judged: Sequence[Promised]) -> np.ndarray:
    """Best measured steps over those expected of first choices by other sources, shape (fair families,)."""
    return np.array(
        [
            choice.ratio / over_promised(o for o in judged if own_source(o.case) != own_source(choice.case))
            for choice in judged
            if not choice.given
        ]
    )


def expected_shares(judged: Sequence[Promised]) -> tuple[dict[str, float], list[str]]:
    """``ModelErrors.over_promised``, and a line for each kind; it counts where other sources help."""
    shares, lines = {}, []
    for kind in KINDS:
        of_kind = [choice for choice in judged if choice.kind == kind and not choice.given]
        if not of_kind:
            continue
        ratios, nearer = np.array([choice.ratio for choice in of_kind]), corrected(of_kind)
        before, after = (float(np.median(np.abs(np.log(each)))) for each in (ratios, nearer))
        share, shipped = over_promised(of_kind), model_errors().over_promised.get(kind, 1.0)
        lines.append(
            f"{kind}: expected over promised step {share:.2f}, shipped {shipped:.2f}; by other sources "
            f"best measured over expected step {np.median(nearer):.2f} in the median, "
            f"{np.sum(nearer > FAR)} above {FAR}; median size of the logarithm {before:.3f}, then {after:.3f}"
        )
        if after < before:
            shares[kind] = round(share, 2)
    return shares, lines


def groups(judged: Sequence[Promised]) -> Iterator[tuple[str, list[Promised]]]:
    """Families of one kind that are counted together, and what they have in common."""
    fair = [choice for choice in judged if not choice.given]
    new = [choice for choice in fair if choice.new]
    old = [choice for choice in fair if not choice.new] if new else []
    layout = [choice for choice in judged if choice.given]
    parts = ("", fair), (", no new lever", old), (", new levers", new), (", layout given", layout)
    return ((words, some) for words, some in parts if some)


def summary(name: str, judged: Sequence[Promised]) -> str:
    """The figures of some families in one line."""
    ratios = np.array([choice.ratio for choice in judged])
    far = [choice for choice in judged if choice.ratio > FAR]
    words = (
        f"{name:24s} {len(judged)} families: first choice over best measured {np.median(ratios):.2f} in the "
        f"median ({ratios.min():.2f} to {ratios.max():.2f}); {len(far)} above {FAR}"
    )
    for title, evidence in (
        (", ", attrgetter("with_source")),
        ("; without the source's runs ", attrgetter("left")),
    ):
        bare = sum(not (evidence(choice).marked or evidence(choice).nowhere) for choice in far)
        share = np.mean([choice.inside(evidence(choice)) for choice in judged])
        half = np.median([choice.half_width(evidence(choice)) for choice in judged])
        band = f"measured step inside the band {share:.0%}, half-width {half:.0%}"
        words += f"{title or ', '}{bare} unmarked, {band}"
    return words


@command
def main(
    files: Sequence[Path],
    *,
    only: Annotated[str, "models whose name has these words"] = "",
    kind: Annotated[str | None, KINDS] = None,
    every_lever: Annotated[bool, "search levers that came after the best run's release too"] = False,
    write: Annotated[bool, f"write widths and expected steps to {ERRORS_FILE.name}"] = False,
) -> None:
    """Print every family and the figures by kind."""
    files = [*files, *published_files()]
    undecidable = set[str]().union(*(named(path, sources().no_figure) for path in files))
    entries = [entry for entry in evaluate(files).entries if entry.case.case_id not in undecidable]
    given_cases = set[str]().union(*(named(path, sources().given_plans) for path in files))
    lacked = (
        {}
        if every_lever
        else {case: levers for path in files for case, levers in lacked_levers(path).items()}
    )
    devices = {
        source: measured_devices(entry.case for entry in entries if own_source(entry) != source)
        for source in {own_source(entry) for entry in entries}
    }
    judged: list[Promised] = []
    print("family: best measured speed over its plan's prediction, first choice over best measured, band")
    for entry in families(entries):
        if only in entry.case.setting.model.name and kind in (
            None,
            kind_of(entry.case.setting.model),
        ):
            closest = evidence_of(entry.case.setting, devices[own_source(entry)])
            case_id = entry.case.case_id
            lacks = None if every_lever else lacked.get(case_id)
            choice = promised(entry, closest, case_id in given_cases, lacks)
            if choice is None:
                print(f"{case_id}: no plan found", file=sys.stderr)
                continue
            print(choice.line(), flush=True)
            judged.append(choice)
    for name in KINDS:
        for words, group in groups([choice for choice in judged if choice.kind == name]):
            print(summary(name + words, group))
    shares, lines = expected_shares(judged)
    for line in (*lines, *width_lines(judged)):
        print(line)
    if write:
        update = {"unproven": round(unproven_width(judged), 2), "over_promised": shares}
        fitted = model_errors().model_copy(update=update)
        write_text(ERRORS_FILE, yaml.safe_dump(fitted.model_dump(), sort_keys=False, width=110))
