"""verl: a Hydra configuration over its ``ppo_trainer`` or ``ppo_megatron_trainer``, and the command."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.host_state import BRIDGE
from meshwright.exporters.post_training import Posted, engine_name, memory_share, posted, yaml_file
from simulator.rl.schedules.asynchronous import RolloutsAhead

VERSION = "verl 0.6"
FILE, SCRIPT = "verl.yaml", "launch.sh"
SCHEDULES = {
    "synchronous": "verl.trainer.main_ppo",
    "one-step-off": "recipe.one_step_off_policy.main_ppo",
    "asynchronous": "recipe.fully_async_policy.fully_async_main",
}
"""Module that runs a schedule."""
ESTIMATORS = {
    "grpo": "grpo",
    "dapo": "grpo",
    "rloo": "rloo",
    "reinforce++": "reinforce_plus_plus",
    "ppo": "gae",
}
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
OVERRIDES = {field: name.removeprefix("optimizer.") for field, name in BRIDGE.items()}
"""Fields of Megatron Core's OptimizerConfig in verl's override_optimizer_config."""
BASES = {
    "synchronous": "ppo",
    "one-step-off": "one_step_off_ppo",
    "asynchronous": "fully_async_ppo",
}
"""Configurations below the file, before ``_trainer`` or ``_megatron_trainer``."""


def write(question: ExportQuestion) -> Export:
    """The configuration and the command, with their gaps.

    Raises:
        InputError: a schedule or an engine that verl lacks, or roles that do not fill nodes.
    """
    plan = posted(question, SCHEDULES)
    schedule = plan.setting.schedule
    base = f"{BASES[schedule.kind]}{'_megatron' if plan.megatron else ''}_trainer"
    keys: dict[str, Any] = {**_workload(plan), **_actor(plan), **_rollout(plan), **_places(plan)}
    gaps = list(plan.gaps)
    if plan.setting.algorithm.name not in ESTIMATORS:
        gaps.append(f"workload.algorithm = {plan.setting.algorithm.name}")
    if not plan.megatron and plan.plan.zero != 3:
        gaps.append(f"plan.zero = {plan.plan.zero}: FSDP shards parameters")
    head = commented(header(question, VERSION, tuple(gaps), plan.notes))
    # Hydra finds verl's own configurations beside the file.
    composed = "hydra:\n  searchpath: [pkg://verl.trainer.config]\n"
    composed += f"defaults: [{base}, _self_]\n"
    script = (
        "#!/usr/bin/env bash\n" + head + "set -euo pipefail\n\n"
        f'python3 -m {SCHEDULES[schedule.kind]} --config-path "$(cd "$(dirname "$0")" && pwd)" '
        f'--config-name {FILE.removesuffix(".yaml")} "$@"\n'
    )
    files = {FILE: yaml_file(keys, head + composed), SCRIPT: script}
    return Export(files, tuple(gaps), plan.notes, f"bash {SCRIPT}")


def _workload(plan: Posted) -> dict[str, Any]:
    work, algorithm = plan.setting.workload, plan.setting.algorithm
    return {
        "algorithm.adv_estimator": ESTIMATORS.get(algorithm.name, "grpo"),
        "data.train_batch_size": work.prompts,
        "data.max_prompt_length": work.input.longest(),
        "data.max_response_length": work.output.longest(),
        f"{ROLLOUT}.n": work.samples,
        f"{ACTOR}.use_kl_loss": algorithm.reference,
        f"{ACTOR}.ppo_mini_batch_size": max((work.mini_batch or work.answers) // work.samples, 1),
        f"{ACTOR}.ppo_epochs": work.epochs,
        "reward_model.enable": algorithm.reward_model,
    }


def _actor(plan: Posted) -> dict[str, Any]:
    layout, tokens = plan.plan, plan.row_tokens // plan.plan.context
    keys: dict[str, Any] = {
        "actor_rollout_ref.model.path": plan.setting.model.name,
        "actor_rollout_ref.model.use_remove_padding": True,
        f"{ACTOR}.strategy": "megatron" if plan.megatron else "fsdp2",
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": tokens // layout.micro_batch * plan.scoring_rows,
    }
    if not plan.megatron:
        return keys | {
            "actor_rollout_ref.model.enable_gradient_checkpointing": layout.recompute == "full",
            f"{ACTOR}.ulysses_sequence_parallel_size": layout.context,
            f"{ACTOR}.fsdp_config.fsdp_size": layout.shard_group or -1,
            f"{ACTOR}.fsdp_config.param_offload": plan.offloads,
            f"{ACTOR}.fsdp_config.optimizer_offload": plan.offloads,
        }
    for role in (ACTOR, "actor_rollout_ref.ref"):
        keys |= {
            f"{role}.megatron.tensor_model_parallel_size": layout.tensor,
            f"{role}.megatron.pipeline_model_parallel_size": layout.pipeline,
            f"{role}.megatron.virtual_pipeline_model_parallel_size": layout.virtual_pipeline
            if layout.virtual_pipeline > 1
            else None,
            f"{role}.megatron.context_parallel_size": layout.context,
            f"{role}.megatron.expert_model_parallel_size": layout.expert,
            f"{role}.megatron.expert_tensor_parallel_size": layout.expert_tensor,
            f"{role}.megatron.sequence_parallel": layout.sequence_parallel,
            f"{role}.megatron.param_offload": plan.offloads or role != ACTOR,
        }
    keys |= {f"{ACTOR}.megatron.{name}_offload": plan.offloads for name in ("grad", "optimizer")}
    keys |= plan.host_optimizer(f"{ACTOR}.optim.override_optimizer_config.", OVERRIDES)
    transformer = f"{ACTOR}.megatron.override_transformer_config"
    if layout.recompute != "none":
        keys[f"{transformer}.recompute_granularity"] = layout.recompute
    if layout.recompute == "full":
        keys |= {f"{transformer}.recompute_method": "uniform", f"{transformer}.recompute_num_layers": 1}
    for end, name in (("first", "first_stage_layers"), ("last", "last_stage_layers")):
        if getattr(layout, name):
            keys[f"{transformer}.num_layers_in_{end}_pipeline_stage"] = getattr(layout, name)
    return keys


def _rollout(plan: Posted) -> dict[str, Any]:
    pool = plan.setting.rollouts.pools[0]
    return {
        f"{ROLLOUT}.name": engine_name(plan.setting),
        f"{ROLLOUT}.tensor_model_parallel_size": pool.pool.tensor,
        f"{ROLLOUT}.pipeline_model_parallel_size": pool.pool.pipeline,
        f"{ROLLOUT}.data_parallel_size": pool.pool.data,
        f"{ROLLOUT}.gpu_memory_utilization": memory_share(plan.setting),
        f"{ROLLOUT}.max_num_seqs": pool.options.max_sequences,
        f"{ROLLOUT}.max_num_batched_tokens": pool.options.token_budget,
    }


def _places(plan: Posted) -> dict[str, Any]:
    keys: dict[str, Any] = {"trainer.nnodes": plan.nodes, "trainer.n_gpus_per_node": plan.per_node}
    schedule = plan.setting.schedule
    if schedule.split is None:
        return keys
    keys |= {
        "actor_rollout_ref.hybrid_engine": False,
        "rollout.nnodes": plan.generating_nodes,
        "rollout.n_gpus_per_node": plan.per_node,
    }
    if isinstance(schedule, RolloutsAhead):
        work = plan.setting.workload
        mini = max((work.mini_batch or work.answers) // work.samples, 1)
        keys |= {
            "data.train_batch_size": 0,
            "data.gen_batch_size": 1,
            "async_training.staleness_threshold": float(schedule.staleness),
            "async_training.trigger_parameter_sync_step": max(work.prompts // mini, 1),
            "async_training.require_batches": 1,
            "async_training.partial_rollout": schedule.running == "recompute",
        }
    return keys


EXPORTER = Exporter("verl", "verl's Hydra configuration", ("rl",), write)
