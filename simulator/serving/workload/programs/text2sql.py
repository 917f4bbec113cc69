"""An agent that turns a question into SQL."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Few
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program

MOST_CORRECTIONS = 10
"""Rounds of self-correction (CHESS's pipeline as in HexGen-Text2SQL, arXiv 2505.05286, section 2)."""


class Text2Sql(Program):
    """Schema linking, ``candidates`` queries side by side, corrections of those that fail, and a choice.

    Candidates read the prompt and the answer of schema linking; a correction reads its candidate and the
    error; the choice reads all candidates. Every stage asks for an equal part of the time left.
    """

    kind: Literal["text2sql"] = "text2sql"
    candidates: Few = Field(default=3, description="SQL candidates that are written side by side")
    fail: float = Field(
        default=0.3, ge=0, lt=1, description="share of the candidates whose execution fails, in every round"
    )

    @property
    def depth(self) -> int:
        """Schema linking, candidates and the choice."""
        return 3

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, linked = draw()
        spans = prefix + fresh(prompt // SPAN - len(prefix))
        rounds = 1.0 - (1.0 - self.fail) ** self.candidates
        yield [Call(0.0, prompt, linked, spans, 1.0 / (3.0 + rounds))]
        shared = prompt + linked
        spans += fresh(shared // SPAN - len(spans))
        outputs = [draw()[1] for _ in range(self.candidates)]
        yield [Call(0.0, shared, output, spans, 1.0 / (2.0 + rounds)) for output in outputs]
        length = shared + sum(outputs)
        tried = outputs
        for _ in range(MOST_CORRECTIONS):
            failed = [output for output in tried if random.random() < self.fail]
            if not failed:
                break
            tried = [draw()[1] for _ in failed]
            yield [
                Call(0.0, shared + wrong, output, spans, 0.5)
                for wrong, output in zip(failed, tried, strict=True)
            ]
        yield [Call(0.0, length, draw()[1], spans)]
