"""Answers that a verifier scores: repeated sampling in one round, a beam in several."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from core.quantities import Few, Tokens
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program
from simulator.serving.workload.programs.tree_search import Leaf


class VerifiedAnswers(Program):
    """``count`` answers to a prompt, ``checks`` verifications of each, and ``keep`` that go on in ``rounds``.

    A verification reads the prompt with the answer, whose KV it finds where prefixes are cached, and writes
    ``verdict`` tokens: one is a score, more is a chain of thought (GenRM). The verifier is the served model.
    Rewards are drawn, all shares alike: quality is not modelled.
    """

    kind: Literal["verified"] = "verified"
    count: Few = Field(description="answers, or steps of a beam, that are written side by side")
    checks: int = Field(default=1, ge=0, le=4096, description="verifications of each answer")
    verdict: Tokens = Field(default=1, description="tokens that a verification writes; 1 is a score")
    keep: Few = Field(default=1, description="answers that go on in the next round")
    rounds: Few = Field(default=1, description="rounds; more than one is a beam search")

    @model_validator(mode="after")
    def _beam(self) -> VerifiedAnswers:
        if self.keep > self.count:
            raise ValueError(f"`keep` ({self.keep}) is above `count` ({self.count})")
        return self

    @property
    def depth(self) -> int:
        """Rounds of answers, each with its verifications behind it."""
        return self.rounds * (2 if self.checks else 1)

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, first = draw()
        survivors = [Leaf(prompt, prefix + fresh(prompt // SPAN - len(prefix)))]
        for turn in range(self.rounds):
            parents = [survivors[index * len(survivors) // self.count] for index in range(self.count)]
            outputs = [draw()[1] for _ in range(self.count - (not turn))]
            outputs = outputs if turn else [first, *outputs]
            yield [
                Call(0.0, leaf.tokens, generated, leaf.spans)
                for leaf, generated in zip(parents, outputs, strict=True)
            ]
            answers = []
            for leaf, generated in zip(parents, outputs, strict=True):
                tokens = leaf.tokens + generated
                answers.append(Leaf(tokens, leaf.spans + fresh(tokens // SPAN - len(leaf.spans))))
            if self.checks:
                yield [
                    Call(0.0, answer.tokens, self.verdict, answer.spans)
                    for answer in answers
                    for _ in range(self.checks)
                ]
            best = random.permutation(self.count)[: self.keep]
            survivors = [answers[index] for index in sorted(best)]
