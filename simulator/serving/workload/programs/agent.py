"""An agent that forks and joins."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Duration, Few
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program


class Agent(Program):
    """In each round the agent plans, calls ``fork`` workers on the plan, and reads their answers.

    Tools run between rounds. The context grows by the plan and by all answers. Where a tool fails, the agent
    reads the error, plans again and calls another (AgentScope, arXiv 2402.14034), until one does not.
    """

    kind: Literal["agent"] = "agent"
    rounds: Few = Field(description="times that it forks and joins")
    fork: Few = Field(1, description="worker requests of a round")
    tool: Duration = Field(0.0, description="mean seconds of tools between rounds, exponential")
    fail: float = Field(default=0.0, ge=0, lt=1, description="share of tool calls that fail")

    @property
    def depth(self) -> int:
        """Plans, each with its workers."""
        return 2 * self.rounds

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, plan = draw()
        spans = prefix + fresh(prompt // SPAN - len(prefix))
        for turn in range(self.rounds):
            after = float(random.exponential(self.tool)) if turn and self.tool else 0.0
            while turn and self.fail and random.random() < self.fail:
                yield [Call(after, prompt, plan, spans)]
                prompt, plan = prompt + plan, draw()[1]
                spans += fresh(prompt // SPAN - len(spans))
                after = float(random.exponential(self.tool)) if self.tool else 0.0
            yield [Call(after, prompt, plan, spans)]
            shared = prompt + plan
            shared_spans = spans + fresh(shared // SPAN - len(spans))
            outputs = [draw()[1] for _ in range(self.fork)]
            yield [Call(0.0, shared, output, shared_spans) for output in outputs]
            prompt = shared + sum(outputs)
            spans = shared_spans + fresh(prompt // SPAN - len(shared_spans))
            plan = draw()[1]
