"""Rules of valid shapes, checked before any cost: one function per rule, over arrays of plans.

Search removes plans by these rules and counts the plans removed by each rule. A user's plan is refused with
the rule's explanation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from core.errors import InputError
from simulator.models import Model
from simulator.plan import USP, Plan, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.state.adapter import MULTIPLIED
from simulator.state.policy import StatePolicy
from simulator.state.problems import policy_problem
from simulator.workload import Training


class Rule(NamedTuple):
    """A condition on a plan.

    ``holds`` maps a setting and plans to a mask; ``explain`` tells why one plan breaks it.
    """

    name: str
    holds: Callable[[Setting, Plans], np.ndarray]
    explain: Callable[[Setting, Plan], str]


def broken(setting: Setting, plans: Plans) -> dict[str, np.ndarray]:
    """Masks of the plans that break a rule, by the rule's name."""
    return {rule.name: ~rule.holds(setting, plans) for rule in RULES}


def _devices(setting: Setting, plans: Plans) -> np.ndarray:
    return plans.devices == setting.cluster.devices


def _explain_devices(setting: Setting, plan: Plan) -> str:
    model_ranks, devices = plan.devices // plan.data, setting.cluster.devices
    hint = f"; data: {devices // model_ranks} would" if devices % model_ranks == 0 else ""
    degrees = f"{plan.tensor} x {plan.context} x {plan.data} x {plan.pipeline}"
    return (
        f"tensor x context x data x pipeline = {degrees} = {plan.devices} does not equal"
        f" the {devices} GPUs of the job{hint}"
    )


def _batch(setting: Setting, plans: Plans) -> np.ndarray:
    return setting.training.global_batch % (plans.data * plans.micro_batch) == 0


def _explain_batch(setting: Setting, plan: Plan) -> str:
    return (
        f"global_batch {setting.training.global_batch} does not divide by data x micro_batch = "
        f"{plan.data} x {plan.micro_batch} = {plan.data * plan.micro_batch}"
    )


def _heads(setting: Setting, plans: Plans) -> np.ndarray:
    heads = setting.model.heads
    return heads % (plans.tensor * plans.head_ranks) == 0


def _explain_heads(setting: Setting, plan: Plan) -> str:
    if plan.context_algorithm == "ulysses":
        degrees = f"tensor x context (ulysses) = {plan.tensor} x {plan.context}"
    elif plan.context_algorithm == "usp":
        degrees = f"tensor x context_heads (usp) = {plan.tensor} x {plan.context_heads}"
    else:
        degrees = f"tensor = {plan.tensor}"
    return f"the {setting.model.heads} attention heads of {setting.model.name} do not divide by {degrees}"


def _kv_heads(setting: Setting, plans: Plans) -> np.ndarray:
    kv_heads = setting.model.kv_heads
    return (kv_heads % plans.tensor == 0) | (plans.tensor % kv_heads == 0)


def _explain_kv_heads(setting: Setting, plan: Plan) -> str:
    return (
        f"the {setting.model.kv_heads} key-value heads of {setting.model.name} and tensor = {plan.tensor} "
        "do not divide each other"
    )


def _feed_forward(setting: Setting, plans: Plans) -> np.ndarray:
    return setting.model.feed_forward % plans.tensor == 0


def _explain_feed_forward(setting: Setting, plan: Plan) -> str:
    width, name = setting.model.feed_forward, setting.model.name
    return f"the feed-forward width {width} of {name} does not divide by tensor = {plan.tensor}"


