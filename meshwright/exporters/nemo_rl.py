"""NeMo RL: a recipe over ``examples/configs/grpo_math_1B.yaml``, and the command."""

from __future__ import annotations

from typing import Any

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.host_state import BRIDGE
from meshwright.exporters.post_training import Posted, engine_name, memory_share, posted, yaml_file

VERSION = "NeMo RL 0.5"
FILE, SCRIPT = "nemo-rl.yaml", "launch.sh"
SCHEDULES = {"synchronous": "in turn", "one-step-off": "async_grpo", "asynchronous": "async_grpo"}
MEGATRON = "policy.megatron_cfg"


def write(question: ExportQuestion) -> Export:
    """The recipe and the command, with their gaps.

    Raises:
        InputError: an algorithm, a schedule or an engine that NeMo RL lacks, or roles that do not fill nodes.
    """
    plan = posted(question, SCHEDULES)
    setting = plan.setting
    if setting.algorithm.critic:
        raise InputError(f"is {setting.algorithm.name}; NeMo RL has no critic", "workload.algorithm")
    if engine_name(setting) != "vllm":
        raise InputError("NeMo RL's recipes generate with vllm", "roles.generate.engine")
    gaps = list(plan.gaps)
    if setting.workload.epochs > 1:
        gaps.append(f"workload.epochs = {setting.workload.epochs}")
    if not plan.megatron and plan.plan.zero != 3:
        gaps.append(f"plan.zero = {plan.plan.zero}: DTensor shards parameters")
    keys = {**_workload(plan), **_trainer(plan), **_generation(plan)}
    head = commented(header(question, VERSION, tuple(gaps), plan.notes))
    base = "# Beside examples/configs of NeMo RL's repository.\ndefaults: grpo_math_1B.yaml\n"
    script = (
        "#!/usr/bin/env bash\n" + head + "set -euo pipefail\n\n"
        f'config="$(cd "$(dirname "$0")" && pwd)/{FILE}"\n'
        f'cd "${{NEMO_RL:?folder of NeMo RL}}"\ncp "$config" examples/configs/\n'
        f'uv run examples/run_grpo.py --config examples/configs/{FILE} "$@"\n'
    )
    files = {FILE: yaml_file(keys, head + base), SCRIPT: script}
    return Export(files, tuple(gaps), plan.notes, f"bash {SCRIPT}")


def _workload(plan: Posted) -> dict[str, Any]:
    setting = plan.setting
    work, schedule = setting.workload, setting.schedule
    keys: dict[str, Any] = {
        "grpo.num_prompts_per_step": work.prompts,
        "grpo.num_generations_per_prompt": work.samples,
        "grpo.use_leave_one_out_baseline": setting.algorithm.name == "rloo",
        "grpo.async_grpo.enabled": schedule.split is not None,
    }
    if schedule.split is not None:
        age = getattr(schedule, "staleness", 1.0)
        keys["grpo.async_grpo.max_trajectory_age_steps"] = max(round(age), 1)
        keys["loss_fn.use_importance_sampling_correction"] = True
    keys["loss_fn.reference_policy_kl_penalty"] = 0.01 if setting.algorithm.reference else 0.0
    return keys


def _trainer(plan: Posted) -> dict[str, Any]:
    setting, layout = plan.setting, plan.plan
    work = setting.workload
    keys: dict[str, Any] = {
        "policy.model_name": setting.model.name,
        "policy.train_global_batch_size": work.mini_batch or work.answers,
        "policy.train_micro_batch_size": layout.micro_batch,
        "policy.logprob_batch_size": plan.scoring_rows,
        "policy.max_total_sequence_length": setting.trainer.training.seq_len,
        "policy.precision": "bfloat16",
        "policy.sequence_packing.enabled": setting.trainer.training.packing in ("pack", "balance"),
        "policy.dtensor_cfg.enabled": not plan.megatron,
        "policy.megatron_cfg.enabled": plan.megatron,
    }
    if not plan.megatron:
        return keys | {
            "policy.dtensor_cfg.tensor_parallel_size": layout.tensor,
            "policy.dtensor_cfg.context_parallel_size": layout.context,
            "policy.dtensor_cfg.sequence_parallel": layout.sequence_parallel,
            "policy.dtensor_cfg.activation_checkpointing": layout.recompute == "full",
        }
    return keys | {
        "policy.optimizer": None,
        "policy.scheduler": None,
        "policy.make_sequence_length_divisible_by": layout.tensor * layout.context,
        f"{MEGATRON}.tensor_model_parallel_size": layout.tensor,
        f"{MEGATRON}.pipeline_model_parallel_size": layout.pipeline,
        f"{MEGATRON}.context_parallel_size": layout.context,
        f"{MEGATRON}.expert_model_parallel_size": layout.expert,
        f"{MEGATRON}.expert_tensor_parallel_size": layout.expert_tensor,
        f"{MEGATRON}.sequence_parallel": layout.sequence_parallel,
        f"{MEGATRON}.activation_checkpointing": layout.recompute == "full",
        f"{MEGATRON}.num_layers_in_first_pipeline_stage": layout.first_stage_layers or None,
        f"{MEGATRON}.num_layers_in_last_pipeline_stage": layout.last_stage_layers or None,
        **plan.host_optimizer(f"{MEGATRON}.", BRIDGE),
    }


def _generation(plan: Posted) -> dict[str, Any]:
    setting = plan.setting
    served = setting.rollouts.pools[0]
    split = setting.schedule.split
    engine = "policy.generation.vllm_cfg"
    keys: dict[str, Any] = {
        "policy.generation.backend": "vllm",
        "policy.generation.max_new_tokens": setting.workload.output.longest(),
        f"{engine}.async_engine": split is not None,
        f"{engine}.precision": "fp8" if str(served.pool.weights).startswith("fp8") else "bfloat16",
        f"{engine}.tensor_parallel_size": served.pool.tensor,
        f"{engine}.pipeline_parallel_size": served.pool.pipeline,
        f"{engine}.gpu_memory_utilization": memory_share(setting),
        "policy.generation.colocated.enabled": split is None,
    }
    if split is not None:
        keys["policy.generation.colocated.resources.num_nodes"] = plan.generating_nodes
        keys["policy.generation.colocated.resources.gpus_per_node"] = plan.per_node
    return keys | {
        "cluster.num_nodes": plan.nodes + plan.generating_nodes,
        "cluster.gpus_per_node": plan.per_node,
    }


EXPORTER = Exporter("nemo-rl", "NeMo RL's recipe", ("rl",), write)
