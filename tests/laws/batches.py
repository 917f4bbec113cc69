"""Batches of random plans: what a search prices at once, with every overlap on or off.

A question is a scenario without a plan, and the number of a sample. `batch` turns it into the setting and
a thousand plans of the search's own space, whose overlaps and recomputation are drawn from the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from hwmodels.cluster import Cluster
from planner.training.candidates import Enumeration
from planner.training.rules import STRUCTURE
from planner.training.space import Space
from simulator.plan import Choice, Plans, concatenate
from simulator.scenario import make_scenario
from simulator.setting import Setting
from simulator.training import step_time
from tests.laws.questions import Choose, Question, training

PLANS = 1000
"""Plans of a question: a thousand take 1.2 times the processor time of 150, as most goes into the setting."""
BLOCKS = 8
"""Blocks of the enumeration that a sample is drawn from: spaces of large jobs have hundreds."""


def batches(choose: Choose) -> Question:
    """A training scenario whose plans are a sample of its search."""
    scenario = {key: value for key, value in training(choose).items() if key != "plan"}
    return {**scenario, "sample": choose(range(1000))}


def batch(question: Question) -> tuple[Setting, Plans]:
    """The setting of a question, and its random plans.

    Raises:
        InputError: the question has no plan.
    """
    data = {key: value for key, value in question.items() if key != "sample"}
    setting = make_scenario(data, "law", Path()).setting
    enumeration = Enumeration(Space.of(setting, setting.cluster.devices), STRUCTURE)
    blocks = [block.plans for block, _ in zip(enumeration.blocks(), range(BLOCKS), strict=False)]
    if not blocks:
        raise InputError("no plan divides")
    plans, draw = concatenate(blocks), np.random.default_rng(question["sample"])
    plans = plans.take(np.sort(draw.choice(len(plans), min(PLANS, len(plans)), replace=False)))
    drawn: dict[str, Any] = {
        name: draw.integers(0, most, len(plans))
        for name, most in {"overlap_tensor": len(Choice["overlap_tensor"]), "recompute": 3}.items()
    }
    for name in ("overlap_gradients", "overlap_parameters", "overlap_pipeline"):
        drawn[name] = draw.integers(0, 2, len(plans)).astype(bool)
    if setting.model.moe:
        drawn["overlap_expert"] = draw.integers(0, 2, len(plans)).astype(bool)
    return setting, replace(plans, **drawn)


def steps_on(setting: Setting, plans: Plans, change: Callable[[Cluster], Cluster]) -> np.ndarray:
    """Step times of plans on a changed cluster, shape (plans,)."""
    return step_time(replace(setting, cluster=change(setting.cluster)), plans)


def none_slower(changed: np.ndarray, base: np.ndarray, allowed: np.ndarray, plans: Plans, what: str) -> None:
    """Refuse the plan whose time rises most beyond a share that is allowed."""
    beyond = changed / base - 1 - allowed
    worst = int(np.argmax(beyond))
    assert beyond[worst] <= 0, (
        f"{what}: {base[worst]:.6g} s becomes {changed[worst]:.6g} s for {plans.plan(worst)}"
    )
