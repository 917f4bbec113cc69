"""A share of the KV is kept; quality is an input."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from simulator.serving.kv_states.base import ReplicaFacts, State
from simulator.serving.question.places import Place, read_rate


class DroppedTokens(State):
    """Tokens that attention hardly looks at are dropped, or left by windows: less KV to hold and to read.

    Prompts are computed whole. It helps where KV limits the batch or its reads take most of a step.
    """

    name: ClassVar[str] = "evicted"
    rule: ClassVar[str] = "a share of the tokens keeps its KV, in the mean over heads and layers"
    source: ClassVar[str] = (
        "Adnan et al., Keyformer (arXiv 2403.09054); Fu et al., MoA (2406.14909): half each"
    )
    kept: float = Field(default=0.5, gt=0, le=1, description="share of the tokens whose KV is kept")

    @property
    def read(self) -> float:
        """See `State.read`."""
        return self.kept

    @property
    def away(self) -> bool:
        """See `State.away`."""
        return False

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return replica.device_tokens / self.kept


class SparseHost(State):
    """Part of the KV lies in host memory; steps read what sparse attention picks from there.

    The picks of a layer are known when the layer before has run, so reads delay the step.
    """

    name: ClassVar[str] = "sparse-host"
    rule: ClassVar[str] = (
        "attention reads a share of the KV, and fetches part of it from the host in each step"
    )
    source: ClassVar[str] = "Zhao et al., ALISA (arXiv 2403.17312): 80 % of the KV is not read"
    kept: float = Field(default=0.2, gt=0, le=1, description="share of the KV that a step reads")
    resident: float = Field(default=0.5, gt=0, le=1, description="share of the KV in device memory")
    missed: float = Field(
        default=0.1, ge=0, le=1, description="share of the read tokens that lie in the host (assumed)"
    )
    place: Place = Field(default="host", description="where the rest is: host, nvme or remote")

    @property
    def read(self) -> float:
        """See `State.read`."""
        return self.kept

    @property
    def away(self) -> bool:
        """See `State.away`."""
        return self.resident < 1.0

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return replica.device_tokens / self.resident

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """See `State.away_s`."""
        rate = read_rate(replica.cluster, replica.devices, self.place)
        fetched = self.missed * self.kept * kv_tokens + (1.0 - self.resident) * new
        return fetched * replica.token_bytes / rate
