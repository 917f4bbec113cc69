"""Steps of post-training from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.loading import read_mapping
from meshwright.questions.scenarios import scenario_path

if TYPE_CHECKING:
    from simulator.rl.step import RlStep


@dataclass(frozen=True)
class PostTraining:
    """A predicted step of post-training."""

    step: RlStep

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.post_training import describe_rl

        return describe_rl(self.step)


def post_train(scenario: str | Path | Mapping[str, Any]) -> PostTraining:
    """Predict one step of post-training in the steady state.

    Args:
        scenario: file, shipped name or mapping whose workload has ``kind: rl``.

    Raises:
        InputError: the scenario is wrong.
        InfeasibleError: the rollout engine does not fit.
    """
    from simulator.rl.scenario import make_rl
    from simulator.rl.step import predict_rl

    if isinstance(scenario, Mapping):
        return PostTraining(predict_rl(make_rl(scenario, "scenario", Path())))
    path = scenario_path(str(scenario))
    return PostTraining(predict_rl(make_rl(read_mapping(path), str(path), path.parent)))
