"""Post-training plans for launchers: what a plan states, apart from any launcher's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from core.errors import InputError
from meshwright.exporters.base import ExportQuestion, nested
from meshwright.exporters.host_state import EXPRESSED, MEGATRON, megatron_offload
from meshwright.exporters.table import Options
from simulator.plan import Plan
from simulator.scenario import fill_plan

if TYPE_CHECKING:
    from simulator.rl.setting import RlSetting

LAYOUT = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
    "expert_tensor",
    "sequence_parallel",
    "first_stage_layers",
    "last_stage_layers",
    "recompute",
)
"""Fields of a plan that a Megatron launcher of post-training states."""
FOLLOWS = ("data", "micro_batch", "zero", "shard_group")
"""Fields that follow from the launch, or that only FSDP states."""


@dataclass(frozen=True)
class Posted:
    """A plan of post-training as launchers state it.

    Attributes:
        setting: the question.
        nodes, per_node: of the trainer, where roles are apart; otherwise of the job.
        generating_nodes: of the rollout engine where roles are apart, otherwise 0.
        megatron: the trainer runs Megatron; otherwise FSDP.
        gaps: what launch files do not express.
        notes: what the user adds.
    """

    setting: RlSetting
    nodes: int
    per_node: int
    generating_nodes: int
    megatron: bool
    gaps: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The trainer's layout."""
        return self.setting.plan

    @property
    def scoring_rows(self) -> int:
        """Rows of a forward pass over answers."""
        return self.setting.scoring[1].micro_batch

    @property
    def offloads(self) -> bool:
        """State leaves shared devices for rollouts."""
        return self.setting.schedule.split is None and self.setting.offload

    def host_optimizer(self, prefix: str, names: Mapping[str, str]) -> Options:
        """Options of Megatron's optimizer where it lies on the host, with a prefix before each."""
        options = megatron_offload(self.plan, names)[0] if self.megatron else {}
        return {f"{prefix}{name}": value for name, value in options.items()}

    @property
    def row_tokens(self) -> int:
        """Tokens of a row, of which a micro batch has some."""
        return self.setting.trainer.training.seq_len * self.plan.micro_batch


def posted(question: ExportQuestion, schedules: Mapping[str, str]) -> Posted:
    """The plan of a question for a launcher.

    Args:
        question: of post-training.
        schedules: kinds of schedule that the launcher has, with its words for them.

    Raises:
        InputError: a schedule that it lacks, or roles that do not fill nodes.
    """
    setting = question.post_trained()
    schedule = setting.schedule
    if schedule.kind not in schedules:
        raise InputError(f"is {schedule.kind}; the launcher has {', '.join(schedules)}", "schedule.kind")
    per_node = min(setting.cluster.devices_per_node, setting.trainer.cluster.devices)
    split = schedule.split
    counts = [setting.trainer.cluster.devices, split.generate if split else 0]
    if any(count % per_node for count in counts):
        raise InputError(f"{counts} devices do not fill nodes of {per_node}", "schedule.split")
    megatron = setting.trainer.framework.name.startswith("megatron")
    return Posted(
        setting=setting,
        nodes=counts[0] // per_node,
        per_node=per_node,
        generating_nodes=counts[1] // per_node,
        megatron=megatron,
        gaps=tuple(_gaps(setting, megatron)),
        notes=(
            f"the model's name on Hugging Face or its folder, in place of {setting.model.name}",
            "the data set, its reward, the learning rate",
            f"lengths of answers are predicted with a mean of {setting.workload.output.mean():,.0f} tokens",
        ),
    )


def _gaps(setting: RlSetting, megatron: bool) -> list[str]:
    plan = setting.plan
    expressed = (
        (*LAYOUT, *FOLLOWS, *EXPRESSED)
        if megatron
        else ("context", "context_algorithm", "recompute", *FOLLOWS)
    )
    launched = fill_plan(setting.trainer, {name: getattr(plan, name) for name in expressed}, "plan")
    gaps = [
        f"plan.{name} = {getattr(plan, name)}"
        for name in Plan.model_fields
        if getattr(plan, name) != getattr(launched, name)
    ]
    if megatron:
        gaps += megatron_offload(plan, MEGATRON)[1]
    pool = setting.rollouts.pools[0].pool
    if len(setting.rollouts.pools) > 1:
        gaps.append("roles.generate: pools of prefill and decoding")
    if pool.expert and pool.expert > 1:
        gaps.append(f"roles.generate.expert = {pool.expert}")
    if setting.environments is not None:
        gaps.append("roles.environment: what answers call")
    return gaps


def engine_name(setting: RlSetting) -> str:
    """vllm or sglang, by the rollout engine.

    Raises:
        InputError: another engine.
    """
    engine = setting.rollouts.pools[0].pool.engine
    name = engine if isinstance(engine, str) else "inline"
    family = name.partition("-")[0]
    if family not in ("vllm", "sglang"):
        raise InputError(
            f"is {name}; launchers of post-training take vllm and sglang", "roles.generate.engine"
        )
    return family


def memory_share(setting: RlSetting) -> float:
    """Share of a device's memory for the rollout engine."""
    return round(float(setting.rollouts.pools[0].options.memory_share), 4)


def yaml_file(flat: Mapping[str, Any], head: str) -> str:
    """Dotted keys as a YAML file under a comment."""
    return head + yaml.safe_dump(nested(flat), sort_keys=False, width=110)
