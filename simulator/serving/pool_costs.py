"""Costs of a pool's replica: the engine's, changed by the pool's mechanisms in a stated order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.models import Model, models
from simulator.ops.counts import model_parameters
from simulator.scenario import find
from simulator.serving.adapters import with_adapters
from simulator.serving.encoders.prompts import PromptSteps, check_encoder, encoder_table
from simulator.serving.engines import Engine
from simulator.serving.kv_states import AttentionReplicas, ReplicaFacts, attention_devices, with_state
from simulator.serving.overlaps import OverlapSteps, make_overlap
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.speculation import check_heads
from simulator.serving.question.state import KvState
from simulator.serving.steps.costs import replica_costs, speculating
from simulator.serving.steps.finetuned import with_finetuning
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.step_times import ReplicaCosts
from simulator.serving.steps.stream import StreamedSteps, host_seconds, stream_seconds
from simulator.serving.steps.table import IterationTable


@dataclass(frozen=True)
class PoolQuestion:
    """A pool as its mechanisms see it."""

    model: Model
    cluster: Cluster
    """As far as the end of the first replica."""
    pool: Pool
    options: EngineOptions
    engine: Engine
    folder: Path
    """Base of relative paths."""
    place: str
    """Key path of the pool, for errors."""
    attention: Sequence[AttentionReplicas] = ()
    """Pools of role `attention`."""
    adapters: Adapters | None = None
    """Of the deployment, which states them for all its pools."""
    adapters_place: str = ""
    """Their key path, for errors."""


@dataclass(frozen=True)
class StepMechanism:
    """One mechanism that changes the steps of a replica.

    Attributes:
        key: of the pool, or of the deployment for all its pools.
        wrap: costs with the mechanism, of those without it.
        acts: whether a pool has it.
        excludes: keys of other mechanisms beside which it is not modelled, and why.
    """

    key: str
    wrap: Callable[[ReplicaCosts, PoolQuestion], ReplicaCosts]
    acts: Callable[[PoolQuestion], bool]
    excludes: Mapping[str, str] = field(default_factory=dict)


def pool_costs(question: PoolQuestion, tables: SharedTables | None) -> ReplicaCosts:
    """Costs of a pool's replica.

    Args:
        question: the pool.
        tables: step times shared between questions.

    Raises:
        InputError: what the engine or the model cannot do, or two mechanisms that exclude each other.
        InfeasibleError: the model does not fit a replica.
    """
    pool, options, engine, place = question.pool, question.options, question.engine, question.place
    device = question.cluster.device
    if pool.exchange == "deepep" and not engine.sends_on(device):
        raise InputError(f"{engine.name} has no option for it on {device.name}", f"{place}.exchange")
    acting = [mechanism for mechanism in MECHANISMS if mechanism.acts(question)]
    keys = [mechanism.key for mechanism in acting]
    for mechanism in acting:
        for key in filter(keys.__contains__, mechanism.excludes):
            raise InputError(
                f"{mechanism.key} beside {key} is not modelled: {mechanism.excludes[key]}",
                f"{place}.{mechanism.key}",
            )
    costs = replica_costs(question.model, question.cluster, pool, options, engine, tables)
    for mechanism in acting:
        costs = mechanism.wrap(costs, question)
    return costs


def _with_encoder(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    check_encoder(question.model, question.pool, question.engine, question.place)
    replica = question.model, question.cluster, question.pool, question.engine
    return replace(
        costs, steps=PromptSteps(costs.steps, encoder_table(*replica, question.options.token_budget))
    )


def _with_overlap(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    overlap, table = question.pool.overlap, costs.steps
    if overlap is None or not isinstance(table, IterationTable):
        return costs
    policy = make_overlap(overlap, f"{question.place}.overlap")
    left = policy.kept_state
    return replace(
        costs,
        steps=OverlapSteps(table, policy),
        kv_blocks=costs.kv_blocks if question.options.kv_blocks else int(costs.kv_blocks / left),
        kv_token_bytes=costs.kv_token_bytes * left,
        copy_s=costs.copy_s * left,
    )


def _has_state(question: PoolQuestion) -> bool:
    """Whether decodes keep their KV elsewhere, or in part; prompts alone have none to keep."""
    return question.pool.role != "prefill" and (question.pool.state is not None or bool(question.attention))


def _with_state(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    model, used, pool, block_tokens = (
        *(question.model, question.cluster, question.pool),
        question.options.block_tokens,
    )
    # The devices of every pool of role attention are checked; a replica uses those of the first.
    away = [
        attention_devices(replicas, model, used, pool, question.folder) for replicas in question.attention
    ]
    tokens = costs.kv_blocks * block_tokens * pool.data
    table = costs.steps if isinstance(costs.steps, IterationTable) else None
    replica = ReplicaFacts(
        model, used, pool.devices, costs.kv_token_bytes, tokens, away[0] if away else None, table
    )
    state = pool.state or KvState(kind="attention-pool")
    return with_state(costs, state, replica, block_tokens, pool.data, f"{question.place}.state")


def _with_stream(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    stream, devices = question.pool.stream, question.pool.devices
    if stream is None:
        return costs
    every = costs.weight_bytes / stream.resident_share(question.model.layers)
    read_s = stream_seconds(stream, question.cluster, devices, every)
    host = host_seconds(stream, devices, every)
    return replace(costs, steps=StreamedSteps(costs.steps, read_s, stream.prefetch, *host))


def _with_finetuning(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    place = f"{question.place}.finetuning"
    return with_finetuning(costs, question.model, question.pool, question.options, place)


def _with_drafts(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    """Costs of a replica with its pool's speculation.

    Raises:
        InputError: no such draft model, a draft larger than its target, or heads that the model lacks.
    """
    model, pool, where = question.model, question.pool, f"{question.place}.speculation"
    speculation, draft = pool.speculation, None
    if speculation is None:
        return costs
    if speculation.asynchronous and pool.pipeline < 2:
        raise InputError(
            f"asynchronous drafts fill a pipeline; found {pool.pipeline} stage, allowed: 2 or more",
            f"{where}.asynchronous",
        )
    check_heads(speculation, model.mtp_layers, model.name, f"{where}.kind")
    if speculation.draft is not None:
        draft = find(models, speculation.draft, question.folder, f"{where}.draft")
        sizes = [model_parameters(sized) for sized in (draft, model)]
        if sizes[0] > sizes[1]:
            raise InputError(
                f"the draft {draft.name} ({sizes[0] / 1e9:.2g}B parameters) is larger than its target "
                f"{model.name} ({sizes[1] / 1e9:.2g}B)",
                f"{where}.draft",
            )
    replica = question.cluster, pool, question.options, question.engine
    return speculating(costs, speculation, draft, model, *replica)


def _with_adapters(costs: ReplicaCosts, question: PoolQuestion) -> ReplicaCosts:
    if question.adapters is None:
        return costs
    replica = question.model, question.cluster, question.pool, question.options
    return with_adapters(costs, question.adapters, *replica, question.adapters_place)


MECHANISMS = (
    StepMechanism("encoder", _with_encoder, lambda question: question.model.encoder is not None),
    StepMechanism("overlap", _with_overlap, lambda question: question.pool.overlap is not None),
    StepMechanism("state", _with_state, _has_state),
    StepMechanism("stream", _with_stream, lambda question: question.pool.stream is not None),
    StepMechanism(
        "finetuning",
        _with_finetuning,
        lambda question: question.pool.finetuning is not None,
        {"speculation": "slack is that of steps with one token a sequence"},
    ),
    StepMechanism("speculation", _with_drafts, lambda question: question.pool.speculation is not None),
    StepMechanism(
        "adapters",
        _with_adapters,
        lambda question: question.adapters is not None,
        {"encoder": "their products in both stacks"},
    ),
)
"""In the order in which they change a step: each sees the steps of those before it. A power cap comes before
all of them (`steps.capped`)."""
