"""Step times and memory of one kind of replica, from a model, a cluster and a pool of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.errors import InfeasibleError
from core.loading import build, looks_like_path
from hwmodels.cluster import Cluster
from hwmodels.device import Device
from simulator.models import Model
from simulator.serving.engines import Engine, engines
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.asynchronous import AsynchronousSteps
from simulator.serving.steps.capped import iteration_table
from simulator.serving.steps.memory import admitted, check_fits, memory, window_of
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.speculation import DraftHeads, HeadTimes, SpeculativeSteps
from simulator.serving.steps.step_times import ReplicaCosts, StepTimes


def engine_of(reference: str | Mapping[str, Any], folder: Path, where: str) -> Engine:
    """The engine preset that a pool names, gives as a path, or writes out.

    Raises:
        InputError: an unknown name or a wrong definition.
    """
    if isinstance(reference, str) and reference not in engines.names() and looks_like_path(reference):
        return engines.get(folder / reference, where)
    return engines.get(reference, where)


def options_of(pool: Pool, device: Device, folder: Path = Path(), where: str = "deployment") -> EngineOptions:
    """The engine's options with the pool's overrides.

    Args:
        pool: names the engine.
        device: engines' defaults depend on it.
        folder: base of relative paths.
        where: key path of the pool, for errors.

    Raises:
        InputError: an unknown engine or option, or a wrong value.
    """
    engine = engine_of(pool.engine, folder, f"{where}.engine")
    defaults = {
        "chunked_prefill": engine.chunked_prefill.value,
        "scheduler": engine.scheduler.value,
        "token_budget": engine.token_budget(device, pool.data),
        "max_sequences": engine.sequence_limit(device),
        "block_tokens": engine.block_tokens.value,
        "memory_share": engine.memory_share.value,
        "prefix_caching": engine.prefix_caching.value,
        "asynchronous": engine.schedules_ahead.value,
        "preemption": engine.preemption.value,
        "admits_whole": engine.admits_whole.value,
        "stream_interval": engine.stream_interval.value,
        "ingest_s": engine.first_token_s.value,
        "handoff_s": engine.handoff_s.value,
    }
    options = build(EngineOptions, {**defaults, **pool.options}, f"{where}.options")
    if "memory_share" in pool.options:
        return options
    share = engine.share_of_memory(device, pool, options.token_budget)
    return options.model_copy(update={"memory_share": share})


def allowed_options(
    options: EngineOptions, model: Model, cluster: Cluster, pool: Pool, engine: Engine
) -> EngineOptions:
    """The options that the model leaves.

    No more sequences than memory of states admits; prompts of encoders are computed whole, and none is found
    in a cache (vLLM turns chunked prefill and prefix caching off for them), as none of states alone.

    Args:
        options: of the pool.
        model, cluster, pool, engine: of the replica.
    """
    if not model.causal or model.encoder:
        options = options.model_copy(update={"chunked_prefill": False, "prefix_caching": False})
    if not model.cached_layers:
        options = options.model_copy(update={"prefix_caching": False})
    elif model.linear is None or engine.state_pool is None:
        return options
    price = StepPrice(model, cluster, pool, engine)
    footprint = memory(
        price, options.token_budget, options.max_sequences, options.memory_share, options.block_tokens
    )
    fitting = admitted(price, footprint, options)
    if fitting is None or fitting >= options.max_sequences:
        return options
    return options.model_copy(update={"max_sequences": fitting})


MOST_CONTEXT = 1 << 17
"""Longest context on the iteration table's grid; longer ones are extrapolated or priced in full."""


