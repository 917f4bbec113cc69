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
class MeasuredFamily:
    """Plans that were measured for one question: same model, cluster, workload and framework.

    Attributes:
        question: model, GPUs, batch and framework.
        n: plans.
        regret: measured time of the plan that the prediction ranks first, over the best measured, less 1.
        tau: Kendall's rank correlation of predicted and measured times (tau-b).
        setting: the common setting, as text that identifies the question.
    """

    question: str
    n: int
    regret: float
    tau: float
    setting: str = ""


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
        question, len(group), float(regret), kendall_tau(predicted, measured), repr(setting)
    )


def kendall_tau(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b of two rankings; 1 where all agree, 0 where either has no order (Kendall 1945)."""
    first, second = np.triu_indices(len(one), 1)
    a, b = np.sign(one[first] - one[second]), np.sign(other[first] - other[second])
    pairs = np.sqrt(np.sum(a != 0) * np.sum(b != 0))
    return float(np.sum(a * b) / pairs) if pairs else 0.0
