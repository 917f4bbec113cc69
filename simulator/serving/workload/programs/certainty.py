"""Answers to one prompt in rounds, until they are certain."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from core.quantities import Few, NotNegative
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program


class Certainty(Program):
    """``count`` answers to one prompt side by side, again and again until they agree.

    When they do is an input: ``stop`` weighs the rounds after which a program is certain, the last of them
    its whole budget. One weight only is a fixed budget in one round.
    """

    kind: Literal["certainty"] = "certainty"
    count: Few = Field(description="answers of a round")
    stop: list[NotNegative] = Field(
        min_length=1, max_length=64, description="how often a program ends after round 1, 2, ..."
    )

    @model_validator(mode="after")
    def _ends(self) -> Certainty:
        if not sum(self.stop):
            raise ValueError("`stop` is all zero: no program would end")
        return self

    @property
    def depth(self) -> int:
        """Rounds of the programs that are certain first."""
        return next(turn for turn, weight in enumerate(self.stop, 1) if weight)

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, output = draw()
        spans = prefix + fresh(prompt // SPAN - len(prefix))
        weights = np.array(self.stop)
        rounds = int(random.choice(len(weights), p=weights / weights.sum())) + 1
        for turn in range(rounds):
            outputs = [draw()[1] for _ in range(self.count - (not turn))]
            outputs = outputs if turn else [output, *outputs]
            yield [Call(0.0, prompt, tokens, spans) for tokens in outputs]
