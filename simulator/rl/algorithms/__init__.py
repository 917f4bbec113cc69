"""Algorithms of post-training: which passes run over a step's answers, one YAML file each."""

from pathlib import Path

from pydantic import Field

from core.loading import Catalogue, Strict


class Algorithm(Strict):
    """The passes of a step beside rollouts and updates of the policy."""

    name: str
    title: str = Field(description="its words in answers")
    source: str = Field(description="where the passes are told")
    old_log_probs: bool = Field(False, description="a forward pass of the policy before the updates")
    reference: bool = Field(False, description="a forward pass of a frozen reference, or of a teacher")
    critic: bool = Field(False, description="a value model: a forward pass, and updates of its own")
    reward_model: bool = Field(False, description="a forward pass of a reward model; otherwise a rule scores")


algorithms = Catalogue("algorithm", Path(__file__).parent, Algorithm)
