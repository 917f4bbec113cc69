"""Several answers to one prompt."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Few
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program


class Samples(Program):
    """``count`` requests with the same prompt, sent together, with independent output lengths."""

    kind: Literal["samples"] = "samples"
    count: Few = Field(description="answers to one prompt")

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, output = draw()
        spans = prefix + fresh(prompt // SPAN - len(prefix))
        yield [Call(0.0, prompt, output if sample == 0 else draw()[1], spans) for sample in range(self.count)]