def _layers(setting: Setting, plans: Plans) -> np.ndarray:
    """Whole layers on every chunk, where the first and last stage may be given fewer (or more).

    The difference is taken from the outermost chunk of that stage.
    """
    layers, p, v = setting.model.layers, plans.pipeline, plans.virtual_pipeline
    first, last = plans.first_stage_layers, plans.last_stage_layers
    even = (first == 0) & (last == 0)
    ends = [np.where(end == 0, layers // p, np.maximum(end, 0)) for end in (first, last)]
    rest = layers - ends[0] - ends[1]
    between = np.maximum(p - 2, 1)
    inner = rest / between * (v - 1) / v
    divides = (rest > 0) & (rest % (between * v) == 0) & (np.minimum(*ends) >= inner)
    uneven = np.where(p > 2, divides, (p == 2) & (rest == 0))
    fits = np.where(even, (layers % (p * v) == 0) | balances_predictions(setting, p, v), uneven)
    return fits & ((p == 1) | (setting.model.encoder is None))


def balances_predictions(setting: Setting, pipeline: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """Whether layers are spread around multi-token prediction on the last stage, shape (plans,).

    Chunks hold as many layers, rounded up; the last chunk and then the first hold fewer (``Stages``).
    """
    size = -(-setting.model.layers // (pipeline * chunks))
    spare = size * pipeline * chunks - setting.model.layers
    return (setting.mtp_layers > 0) & (pipeline > 1) & (spare <= 2 * size)


def _explain_layers(setting: Setting, plan: Plan) -> str:
    slots = f"pipeline x virtual_pipeline = {plan.pipeline} x {plan.virtual_pipeline}"
    if plan.first_stage_layers or plan.last_stage_layers:
        ends = (
            f"{plan.first_stage_layers} on the first stage and {plan.last_stage_layers} on the last "
            "(0: even, -1: none)"
        )
        return f"{setting.model.layers} layers with {ends} leave no whole layers per chunk with {slots}"
    if setting.model.encoder is not None and plan.pipeline > 1:
        return f"{setting.model.name} has an encoder: pipeline stages of its step are not modelled"
    return (
        f"{setting.model.layers} layers do not divide by {slots}; "
        "first_stage_layers and last_stage_layers allow uneven ends"
    )


def _schedule(setting: Setting, plans: Plans) -> np.ndarray:
    micro_batches = setting.training.micro_batches(plans.data, plans.micro_batch)
    allowed = np.zeros(len(plans), dtype=bool)
    for index, name in enumerate(plans.schedule_names):
        runs = get_schedule(name).requires(plans.pipeline, micro_batches, plans.virtual_pipeline)
        allowed |= (plans.schedule == index) & runs
    return allowed


def _explain_schedule(setting: Setting, plan: Plan) -> str:
    micro_batches = setting.training.micro_batches(plan.data, plan.micro_batch)
    rule = get_schedule(plan.schedule).rule
    return (
        f"the schedule {plan.schedule!r} needs {rule}; found {plan.pipeline} stages, "
        f"{micro_batches} micro batches, virtual_pipeline {plan.virtual_pipeline}"
    )


def _sequence(setting: Setting, plans: Plans) -> np.ndarray:
    pieces = plans.context * np.where(plans.sequence_parallel, plans.tensor, 1)
    return setting.training.seq_len % pieces == 0


def _explain_sequence(setting: Setting, plan: Plan) -> str:
    tensor = (
        f" x tensor (sequence_parallel) = {plan.context} x {plan.tensor}" if plan.sequence_parallel else ""
    )
    degrees = f"context{tensor or f' = {plan.context}'}"
    return f"seq_len {setting.training.seq_len} does not divide by {degrees}"


def _context(setting: Setting, plans: Plans) -> np.ndarray:
    usp = plans.context_algorithm == USP
    split = np.maximum(plans.context_heads, 1)
    degrees = np.where(
        usp, (plans.context_heads > 0) & (plans.context % split == 0), plans.context_heads == 0
    )
    alone = plans.context == 1
    return (degrees | alone) & _linear_layers(setting, plans) & (alone | (setting.model.encoder is None))


def _linear_layers(setting: Setting, plans: Plans) -> np.ndarray:
    """Linear layers exist where their exchange is chosen, and their heads divide where heads are exchanged.

    Megatron Core, mamba_context_parallel.py: nheads_local_tp must divide by cp_size.
    """
    linear = setting.model.linear
    exchange = plans.shared.linear_context or setting.choices.linear_context
    if linear is None:
        return np.full(len(plans), plans.shared.linear_context is None)
    if exchange != "heads":
        return (plans.context > 1) | (plans.shared.linear_context is None)
    return linear.heads % (plans.tensor * plans.context) == 0


def _explain_context(setting: Setting, plan: Plan) -> str:
    name, linear, exchange = setting.model.name, setting.model.linear, plan.linear_context
    if setting.model.encoder is not None and plan.context > 1:
        return f"{name} has an encoder: ranks that share its sequences are not modelled"
    if linear is None and exchange is not None:
        return f"linear_context {exchange}: {name} has no linear attention"
    if exchange not in (None, "heads") and plan.context == 1:
        return f"linear_context {exchange} exchanges states between context-parallel ranks; context is 1"
    if linear and linear.heads % (plan.tensor * plan.context) and exchange in (None, "heads"):
        return (
            f"the {linear.heads} heads of linear attention of {name} do not divide by tensor x context = "
            f"{plan.tensor} x {plan.context}; linear_context: lasp, lasp-2 or zeco exchange states instead"
        )
    if plan.context_algorithm == "usp":
        return (
            f"context_algorithm usp needs context_heads, a divisor of context = {plan.context}; "
            f"found {plan.context_heads}"
        )
    algorithm = plan.context_algorithm
    return f"context_heads {plan.context_heads} is a degree of usp; context_algorithm is {algorithm}"


def _experts(setting: Setting, plans: Plans) -> np.ndarray:
    moe = setting.model.moe
    if moe is None:
        return (plans.expert == 1) & (plans.expert_tensor == 1)
    return (moe.experts % plans.expert == 0) & (moe.feed_forward % plans.expert_tensor == 0)


def _explain_experts(setting: Setting, plan: Plan) -> str:
    moe = setting.model.moe
    if moe is None:
        return f"{setting.model.name} has no experts: expert and expert_tensor must be 1"
    return (
        f"the {moe.experts} experts of width {moe.feed_forward} of {setting.model.name} do not divide by "
        f"expert = {plan.expert} and expert_tensor = {plan.expert_tensor}"
    )


def _state_rule(setting: Setting, plans: Plans) -> np.ndarray:
    fine = [not policy_problem(setting.cluster, policy) for policy in plans.policies]
    return np.array(fine)[plans.policy] & _state_needs(plans) & _groups_fit(setting, plans)


def _groups_fit(setting: Setting, plans: Plans) -> np.ndarray:
    """Replica groups hold whole replicas, and fragments whole layers."""
    syncs = [policy.sync for policy in plans.policies]
    groups = np.array([max(sync.groups, 1) if sync else 1 for sync in syncs])[plans.policy]
    fragments = np.array([sync.fragments if sync else 1 for sync in syncs])[plans.policy]
    return (plans.data % groups == 0) & (fragments <= setting.model.layers)


def _state_needs(plans: Plans) -> np.ndarray:
    """Levels and formats of parameters move in passes only where parameters are sharded."""
    lattice = np.array([bool(_full_sharding(policy)) for policy in plans.policies])
    return ~lattice[plans.policy] | (plans.zero == 3)


def _full_sharding(policy: StatePolicy) -> str:
    """The field that needs sharded parameters, which are gathered in passes."""
    if policy.shard or (policy.wire and policy.wire.of_state):
        return "shard" if policy.shard else "wire"
    return "place.parameters" if policy.place and policy.place.parameters.off_device else ""


def _explain_state(setting: Setting, plan: Plan) -> str:
    if problem := policy_problem(setting.cluster, plan.policy):
        return problem
    sync = plan.sync
    if sync and sync.fragments > setting.model.layers:
        layers = f"the {setting.model.layers} layers of {setting.model.name}"
        return f"sync.fragments: {sync.fragments} fragments are more than {layers}"
    if sync and sync.groups and plan.data % sync.groups:
        return f"sync.groups: {plan.data} replicas (data) do not divide into {sync.groups} groups"
    return f"{_full_sharding(plan.policy)}: needs parameters that passes gather, zero: 3; found {plan.zero}"


def check_workload(setting: Setting, where: str) -> None:
    """Refuse a workload that the model or the device cannot carry.

    Args:
        setting: of the step.
        where: of the scenario.

    Raises:
        InputError: the reason.
    """
    if problem := _encoder_problem(setting.model, setting.training):
        raise InputError(problem, f"{where}: workload")
    if problem := adapter_problem(setting):
        raise InputError(problem, f"{where}: workload.adapter")


def _encoder_problem(model: Model, training: Training) -> str:
    """Why a workload does not go with the encoder of a model, or its lack of one; empty where it does."""
    if model.encoder is None:
        return f"source_len: {model.name} has no encoder" if training.source_len is not None else ""
    for name, stated in (("lengths", training.lengths), ("adapter", training.adapter)):
        if stated is not None:
            return f"{name}: not modelled beside an encoder; {model.name} has one"
    longest = model.encoder.max_sequence
    if training.source > longest:
        return f"source_len: {training.source:,} tokens are more than the {longest:,} that {model.name} reads"
    return ""


def adapter_problem(setting: Setting) -> str:
    """Why a model or a device cannot carry the workload's adapters, with its key; empty if they can."""
    adapter, model = setting.training.adapter, setting.model
    if adapter is None:
        return ""
    fused = not (model.mla or model.linear)
    there = {
        "attention": True,
        "query_key_value": fused,
        "mlp": bool(model.feed_forward),
        "experts": model.moe is not None,
    }
    for target in adapter.targets:
        if not there[target]:
            has = ", ".join(name for name, present in there.items() if present)
            return f"targets: {model.name} has no {target}; it has {has}"
    if adapter.base in MULTIPLIED:
        try:
            setting.cluster.device.peak(adapter.base)
        except InputError:
            device = setting.cluster.device.name
            return f"base: no kernel of {device} multiplies {adapter.base}; bf16, int8 or nf4 are left"
    return ""


RULES = (
    Rule("devices", _devices, _explain_devices),
    Rule("batch", _batch, _explain_batch),
    Rule("heads", _heads, _explain_heads),
    Rule("kv_heads", _kv_heads, _explain_kv_heads),
    Rule("feed_forward", _feed_forward, _explain_feed_forward),
    Rule("layers", _layers, _explain_layers),
    Rule("schedule", _schedule, _explain_schedule),
    Rule("sequence", _sequence, _explain_sequence),
    Rule("experts", _experts, _explain_experts),
    Rule("context", _context, _explain_context),
)
STATE = Rule("state", _state_rule, _explain_state)
"""Of the state fields of a user's plan; a search sets them only where they hold."""
