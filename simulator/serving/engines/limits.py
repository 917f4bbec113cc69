"""What a step and the memory of an engine are limited to by default, by device and degrees."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from core.loading import Strict
from core.quantities import NotNegative, Positive
from hwmodels.device import Device
from simulator.serving.engines.figure import Figure, Kind


class DeviceLimits(Strict):
    """Limits of a step on some devices: those with less memory than ``below_bytes``, and those named."""

    below_bytes: Positive = 1.0
    devices: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Beginnings of device names, e.g. "a100"."""
    max_batched_tokens: Figure[int]
    max_sequences: Figure[int]
    largest_graph: Figure[int] | None = None
    """Largest captured size; default: that of ``graph_sizes``."""
    largest_graph_tp4: Figure[int] | None = None
    """The same where tensor parallelism spans four devices or more."""

    def apply(self, device: Device) -> bool:
        """Return whether a device has these limits."""
        return device.memory_bytes < self.below_bytes or device.name.startswith(self.devices)


class MemoryReserve(Strict):
    """Memory that an engine leaves free by default: its share of a device is what remains."""

    fixed_bytes: NotNegative
    token_bytes: NotNegative
    """For each token of a step's budget."""
    least_tokens: NotNegative
    """Tokens that are counted at least."""
    graph_bytes: NotNegative
    """For each sequence of the largest graph."""
    rank_bytes: NotNegative
    """For each tensor rank and pipeline stage."""
    graph_rank_bytes: NotNegative
    """For each sequence of the largest graph and each attention rank, where there are several."""
    large_graph: NotNegative
    """Sequences of a graph beyond which each adds ``large_graph_rank_bytes`` on each of these ranks too."""
    large_graph_rank_bytes: NotNegative
    large_device_bytes: Positive
    """Memory of a device beyond which ``large_device_least_bytes`` stay free at least."""
    large_device_least_bytes: NotNegative
    draft_bytes: NotNegative
    """For a draft of speculation."""
    kind: Kind
    source: str

    def reserved(self, device: Device, budget: int, graph: int, pool: Degrees) -> float:
        """Bytes that stay free.

        Args:
            device: its memory.
            budget: token budget of a step, before attention ranks share it.
            graph: sequences of the largest graph.
            pool: degrees of the replica.
        """
        tensor = pool.tensor * pool.data
        total = self.fixed_bytes + max(budget, self.least_tokens) * self.token_bytes
        total += graph * self.graph_bytes + tensor * pool.pipeline * self.rank_bytes
        if pool.data > 1:
            total += graph * pool.data * self.graph_rank_bytes
            if graph > self.large_graph:
                total += graph * pool.data * self.large_graph_rank_bytes
        if device.memory_bytes > self.large_device_bytes:
            total = max(total, self.large_device_least_bytes)
        return total + (self.draft_bytes if pool.speculation is not None else 0.0)


class StatePool(Strict):
    """Memory that an engine keeps apart for the states of linear layers, and how many a sequence needs."""

    per_kv: Annotated[float, Field(gt=0, le=16)]
    """Bytes of states for each byte of KV."""
    slots: Annotated[int, Field(ge=1, le=16)]
    """States for each running sequence where prefixes are cached: its own, and copies at shared prefixes."""
    buffers: Annotated[int, Field(ge=0, le=16)] = 0
    """Further states for each where the engine has buffers for them; one more where it schedules ahead."""
    kind: Kind
    source: str


class Verification(Protocol):
    """What of speculation captured sizes depend on."""

    @property
    def queries(self) -> int:
        """Tokens that a step verifies of each sequence."""
        ...


class Degrees(Protocol):
    """What of a pool captured sizes and the default memory share depend on."""

    @property
    def tensor(self) -> int:
        """Tensor-parallel degree of attention."""
        ...

    @property
    def data(self) -> int:
        """Attention ranks."""
        ...

    @property
    def pipeline(self) -> int:
        """Pipeline stages."""
        ...

    @property
    def speculation(self) -> Verification | None:
        """Speculative decoding, if any."""
        ...

    @property
    def largest_graph(self) -> int | None:
        """Stated tokens of the largest captured decode step."""
        ...

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Stated captured sizes, in place of the engine's."""
        ...
