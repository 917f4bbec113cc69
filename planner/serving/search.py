"""Exact search of serving deployments on the steady state: one pool, or prefill and decode pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from core.errors import InfeasibleError
from planner.serving.alternatives import attention_apart, chosen_rows
from planner.serving.attention_sides import POOL
from planner.serving.closed_clients import closed_phases
from planner.serving.engine_options import drafting_shapes, with_settings, with_switches
from planner.serving.pairs import score_deployments
from planner.serving.plan import ServingPlan
from planner.serving.preferred import Measured
from planner.serving.question import ServingQuestion
from planner.serving.roles import Phase, phases
from planner.serving.scored_deployments import Scores
from planner.serving.shapes import ReplicaShape, choices, nothing_fits, shapes
from planner.serving.variants import Variant, variants
from simulator.serving.question.speculation import Speculation


@dataclass(frozen=True, eq=False)
class ServingSearch:
    """The best deployments, and the counts of removed candidates."""

    question: ServingQuestion
    plans: Sequence[ServingPlan]
    """The first choice, then others, the best of them first."""
    reasons: Sequence[str]
    """Why each plan is shown; see `shown.chosen_rows`."""
    candidates: int
    scored: int
    removed: dict[str, int]
    most: ServingPlan | None = field(default=None)
    """The plan that carries most on all devices, beside the one that carries a stated rate at least cost."""
    guessed: ServingPlan | None = field(default=None)
    """The best plan with an assumed acceptance of drafts, where it beats the first, which has none."""
    fastest: tuple[ServingPlan, float, float] | None = field(default=None)
    """The plan that is fastest for one user, with its TTFT and TPOT for a lone request, s."""
    variants: Sequence[Variant] = ()
    """The best layouts in other number formats, which change what the model answers."""
    nearest: ServingPlan | None = field(default=None)
    """Where nothing meets the targets: the plan that carries most within them; if none carries any load, the
    plan whose latency is closest to its target."""

    apart: bool = False
    """Whether a row with attention on devices of its own meets the targets."""

    @property
    def runner_up_gap(self) -> float | None:
        """What the second plan gives up to the first, a share; negative where it is better."""
        if len(self.plans) < 2:
            return None
        first, second = (plan.figure(self.question.objective) for plan in self.plans[:2])
        if not first:
            return None
        return 1 - second / first if self.question.objective == "goodput" else second / first - 1


def search_serving(
    question: ServingQuestion,
    top: int = 5,
    progress: Callable[[float], None] | None = None,
    formats: bool = False,
    measured: Measured | None = None,
) -> ServingSearch:
    """Score every deployment that the rules keep.

    Equal ones rank by fewer devices, then by fewer pools, then by shorter requests. The plans are the one to
    launch (`preferred`), the best one and launches that differ from it (`shown`).

    Args:
        question: the question.
        top: plans to return.
        progress: called with the finished share.
        formats: whether the plans are tried in other number formats too.
        measured: what measured servers say of deployments, to choose the first and show the most measured.

    Raises:
        InfeasibleError: no replica, or no count of them, fits the devices.
    """
    removed: Counter[str] = Counter()
    kept_shapes: list[ReplicaShape] = []
    types = question.types
    alone = [question] if len(types) == 1 else [question.at(offer) for offer in types]
    total = sum(1 for typed in alone for _ in choices(typed))
    for typed in alone:
        for shape in shapes(typed, removed, with_settings):
            kept_shapes.append(shape)
            if progress:
                progress(0.5 * (len(kept_shapes) + sum(removed.values())) / total)
    if not kept_shapes:
        raise nothing_fits(max(alone, key=_memory), removed)
    if question.holds_attention and all(shape.attention is None for shape in kept_shapes):
        raise InfeasibleError(
            f"no attention devices of the ratio held fit beside a replica of {question.model.name}: whole "
            f"devices, {question.devices} in all with a prefill pool, with room for attention's weights and "
            "the KV of a request"
        )
    phased = phases if question.concurrency is None else closed_phases
    table = score_deployments(question, kept_shapes, progress, partial(with_switches, phased=phased))
    if not len(table):
        budget = "" if question.watts is None else f" within {question.watts:,.0f} W"
        names = " and ".join(f"{offer.devices} {offer.name}" for offer in types)
        raise InfeasibleError(f"no replica count that --fix and --limit leave fits {names}{budget}")
    keys = _keys(table)
    guessed = _guessed(table, question)
    by_figure = np.lexsort(keys)
    order = np.lexsort((*keys[:-1], guessed, keys[-1]))
    good = int(np.count_nonzero(table.meets))
    row_numbers, reasons = [_nearest(table)], []
    if good:
        sure = int(np.count_nonzero(guessed[order[:good]] == guessed[order[0]]))
        row_numbers, reasons = chosen_rows(table, order[:good], top, measured, sure)
    plans = [table.plan(int(index)) for index in row_numbers]
    removed["slo"] = len(table) - good
    return ServingSearch(
        question=question,
        plans=plans if good else [],
        reasons=reasons,
        candidates=table.stands_for + sum(count for name, count in removed.items() if name != "slo"),
        scored=len(table),
        removed=dict(removed),
        most=table.plan(_most(table, guessed)) if question.unasked and table.goodput.max() > 0 else None,
        guessed=_with_assumed(table, order[:good], by_figure, guessed, phased) if good else None,
        fastest=_fastest(table, order[:good] if good else order) if formats else None,
        variants=variants(question, plans) if good and formats else (),
        nearest=None if good else plans[0],
        apart=POOL in question.pools and bool(np.any(attention_apart(table)[order[:good]])),
    )


def _keys(table: Scores) -> tuple[np.ndarray, ...]:
    """Figures by which rows rank, the first one last."""
    question = table.question
    second = table.groups
    if question.unasked and question.objective == "cost":
        second = _steps(table.joules)
    return table.latency, second, table.devices, np.round(table.value, 9), ~table.meets


def _with_assumed(
    table: Scores,
    order: np.ndarray,
    by_figure: np.ndarray,
    guessed: np.ndarray,
    phased: Callable[..., list[Phase]],
) -> ServingPlan | None:
    """The best plan with an assumed acceptance, where it beats the first, which has none.

    Heads that are published beside the checkpoint are tried on the layouts of the best plans of one pool.

    Args:
        table: all rows.
        order: rows that meet the targets, the best first.
        by_figure: all rows by their figures alone.
        guessed: rows that rest on an assumed acceptance.
        phased: scores shapes and roles.
    """
    objective, first = table.question.objective, table.plan(int(order[0]))
    drafting = [table.plan(int(by_figure[0]))] if guessed[by_figure[0]] > guessed[order[0]] else []
    drafting_replicas = list(drafting_shapes(table, order))
    if drafting_replicas:
        drafted = score_deployments(replace(table.question, split=False), drafting_replicas, None, phased)
        best = int(np.lexsort(_keys(drafted))[0]) if len(drafted) else -1
        drafting += [drafted.plan(best)] if best >= 0 and drafted.meets[best] else []
    sign = -1.0 if objective == "goodput" else 1.0
    best = min(drafting, key=lambda plan: sign * plan.figure(objective), default=None)
    better = best is not None and sign * best.figure(objective) < sign * first.figure(objective)
    return best if better else None


ALIKE = 0.05
"""Energies so close count as equal, relative."""


def _steps(joules: np.ndarray) -> np.ndarray:
    """Energies in steps of ``ALIKE``."""
    return np.round(np.log(np.maximum(joules, 1e-12)) / ALIKE)


def _most(table: Scores, guessed: np.ndarray) -> int:
    """The row with the most goodput; of equal ones that with fewest devices, pools and seconds."""
    keys = table.latency, table.groups, table.devices, -np.round(table.goodput, 9)
    return int(np.lexsort((*keys, guessed, table.goodput <= 0))[0])


def _guessed(table: Scores, question: ServingQuestion) -> np.ndarray:
    """Rows that rest on an assumed acceptance which nobody named."""
    if "speculation" in question.fix:
        return np.zeros(len(table), bool)
    return _decoding(table, lambda drafts: drafts is not None and drafts.assumed)


def _decoding(table: Scores, holds: Callable[[Speculation | None], bool]) -> np.ndarray:
    """Whether the speculation of the replicas that decode has a property, for each row."""
    mixed = np.array([holds(phase.shape.pool.speculation) for phase in table.mixed] or [False])
    decode = np.array([holds(phase.shape.pool.speculation) for phase in table.decode] or [False])
    alone = table.second < 0
    return np.where(alone, mixed[np.where(alone, table.first, 0)], decode[np.maximum(table.second, 0)])


def _fastest(table: Scores, order: np.ndarray) -> tuple[ServingPlan, float, float] | None:
    """The row of one pool whose replica answers a lone request first."""
    rows = order[table.second[order] < 0]
    if not len(rows):
        return None
    names, places = np.unique(table.first[rows], return_index=True)
    # One replica of each, whose curve is drawn.
    candidates = [table.mixed[int(name)] for name in names]
    lone = [phase.cases[phase.place : phase.place + 1].state(np.zeros(1)) for phase in candidates]
    best = int(np.argmin([float(state.e2e_s[0]) for state in lone]))
    return table.plan(int(rows[places[best]])), float(lone[best].ttft_s[0]), float(lone[best].tpot_s[0])


def _memory(question: ServingQuestion) -> float:
    """Memory of all devices of a type, B."""
    return question.cluster.devices * question.cluster.device.memory_bytes


def _nearest(table: Scores) -> int:
    """The row that carries most within the targets, else the one that misses them least."""
    return int(np.argmax(table.goodput) if table.goodput.max() > 0 else np.argmin(table.miss))
