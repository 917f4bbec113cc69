"""An explorer of scored plans: linked charts, filters, one plan's breakdown and its neighbours."""

from __future__ import annotations

import shlex
from base64 import b64encode
from typing import Any

import numpy as np

from meshwright.pages.page import Section, embedded, own_file
from meshwright.reports.parts import GROUP_OF, GROUPS
from planner.training.prediction import Prediction
from planner.training.scored_plans import ScoredPlans
from simulator.levers import modules_of
from simulator.plan import COLUMNS, Choice, Plan
from simulator.setting import Setting

MOST_PLANS = 5000
"""Plans of an explorer, the best by the search's objective."""
FULL = 255
"""A share of 1 as a byte."""
AS_RELEASED = "as released"
"""Word of a lever that a plan leaves to the release; no word of the command."""
STEPS = 65535
"""Steps between the least and the largest value of a figure, two bytes each."""
FOLLOWING = (
    "data",
    "sequence_parallel",
    "virtual_pipeline",
    "schedule",
    "first_stage_layers",
    "last_stage_layers",
)
"""Fields that other fields decide: no levers of a neighbour, no words of the command."""


def explorer_section(setting: Setting, plans: ScoredPlans | None) -> Section | None:
    """The section of a search's page; None where the search kept no scored plans."""
    if plans is None or len(plans) < 2:
        return None
    prediction = next(plans.predictions(setting))
    data = explorer_data(prediction, setting)
    body, script = (own_file(f"explorer.{suffix}") for suffix in ("html", "js"))
    count = data["count"]
    words = f"The best {count:,} of {len(plans):,} scored plans. A click on a point shows its plan."
    return Section("Explore all plans", words, html=body + embedded("explorer-data", data), script=script)


def explorer_data(prediction: Prediction, setting: Setting) -> dict[str, Any]:
    """Figures, fields as codes, and parts of the step, of the best plans."""
    plans, metrics = prediction.plans, prediction.metrics
    count = min(len(plans), MOST_PLANS)
    figures = {
        ("step time", "s"): metrics.step_time_s,
        ("memory", "GiB"): prediction.memory.peak / 2**30,
        ("cost", "$/Mtok"): metrics.usd_per_million_tokens,
        ("energy", "kWh/Mtok"): metrics.kwh_per_million_tokens,
        ("MFU", "%"): 100 * metrics.model_flops_utilisation,
    }
    fields, codes = [], []
    for name in COLUMNS:
        info = Plan.model_fields[name]
        words = plans.schedule_names if name == "schedule" else Choice.get(name)
        words = words or (("false", "true") if info.annotation is bool else ())
        read = _modules if name == "recompute_modules" else words.__getitem__ if words else str
        unique, which = np.unique(getattr(plans, name)[:count], return_inverse=True)
        if len(unique) < 2:
            continue
        choices = [read(value) or AS_RELEASED for value in unique.tolist()]
        fields.append({"name": name, "words": choices, "follows": name in FOLLOWING})
        codes.append(_packed(which.reshape(-1)))
    step = np.maximum(prediction.step.time[:count], 1e-30)
    parts = {group: np.zeros(count) for group in GROUPS}
    for name, seconds in prediction.step.seconds.items():
        parts[GROUP_OF.get(name, "other kernels")] += seconds[:count] / step
    shares = {name: _packed(np.rint(FULL * part)) for name, part in parts.items() if part.any()}
    model, cluster, training = setting.model, setting.cluster, setting.training
    command = ("meshwright", "plan", "train", "--model", model.name, "--cluster", cluster.name)
    command += ("--gpus", str(cluster.devices), "--seq-len", str(training.seq_len))
    command += ("--global-batch", str(training.global_batch), "--precision", training.precision)
    if training.source_len:
        command += ("--source-len", str(training.source_len))
    if adapter := training.adapter:
        command += ("--adapter", f"{adapter.rank}:{adapter.base}")
    if len(training.images) == 1:
        command += ("--images", str(training.images[0]))
    return {
        "count": count,
        "fields": fields,
        "codes": codes,
        "figures": [{"name": name, "unit": unit} for name, unit in figures],
        "values": [_stepped(column[:count]) for column in figures.values()],
        "parts": [{"name": name, "colour": GROUPS[name][0], "values": shares[name]} for name in shares],
        "command": shlex.join([*command, "--framework", setting.framework.name]),
    }


def _modules(code: int) -> str:
    """Recomputed modules as ``--fix`` takes them; empty where the release decides."""
    return "+".join(modules_of(code) or ())


def _packed(values: np.ndarray) -> str | list[int]:
    """Whole numbers as base64 of bytes; a list where one needs more than a byte."""
    if values.max(initial=0) > FULL:
        return values.astype(int).tolist()
    return b64encode(values.astype(np.uint8).tobytes()).decode()


def _stepped(values: np.ndarray) -> dict[str, Any]:
    """Figures as base64 of little-endian numbers of two bytes: ``low`` + number x ``step``."""
    low = float(values.min())
    step = (float(values.max()) - low) / STEPS
    numbers = np.rint((values - low) / (step or 1.0)).astype("<u2")
    return {"low": low, "step": step, "numbers": b64encode(numbers.tobytes()).decode()}
