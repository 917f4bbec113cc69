"""Post-training for launchers: verl, NeMo RL and slime, whose keys lie beside this module (`key_files`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import yaml

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, nested
from meshwright.exporters.facts import chosen_levers
from meshwright.exporters.host_state import EXPRESSED, MEGATRON, megatron_offload
from meshwright.exporters.key_files import KeyFile, key_file
from meshwright.exporters.table import Facts, Options
from simulator.plan import Plan
from simulator.rl.schedules.asynchronous import RolloutsAhead
from simulator.rl.schedules.partial import PartialRollouts
from simulator.scenario import fill_plan

if TYPE_CHECKING:
    from simulator.rl.setting import RlSetting

LAYOUT: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("tensor", "pipeline", "context", "expert", "expert_tensor")},
    "sequence_parallel": ("sequence_parallel",),
    "virtual_pipeline": ("chunks",),
    "first_stage_layers": ("first_layers",),
    "last_stage_layers": ("last_layers",),
    "recompute": ("granularity", "full"),
    "dispatcher": ("dispatcher",),
    "dispatcher_library": ("deepep", "flex_backend"),
}
"""Fields of a plan, and the facts by which a launcher's keys state them."""
FOLLOWS = ("data", "micro_batch", "zero", "shard_group")
"""Fields that follow from the launch, or that only FSDP states."""
HOST = {name: f"host_{name}" for name in MEGATRON}
"""Facts of an optimizer on the host."""


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

    def facts(self) -> Facts:
        """What the keys of launchers are made of."""
        setting = self.setting
        algorithm, schedule, split = setting.algorithm, setting.schedule, setting.schedule.split
        offloaded = megatron_offload(self.plan, HOST)[0] if self.megatron else {}
        return {
            "model": setting.model.name,
            "algorithm": algorithm.name,
            "rloo": algorithm.name == "rloo",
            "reference": algorithm.reference,
            "reward_model": algorithm.reward_model,
            "megatron": self.megatron,
            "fsdp": not self.megatron,
            "offloads": split is None and setting.offload,
            **{name: offloaded.get(name) for name in HOST.values()},
            **self._work(),
            **self._layout(),
            **self._dispatcher(),
            **self._engine(),
            "nodes": self.nodes,
            "per_node": self.per_node,
            "generating_nodes": self.generating_nodes,
            "generating_per_node": self.per_node,
            "all_nodes": self.nodes + self.generating_nodes,
            "split": split is not None,
            "off_policy": split is not None and schedule.kind != "synchronous",
            "colocated": split is None,
            "generating": split.generate if split else None,
            "ahead": isinstance(schedule, RolloutsAhead),
            "resumes": getattr(schedule, "running", "") == "recompute",
            "staleness": float(getattr(schedule, "staleness", 1.0)),
            "age": max(round(getattr(schedule, "staleness", 1.0)), 1),
        }

    def _work(self) -> Facts:
        work, schedule = self.setting.workload, self.setting.schedule
        answers = work.mini_batch or work.answers
        partial_ones = isinstance(schedule, PartialRollouts)
        return {
            **{name: getattr(work, name) for name in ("prompts", "samples", "epochs")},
            "repeats": work.epochs > 1,
            "prompt_tokens": work.input.longest(),
            "answer_tokens": work.output.longest(),
            "mini_answers": answers,
            "mini_prompts": max(answers // work.samples, 1),
            "updates": max(work.prompts // max(answers // work.samples, 1), 1),
            "partial": partial_ones,
            "oversampled": round(work.prompts * (1 + schedule.extra)) if partial_ones else None,
        }

    def _layout(self) -> Facts:
        layout, training = self.plan, self.setting.trainer.training
        scoring_rows = self.setting.scoring[1].micro_batch
        names = ("tensor", "pipeline", "context", "expert", "expert_tensor", "sequence_parallel")
        return {
            **{name: getattr(layout, name) for name in (*names, "zero", "micro_batch")},
            "sharded": layout.zero == 3,
            "shards_optimizer": layout.zero > 0,
            "shard_group": layout.shard_group or -1,
            "chunks": layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
            "sequence_ranks": layout.tensor * layout.context,
            "first_layers": layout.first_stage_layers or None,
            "last_layers": layout.last_stage_layers or None,
            "granularity": layout.recompute if layout.recompute != "none" else None,
            "full": layout.recompute == "full",
            "seq_len": training.seq_len,
            "packs": training.packing in ("pack", "balance"),
            "row_tokens": training.seq_len * layout.micro_batch // layout.context,
            "scoring_rows": scoring_rows,
            "scores_other_rows": scoring_rows != layout.micro_batch,
            "scoring_tokens": training.seq_len * scoring_rows // layout.context,
        }

    def _dispatcher(self) -> Facts:
        """Megatron Core's keys where its flex dispatcher sends tokens to experts."""
        trainer = self.setting.trainer
        levers = chosen_levers(trainer.of(self.plan), self.plan)
        flex = trainer.model.moe is not None and levers["dispatcher"] == "flex"
        hybridep = flex and levers["dispatcher_library"] == "hybridep"
        return {
            "dispatcher": "flex" if flex else None,
            "flex_backend": "hybridep" if hybridep else None,
            "deepep": flex and not hybridep,
        }

    def _engine(self) -> Facts:
        """Of the rollout engine's first pool."""
        served = self.setting.rollouts.pools[0]
        pool = served.pool
        names = ("tensor", "pipeline", "data", "devices")
        return {
            "engine": engine_name(self.setting),
            **{f"engine_{name}": getattr(pool, name) for name in names},
            "engine_spread": pool.data > 1,
            "fp8": str(pool.weights).startswith("fp8"),
            "memory_share": round(float(served.options.memory_share), 4),
            "max_sequences": served.options.max_sequences,
            "token_budget": served.options.token_budget,
        }


def posted(question: ExportQuestion, keys: KeyFile) -> Posted:
    """The plan of a question of post-training for a launcher.

    Raises:
        InputError: a part of the plan that the launcher lacks, or roles that do not fill nodes.
    """
    setting = question.post_trained()
    schedule = setting.schedule
    megatron = setting.trainer.framework.code_base == "Megatron Core"
    _check_parts(keys, setting, "megatron" if megatron else "fsdp")
    per_node = min(setting.cluster.devices_per_node, setting.trainer.cluster.devices)
    split = schedule.split
    counts = [setting.trainer.cluster.devices, split.generate if split else 0]
    if any(count % per_node for count in counts):
        raise InputError(f"{counts} devices do not fill nodes of {per_node}", "schedule.split")
    return Posted(
        setting=setting,
        nodes=counts[0] // per_node,
        per_node=per_node,
        generating_nodes=counts[1] // per_node,
        megatron=megatron,
        gaps=tuple(_gaps(setting, keys, megatron)),
        notes=(
            f"the model's name on Hugging Face or its folder, in place of {setting.model.name}",
            "the data set, its reward, the learning rate",
            f"lengths of answers are predicted with a mean of {setting.workload.output.mean():,.0f} tokens",
        ),
    )


def _check_parts(keys: KeyFile, setting: RlSetting, trainer: str) -> None:
    """Refuse what a launcher lacks."""
    parts = {
        "schedule.kind": (setting.schedule.kind, keys.schedules),
        "workload.algorithm": (setting.algorithm.name, keys.estimators),
        "roles.generate.engine": (engine_name(setting), keys.engines),
        "roles.train": (trainer, keys.trainers),
    }
    for place, (part, allowed) in parts.items():
        if part not in allowed:
            raise InputError(f"is {part}; {keys.launcher} has {', '.join(allowed)}", place)


def _expressed(plan: Plan, keys: KeyFile, megatron: bool) -> tuple[str, ...]:
    """Fields of a plan that a launcher's keys state."""
    conditions: Facts = {"megatron": megatron, "fsdp": not megatron}
    stated = {fact for facts in LAYOUT.values() for fact in facts if keys.key_of(fact, conditions)}
    fields = {name for name, facts in LAYOUT.items() if stated.intersection(facts)}
    if plan.recompute == "selective" and "granularity" not in stated:
        fields.discard("recompute")
    return (*FOLLOWS, *sorted(fields), *(EXPRESSED if megatron else ("context_algorithm",)))


def _gaps(setting: RlSetting, keys: KeyFile, megatron: bool) -> list[str]:
    plan = setting.plan
    expressed = _expressed(plan, keys, megatron)
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
    """Family of the rollout engine."""
    engine = setting.rollouts.pools[0].pool.engine
    return engine.partition("-")[0] if isinstance(engine, str) else "inline"


def write(target: str, question: ExportQuestion) -> Export:
    """The configuration of a launcher and the command, with their gaps.

    Raises:
        InputError: a part of the plan that the launcher lacks, or roles that do not fill nodes.
    """
    keys = key_file(target)
    plan = posted(question, keys)
    facts = plan.facts() | keys.schedules[plan.setting.schedule.kind]
    facts["estimator"] = keys.estimators[facts["algorithm"]]
    facts["trainer"] = f"{'_megatron' if plan.megatron else ''}_trainer"
    return keys.launch(question, facts, plan.gaps, plan.notes, yaml_text)


def yaml_text(flat: Options) -> str:
    """Dotted keys as YAML."""
    return yaml.safe_dump(nested(flat), sort_keys=False, width=110)


TITLES = {
    "verl": "verl's Hydra configuration",
    "nemo-rl": "NeMo RL's recipe",
    "slime": "slime's launch script",
}
EXPORTERS = {name: Exporter(name, title, ("rl",), partial(write, name)) for name, title in TITLES.items()}
