"""A plan on the framework that exported files run, beside the plan's own prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.table import Table

from core.errors import InputError
from meshwright.reports.tables import table
from meshwright.reports.units import gibibytes, percent, seconds
from planner.training.prediction import Prediction, simulate_plan
from simulator.frameworks import frameworks
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.uncertainty import chance_to_fit


def framework_table(setting: Setting, plan: Plan, launched: str, levers: Mapping[str, Any]) -> Table | str:
    """Step, memory and chance to fit on both frameworks.

    Args:
        setting, plan: of the exported question.
        launched: framework that the files run.
        levers: that the files state, beside those of the plan.
    """
    predicted = simulate_plan(setting, plan).prediction
    rows = [_row(f"{setting.framework.name} (the plan's)", predicted, predicted)]
    try:
        elsewhere = replace(setting, framework=frameworks.get(launched))
        other = simulate_plan(elsewhere, plan.model_copy(update=dict(levers))).prediction
    except InputError as error:
        return f"{launched} has no prediction of this plan: {error}"
    rows.append(_row(f"{launched} (these files)", other, predicted))
    return table(["framework", "step", "change", "MFU", "memory", "fits with"], rows, left=1)


def _row(name: str, prediction: Prediction, base: Prediction) -> list[str]:
    step, before = float(prediction.metrics.step_time_s[0]), float(base.metrics.step_time_s[0])
    peak = prediction.memory.peak[:1]
    setting = prediction.setting
    fits = float(chance_to_fit(peak, setting.cluster.device.memory_bytes, setting)[0])
    change = "" if prediction is base else f"{100 * (step / before - 1):+.1f} %"
    mfu = float(prediction.metrics.model_flops_utilisation[0])
    return [name, seconds(step), change, percent(mfu), gibibytes(float(peak[0])), percent(fits, 0)]
