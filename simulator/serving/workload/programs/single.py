"""One request."""

from __future__ import annotations

from typing import Literal

import numpy as np

from simulator.serving.workload.programs.base import Call, Calls, Draw, Fresh, Program


class Single(Program):
    """A client sends one request."""

    kind: Literal["single"] = "single"

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        yield [Call(0.0, *draw(), prefix)]
