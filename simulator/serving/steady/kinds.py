"""One kind of replica as steady states see it: step times and KV room, shared between questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.serving.engines import Engine
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.memory import ReplicaMemory, check_fits, memory
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.table import IterationTable

TABLES = SharedTables()


@dataclass(frozen=True, eq=False)
class ReplicaKind:
    """One kind of replica; model, cluster and engine are the catalogue's."""

    model: Model
    cluster: Cluster
    pool: Pool
    engine: Engine

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Equal kinds have equal keys."""
        return self.model.name, self.cluster.device.name, self.pool.model_dump_json(), self.engine.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaKind) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=512)
def price_of(kind: ReplicaKind) -> StepPrice:
    """The full price of a replica's steps."""
    return StepPrice(kind.model, kind.cluster, kind.pool, kind.engine)


def table_of(kind: ReplicaKind, budget: float, sequences: float, context: float) -> IterationTable:
    """The iteration table of a replica; see `SharedTables.table`.

    Raises:
        InputError: a size beyond those of any server.
    """
    return TABLES.table(price_of(kind), budget, sequences, context)


def memory_of(
    kind: ReplicaKind, budget: float, sequences: float, share: float | None = None
) -> ReplicaMemory:
    """Memory of a device of a replica; ``share`` of it is the engine's, by default as the preset says."""
    return memory(price_of(kind), int(budget), int(sequences), share)


def memory_that_fits(
    kind: ReplicaKind, budget: float, sequences: float, share: float | None = None
) -> ReplicaMemory:
    """As `memory_of`.

    Raises:
        InfeasibleError: the weights leave no room for a KV block; says by how much.
    """
    footprint = memory_of(kind, budget, sequences, share)
    check_fits(price_of(kind), footprint)
    return footprint


def kv_tokens(kind: ReplicaKind, budget: float, sequences: float, share: float | None = None) -> float:
    """KV tokens of one attention rank, at least those of one short request: a measured run did fit."""
    return float(max(memory_of(kind, budget, sequences, share).kv_tokens, 4096))
