"""Turns of a conversation."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Duration, Few
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program


class Conversation(Program):
    """A user reads the answer, thinks, and sends the whole history with a new question."""

    kind: Literal["conversation"] = "conversation"
    turns: Few = Field(description="requests of a conversation")
    think: Duration = Field(0.0, description="mean seconds between an answer and the next turn, exponential")

    @property
    def depth(self) -> int:
        """Turns."""
        return self.turns

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        history = 0
        spans = prefix
        for turn in range(self.turns):
            question, answer = draw()
            if turn:
                question = max(question - len(prefix) * SPAN, 1)
            prompt = history + question
            spans = spans + fresh((prompt + answer) // SPAN - len(spans))
            after = float(random.exponential(self.think)) if turn and self.think else 0.0
            yield [Call(after, prompt, answer, spans)]
            history = prompt + answer