def replica_costs(
    model: Model,
    cluster: Cluster,
    pool: Pool,
    options: EngineOptions,
    engine: Engine,
    tables: SharedTables | None = None,
) -> ReplicaCosts:
    """Costs of a replica of a pool; ``tables`` shares step times between questions.

    Raises:
        InfeasibleError: the weights leave no room for a KV block; says by how much.
    """
    price = StepPrice(model, cluster, pool, engine)
    footprint = memory(
        price, options.token_budget, options.max_sequences, options.memory_share, options.block_tokens
    )
    if pool.stream is not None:
        footprint = replace(footprint, weights=pool.stream.resident_share(model.layers) * footprint.weights)
    if not options.kv_blocks:
        check_fits(price, footprint)
    context = min(options.max_context or model.longest_request, MOST_CONTEXT)
    make = iteration_table if tables is None else tables.table
    # Drafts beside prompts: steps beyond the table would be priced one by one.
    verified = 0 if pool.speculation is None else pool.speculation.queries - 1
    budget = options.token_budget + verified * options.max_sequences
    table = make(price, budget, options.max_sequences, context)
    device = cluster.device
    idle = pool.devices * device.idle_watts + pool.devices / cluster.devices_per_node * cluster.host_watts
    return ReplicaCosts(
        steps=table,
        kv_blocks=options.kv_blocks or footprint.kv_blocks,
        kv_token_bytes=footprint.kv_token * pool.tensor * pool.pipeline,
        weight_bytes=footprint.weights,
        copy_s=footprint.kv_token * pool.devices / cluster.rates.copies(pool.devices),
        idle_watts=idle,
        first_token_s=price.times.first_token_s,
        window=window_of(price),
    )


def _unscheduled(engine: Engine, speculation: Speculation) -> Engine:
    """The engine of a draft model's passes, which follow each other without scheduling between them."""
    pass_s = speculation.defaults.pass_s
    if pass_s is None:
        return engine
    pass_s = min(pass_s, engine.step_s, key=lambda figure: figure.value)
    times = tuple(layer.model_copy(update={"sequence_s": 0.0}) for layer in engine.times)
    return engine.model_copy(update={"step_s": pass_s, "times": times})


def speculating(
    costs: ReplicaCosts,
    speculation: Speculation,
    draft: Model | None,
    target: Model,
    cluster: Cluster,
    pool: Pool,
    options: EngineOptions,
    engine: Engine,
) -> ReplicaCosts:
    """Costs of a replica whose decodes verify drafts made on the same devices.

    Weights and KV of a draft model or of draft heads take blocks from the target's; an asynchronous draft
    model has devices of its own, as many as a stage.

    Args:
        costs: of the target alone.
        speculation: kind and size of the drafts.
        draft: draft model; None where heads or looked-up tokens propose.
        target: the model.
        cluster, pool, options, engine: of the replica.

    Raises:
        InfeasibleError: the drafts leave the target no KV block.
    """
    layers = speculation.draft_layers
    if draft is not None:
        draft_layout = {"pipeline": 1} if speculation.asynchronous else {}
        alone = pool.model_copy(update={"speculation": None, "expert": 1, "expert_tensor": 0, **draft_layout})
        price = StepPrice(draft, cluster, alone, _unscheduled(engine, speculation))
        footprint = memory(price, options.token_budget, options.max_sequences, options.memory_share)
        context = min(options.max_context or draft.max_sequence, MOST_CONTEXT)
        steps: StepTimes | None = iteration_table(price, options.token_budget, options.max_sequences, context)
        if speculation.asynchronous:
            return replace(costs, steps=AsynchronousSteps(costs.steps, steps, speculation))
        weights, kv_token, name = footprint.weights, footprint.kv_token, f"draft model {draft.name}"
    else:
        times = HeadTimes.of(speculation, target.layers)
        share = times.share
        steps = DraftHeads(costs.steps, times) if layers and speculation.draft_passes else None
        weights = share * costs.weight_bytes
        kv_token = share * costs.kv_token_bytes / (pool.tensor * pool.pipeline)
        name = f"draft of kind {speculation.kind}"
    devices = pool.tensor * pool.pipeline
    block = (costs.kv_token_bytes / devices + kv_token) * options.block_tokens
    room = costs.kv_blocks * costs.kv_token_bytes / devices * options.block_tokens - weights
    if room < block and not options.kv_blocks:
        raise InfeasibleError(
            f"the {name} ({weights / 2**30:.1f} GiB of weights a device) leaves no "
            f"room for KV on {pool.devices} x {cluster.device.name}; a smaller draft or more devices help"
        )
    return replace(
        costs,
        steps=SpeculativeSteps(costs.steps, steps, speculation),
        kv_blocks=options.kv_blocks or max(int(room / block), 1),
        weight_bytes=costs.weight_bytes + weights,
    )
