"""Costs of a pool's replica: the engine's, with overlap, KV elsewhere, streams, fine-tuning and drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.models import Model, models
from simulator.ops.counts import model_parameters
from simulator.scenario import find
from simulator.serving.engines import Engine
from simulator.serving.kv_states import Around, AttentionReplicas, attention_devices, with_state
from simulator.serving.overlaps import OverlapSteps, make_overlap
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.speculation import check_heads
from simulator.serving.question.state import KvState
from simulator.serving.steps.costs import engine_of, replica_costs, speculating
from simulator.serving.steps.finetuned import with_finetuning
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.step_times import ReplicaCosts
from simulator.serving.steps.stream import StreamedSteps, host_seconds, stream_seconds
from simulator.serving.steps.table import IterationTable


def pool_costs(
    model: Model,
    used: Cluster,
    pool: Pool,
    options: EngineOptions,
    folder: Path,
    place: str,
    tables: SharedTables | None,
    attention: Sequence[AttentionReplicas],
) -> ReplicaCosts:
    """Return the costs of a replica with what its pool adds to the engine.

    Args:
        model, used, pool, options: the question; ``used`` reaches to the end of the first replica.
        folder: base of relative paths.
        place: key path of the pool, for errors.
        tables: step times shared between questions.
        attention: pools of role `attention`.

    Raises:
        InputError: what the engine or the model cannot do.
        InfeasibleError: the model does not fit a replica.
    """
    engine = engine_of(pool.engine, folder, f"{place}.engine")
    if pool.exchange == "deepep" and not engine.sends_to_experts.value:
        raise InputError(f"{engine.name} has no option for it", f"{place}.exchange")
    costs = replica_costs(model, used, pool, options, engine, tables)
    if pool.overlap is not None and isinstance(costs.steps, IterationTable):
        overlap = make_overlap(pool.overlap, f"{place}.overlap")
        left = overlap.kept_state
        costs = replace(
            costs,
            steps=OverlapSteps(costs.steps, overlap),
            kv_blocks=costs.kv_blocks if options.kv_blocks else int(costs.kv_blocks / left),
            kv_token_bytes=costs.kv_token_bytes * left,
            copy_s=costs.copy_s * left,
        )
    decodes = pool.role != "prefill"
    away = (
        [attention_devices(replicas, model, used, pool, folder) for replicas in attention] if decodes else []
    )
    if away or (pool.state is not None and decodes):
        tokens = costs.kv_blocks * options.block_tokens * pool.data
        around = Around(model, used, pool.devices, costs.kv_token_bytes, tokens, away[0] if away else None)
        state = pool.state or KvState(kind="attention-pool")
        costs = with_state(costs, state, around, options.block_tokens, pool.data, f"{place}.state")
    if pool.stream is not None:
        whole = costs.weight_bytes / pool.stream.resident_share(model.layers)
        read_s = stream_seconds(pool.stream, used, pool.devices, whole)
        host = host_seconds(pool.stream, pool.devices, whole)
        steps = StreamedSteps(costs.steps, read_s, pool.stream.prefetch, *host)
        costs = replace(costs, steps=steps)
    if pool.finetuning is not None:
        costs = with_finetuning(costs, model, pool, options, f"{place}.finetuning")
    if pool.speculation is not None:
        costs = _with_drafts(costs, model, used, pool, options, engine, folder, f"{place}.speculation")
    return costs


def _with_drafts(
    costs: ReplicaCosts,
    model: Model,
    cluster: Cluster,
    pool: Pool,
    options: EngineOptions,
    engine: Engine,
    folder: Path,
    where: str,
) -> ReplicaCosts:
    """Costs of a replica with its pool's speculation.

    Raises:
        InputError: no such draft model, a draft larger than its target, or heads that the model lacks.
    """
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
        draft = find(models, speculation.draft, folder, f"{where}.draft")
        sizes = [model_parameters(sized) for sized in (draft, model)]
        if sizes[0] > sizes[1]:
            raise InputError(
                f"the draft {draft.name} ({sizes[0] / 1e9:.2g}B parameters) is larger than its target "
                f"{model.name} ({sizes[1] / 1e9:.2g}B)",
                f"{where}.draft",
            )
    return speculating(costs, speculation, draft, model, cluster, pool, options, engine)
