"""Fine-tuning beside decodes, as a pool states it."""

from __future__ import annotations

from pydantic import Field

from core.loading import Strict
from core.quantities import Tokens

ACTIVATION_BYTES = 34.0
"""Bytes of activations of a token and layer over the hidden size, 16 bits, without attention scores
(Korthikanti et al., arXiv 2205.05198, equation 1)."""


class FineTuning(Strict):
    """Adapters that are trained on the same devices, with tokens in the slack of steps."""

    tpot: float = Field(gt=0, le=10, description="seconds to which decode steps may grow")
    length: Tokens = Field(default=2048, description="tokens of a training sequence")
    kept: float = Field(
        default=0.125,
        gt=0,
        le=1,
        description="share of a sequence's activations in memory (FlexLLM: an eighth)",
    )

    def bytes(self, layers: int, hidden: int) -> float:
        """Activations of a sequence in memory, all devices of a replica together."""
        return self.kept * self.length * layers * hidden * ACTIVATION_BYTES
