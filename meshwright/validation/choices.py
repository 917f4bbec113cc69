"""Quality of choices: order of the plans that a ledger holds for one question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from meshwright.validation.ledger import PredictedCase

FEWEST = 3
"""Minimum number of plans of a question for a meaningful order."""


@dataclass(frozen=True)
class WrongPair:
    """Two plans that the prediction puts in the wrong order.

    Attributes:
        faster, slower: cases of the two plans, by their measured times.
        measured: measured time of the slower over that of the faster plan, less 1.
        predicted: the same of the predicted times, negative.
    """

    faster: PredictedCase
    slower: PredictedCase
    measured: float
    predicted: float


@dataclass(frozen=True)
class MeasuredFamily:
    """Plans that were measured for one question: same model, cluster, workload and framework.

    Attributes:
        question: model, GPUs, batch and framework.
        n: plans.
        regret: measured time of the plan that the prediction ranks first, over the best measured, less 1.
        tau: Kendall's rank correlation of predicted and measured times (tau-b).
        setting: the common setting, as text that identifies the question.
        measured: seconds of each plan.
        wrong: pairs in the wrong order, those with the largest measured difference first.
    """

    question: str
    n: int
    regret: float
    tau: float
    setting: str = ""
    measured: tuple[float, ...] = ()
    wrong: tuple[WrongPair, ...] = ()


def families(entries: Sequence[PredictedCase], fewest: int = FEWEST) -> list[MeasuredFamily]:
    """Judge every question with enough measured plans, the largest families first.

    A plan that was measured more than once counts once, with the mean.
    """
    groups: dict[str, dict[str, list[PredictedCase]]] = {}
    for entry in entries:
        if entry.case.measured_step_s is not None:
            plans = groups.setdefault(repr(entry.case.setting), {})
            plans.setdefault(repr(entry.case.plan), []).append(entry)
    judged = [_judge(list(plans.values())) for plans in groups.values() if len(plans) >= fewest]
    return sorted(judged, key=lambda family: (-family.n, family.question))


def _judge(group: Sequence[Sequence[PredictedCase]]) -> MeasuredFamily:
    """Judge a question from the measurements of each of its plans."""
    setting = group[0][0].case.setting
    predicted = np.array([plan[0].predicted_step_s for plan in group])
    measured = np.array([fmean(entry.case.measured_step_s or 0.0 for entry in plan) for plan in group])
    question = (
        f"{setting.model.name} ({setting.model.layers} x {setting.model.hidden}), {setting.cluster.devices} "
        f"{setting.cluster.device.name}, batch {setting.training.global_batch}, {setting.framework.name}"
    )
    regret = measured[np.argmin(predicted)] / measured.min() - 1
    return MeasuredFamily(
        question,
        len(group),
        float(regret),
        kendall_tau(predicted, measured),
        repr(setting),
        tuple(map(float, measured)),
        _wrong(group, predicted, measured),
    )


def _wrong(
    group: Sequence[Sequence[PredictedCase]], predicted: np.ndarray, measured: np.ndarray
) -> tuple[WrongPair, ...]:
    order = np.argsort(measured, kind="stable")
    pairs = [
        WrongPair(
            group[first][0],
            group[second][0],
            float(measured[second] / measured[first] - 1),
            float(predicted[second] / predicted[first] - 1),
        )
        for place, first in enumerate(order)
        for second in order[place + 1 :]
        if predicted[second] < predicted[first] and measured[second] > measured[first]
    ]
    return tuple(sorted(pairs, key=lambda pair: -pair.measured))


def kendall_tau(left: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b of two rankings; 1 where all agree, 0 where either has no order (Kendall 1945)."""
    first, second = np.triu_indices(len(left), 1)
    a, b = np.sign(left[first] - left[second]), np.sign(other[first] - other[second])
    pairs = np.sqrt(np.sum(a != 0) * np.sum(b != 0))
    return float(np.sum(a * b) / pairs) if pairs else 0.0
