"""A training question as flat facts, the form that mapping tables read and write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from core.errors import InputError, MeshwrightError
from meshwright.exporters.table import Facts, LauncherTable, same
from simulator.levers import LEVERS
from simulator.models import Model
from simulator.plan import Plan
from simulator.scenario import Scenario
from simulator.setting import Setting
from simulator.state.policy import POLICY_FIELDS

PARTS = ("moe", "mla", "linear", "numerics")
"""Keys of a model that are flattened."""
UNTOLD = (
    *("name", "aliases", "family", "source", "stated_parameters", "left_out", "checkpoint", "checkpoints"),
    *("draft_heads", "fp4", "parts", "weight_only", "checkpoint_kv", "checkpoint_problem"),
    *("causal", "tower", "tower_problem"),
    *PARTS,
)
"""Keys of a model that are no shape, or that are flattened."""

FRAMEWORK = (
    "dispatcher",
    "dispatcher_library",
    "graphs",
    "cross_entropy",
    "fused_router",
    "gradient_bytes",
    "states",
    "scaling",
)
"""Levers that launch commands state even where a plan leaves them to the release: launchers have defaults of
their own."""


def facts_of(scenario: Scenario, plan: Plan, launcher: LauncherTable) -> Facts:
    """All facts that a launcher may need; facts without effect are left out.

    Levers of ``FRAMEWORK`` that the plan leaves out are facts where the launcher has options for them.
    """
    setting = scenario.setting
    unstated = {*moot(setting, plan), *POLICY_FIELDS}
    written = plan.model_dump(mode="json")
    facts = {f"plan.{name}": value for name, value in written.items() if name not in unstated}
    facts |= {f"model.{name}": value for name, value in shape(setting.model).items()}
    workload = setting.training
    facts |= {
        "workload.seq_len": workload.seq_len,
        "workload.global_batch": workload.global_batch,
        "workload.precision": workload.precision,
        "workload.dropout": setting.dropout,
        "workload.causal": workload.causal,
    }
    unsaid = {"images": workload.images, "lengths": workload.lengths}
    facts |= {f"workload.{name}": "as in the scenario" for name, value in unsaid.items() if value}
    launched = chosen_levers(setting.of(plan), plan)
    for name in FRAMEWORK:
        if f"plan.{name}" in facts:  # after the options of the number format
            facts[f"plan.{name}"] = facts.pop(f"plan.{name}")
        has_option = f"plan.{name}" in facts or not launcher.tells(f"framework.{name}")
        if name not in moot(setting, plan) and not has_option:
            facts[f"framework.{name}"] = launched[name]
    return facts


def chosen_levers(setting: Setting, plan: Plan) -> dict[str, Any]:
    """The levers of a setting, as a plan's devices run them."""
    levers: dict[str, Any] = {name: getattr(setting.choices, name) for name in LEVERS}
    if levers["dispatcher"] == "flex-between-nodes":
        spans = plan.expert * plan.expert_tensor > setting.cluster.devices_per_node
        levers["dispatcher"] = "flex" if spans else "all-to-all"
    levers["scaling"] = levers["scaling"] or setting.framework.casts.scaling
    return levers | {"graphs": setting.graphs}


def launched_levers(setting: Setting, plan: Plan, launcher: LauncherTable) -> dict[str, Any]:
    """The levers of a plan and of its release that launch files state."""
    values = chosen_levers(setting.of(plan), plan)
    named = {name: values[name] for name in FRAMEWORK if launcher.expresses(f"plan.{name}", values[name])}
    return named | {"reduce_bytes": named["gradient_bytes"]} if "gradient_bytes" in named else named


SINGLE_LAYERS = (
    "value_dim",
    "shared_values",
    "query_rank",
    "output_rank",
    "output_groups",
    "feed_forwards",
    "kv_share",
    "cache_extra",
    "shared_kv_layers",
    "other_parameters",
    "mtp_passes",
    "mtp_block",
)
"""Fields of a model whose layers differ; others have their defaults."""


