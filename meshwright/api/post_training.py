"""Steps of post-training from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.jobs.base import AskOptions
from meshwright.jobs.rl import PostTraining, answer
from meshwright.questions.scenarios import read_question

__all__ = ["PostTraining", "post_train"]


def post_train(scenario: str | Path | Mapping[str, Any]) -> PostTraining:
    """Predict one step of post-training in the steady state; ``simulate`` takes the same scenarios.

    Args:
        scenario: file, shipped name or mapping whose workload has ``kind: rl``.

    Raises:
        InputError: the scenario is wrong.
        InfeasibleError: the rollout engine does not fit.
    """
    mapping = isinstance(scenario, Mapping)
    return answer((scenario, "scenario", Path()) if mapping else read_question(str(scenario)), AskOptions())
