"""slime: a bash script of arguments for ``train.py`` or ``train_async.py``."""

from __future__ import annotations

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, array, commented, flags, header
from meshwright.exporters.host_state import MEGATRON
from meshwright.exporters.post_training import Posted, engine_name, memory_share, posted
from meshwright.exporters.table import Options
from simulator.rl.schedules.partial import PartialRollouts

VERSION = "slime 0.2"
SCRIPT = "launch.sh"
SCHEDULES = {
    "synchronous": "train.py",
    "one-step-off": "train_async.py",
    "partial-rollouts": "train.py",
}
"""Script that runs a schedule."""
ESTIMATORS = {"grpo": "grpo", "dapo": "grpo", "reinforce++": "reinforce_plus_plus", "ppo": "ppo"}


def write(question: ExportQuestion) -> Export:
    """The script, with its gaps.

    Raises:
        InputError: an algorithm, a schedule, an engine or a trainer that slime lacks, or roles that do not
            fill nodes.
    """
    plan = posted(question, SCHEDULES)
    setting = plan.setting
    if engine_name(setting) != "sglang":
        raise InputError("slime generates with sglang", "roles.generate.engine")
    if not plan.megatron:
        raise InputError(f"is {setting.trainer.framework.name}; slime trains with Megatron", "roles.train")
    if setting.algorithm.name not in ESTIMATORS:
        raise InputError(
            f"is {setting.algorithm.name}; slime has {', '.join(ESTIMATORS)}", "workload.algorithm"
        )
    head = commented(header(question, VERSION, plan.gaps, plan.notes))
    text = (
        "#!/usr/bin/env bash\n"
        + head
        + "set -euo pipefail\n\n"
        + array("ROLLOUT_ARGS", flags(_rollouts(plan)))
        + array("PERF_ARGS", flags(_layout(plan)))
        + array("PLACES", flags(_places(plan)))
        + f'\npython3 {SCHEDULES[setting.schedule.kind]} "${{ROLLOUT_ARGS[@]}}" "${{PERF_ARGS[@]}}" '
        '"${PLACES[@]}" ${MODEL_ARGS:-} "$@"\n'
    )
    notes = (*plan.notes, "MODEL_ARGS of the model (scripts/models of slime's repository)")
    return Export({SCRIPT: text}, plan.gaps, notes, f"bash {SCRIPT}")


def _rollouts(plan: Posted) -> Options:
    setting = plan.setting
    work, schedule = setting.workload, setting.schedule
    options: Options = {
        "--hf-checkpoint": setting.model.name,
        "--rollout-batch-size": work.prompts,
        "--n-samples-per-prompt": work.samples,
        "--rollout-max-response-len": work.output.longest(),
        "--global-batch-size": work.mini_batch or work.answers,
        "--advantage-estimator": ESTIMATORS[setting.algorithm.name],
    }
    if setting.algorithm.reference:
        options["--use-kl-loss"] = True
    if isinstance(schedule, PartialRollouts):
        options["--partial-rollout"] = True
        options["--over-sampling-batch-size"] = round(work.prompts * (1 + schedule.extra))
    return options


def _layout(plan: Posted) -> Options:
    layout = plan.plan
    options: Options = {
        "--tensor-model-parallel-size": layout.tensor,
        "--pipeline-model-parallel-size": layout.pipeline,
        "--context-parallel-size": layout.context,
        "--expert-model-parallel-size": layout.expert,
        "--expert-tensor-parallel-size": layout.expert_tensor,
        "--use-dynamic-batch-size": True,
        "--max-tokens-per-gpu": plan.row_tokens // layout.context,
        **plan.host_optimizer("", MEGATRON),
    }
    if plan.scoring_rows != layout.micro_batch:
        tokens = plan.setting.trainer.training.seq_len * plan.scoring_rows
        options["--log-probs-max-tokens-per-gpu"] = tokens // layout.context
    if layout.sequence_parallel:
        options["--sequence-parallel"] = True
    if layout.zero:
        options["--use-distributed-optimizer"] = True
    if layout.first_stage_layers:
        options["--decoder-first-pipeline-num-layers"] = layout.first_stage_layers
    if layout.last_stage_layers:
        options["--decoder-last-pipeline-num-layers"] = layout.last_stage_layers
    if layout.recompute == "full":
        options |= {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    elif layout.recompute == "selective":
        options["--recompute-granularity"] = "selective"
    return options


def _places(plan: Posted) -> Options:
    pool = plan.setting.rollouts.pools[0].pool
    options: Options = {
        "--actor-num-nodes": plan.nodes,
        "--actor-num-gpus-per-node": plan.per_node,
        "--rollout-num-gpus-per-engine": pool.devices,
        "--sglang-mem-fraction-static": memory_share(plan.setting),
    }
    if pool.data > 1:
        options |= {"--sglang-dp-size": pool.data, "--sglang-enable-dp-attention": True}
    if plan.setting.schedule.split is None:
        options["--colocate"] = True
    else:
        options["--rollout-num-gpus"] = plan.setting.schedule.split.generate
    return options


EXPORTER = Exporter("slime", "slime's launch script", ("rl",), write)