def shape(model: Model) -> Facts:
    """The shape of a model, flattened; parts that it lacks are left out."""
    data = model.model_dump(mode="json")
    facts = {name: value for name, value in data.items() if name not in UNTOLD and value is not None}
    if data["mla"] and data["mla"]["index_topk"] is None:
        data["mla"] = {name: value for name, value in data["mla"].items() if "index" not in name}
    for part in PARTS:
        if data[part]:
            facts |= {f"{part}.{name}": value for name, value in data[part].items() if value is not None}
    if model.moe is None:
        facts = {name: value for name, value in facts.items() if not name.startswith("numerics.router")}
    uniform = facts["attention_pattern"] == ["full"]
    if uniform:
        del facts["attention_pattern"]
    if facts["mlp_pattern"] == [True]:
        del facts["mlp_pattern"]
    defaults = {name: Model.model_fields[name].default for name in SINGLE_LAYERS}
    usual = {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    usual |= {"mtp_layers": 0, "linear.gate_rank": 0, "linear.channel_gates": False}
    return {name: value for name, value in facts.items() if name not in usual or not same(value, usual[name])}


def moot(setting: Setting, plan: Plan) -> set[str]:
    """Plan fields without effect on this plan, whatever their value."""
    dense = setting.model.moe is None
    flex = chosen_levers(setting.of(plan), plan)["dispatcher"] == "flex"
    alone = {
        "overlap_tensor": plan.tensor == 1,
        "sequence_parallel": plan.tensor == 1,
        "context_algorithm": plan.context == 1,
        "overlap_pipeline": plan.pipeline == 1,
        "schedule": plan.pipeline == 1,
        "rank_order": plan.pipeline == 1 or plan.data == 1,
        "overlap_gradients": plan.data * plan.context == 1,
        "overlap_parameters": plan.zero == 0 or plan.data * plan.context == 1,
        "shard_group": plan.zero == 0,
        "overlap_expert": plan.expert == 1,
        "recompute_modules": plan.recompute != "selective",
        "grouped_launches": dense,
        "expert": dense,
        "expert_tensor": dense,
        "dispatcher": dense,
        "dispatcher_library": dense or not flex,
        "fused_router": dense,
        "scaling": setting.training.precision != "fp8",
    }
    return {field for field, without_effect in alone.items() if without_effect}


def shipped_model(model: Model, launcher: LauncherTable) -> str:
    """A launcher's name of a model.

    Raises:
        InputError: the launcher does not ship the model.
    """
    name = launcher.models.get(model.name)
    if name is None:
        listed = ", ".join(launcher.models)
        raise InputError(f"{launcher.version} ships no {model.name}; it has {listed}", "--to")
    return name


def micro_batches(setting: Setting, plan: Plan) -> int:
    """Micro batches of a data-parallel rank in a step (gradient accumulation)."""
    return setting.training.micro_batches(plan.data, plan.micro_batch)


def check_derived(setting: Setting, plan: Plan, computed: Mapping[str, int]) -> None:
    """Refuse a file whose launcher arithmetic gives another job than the plan.

    Args:
        setting, plan: of the question.
        computed: ``devices``, ``data`` and ``global_batch`` as the launcher would compute them.

    Raises:
        MeshwrightError: they differ.
    """
    planned = {"devices": setting.cluster.devices, "data": plan.data}
    planned["global_batch"] = setting.training.global_batch
    for name, value in computed.items():
        if planned[name] != value:
            raise MeshwrightError(
                f"the launcher would compute {name} = {value}, the plan has {planned[name]}"
            )


def question_gaps(scenario: Scenario, framework: str, expressed: Collection[str] = ()) -> list[str]:
    """Parts of a question that no launcher takes, and state fields that this one does not take.

    ``expressed`` are the state fields of a plan that the launcher's own writer handles.
    """
    plan = scenario.plan
    fields = plan.model_dump(include=set(POLICY_FIELDS) - set(expressed)) if plan else {}
    gaps = [f"plan.{name}: no option of this launcher expresses it" for name in fields]
    if scenario.setting.training.adapter:
        gaps.append("workload.adapter: the training script adds adapters (PEFT, the launcher's own)")
    predicted = scenario.setting.framework.name
    if framework and predicted != framework:
        gaps.append(f"framework = {predicted}: the prediction is of {predicted}, these files run {framework}")
    if scenario.setting.stragglers:
        gaps.append("stragglers: slow devices are a property of the cluster")
    return gaps
