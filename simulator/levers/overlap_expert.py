"""Overlap of the exchange with experts with another micro batch; the field is in ``Plan``."""

from typing import Any

import numpy as np

from simulator.levers.lever import Lever
from simulator.levers.recompute_modules import repeats_experts, repeats_layers
from simulator.levers.rule import MEGATRON_CORE, Columns, LeverSetting, ReleaseRule

OVERLAP_PARTNER = "overlap_partner"


def may_overlap(setting: LeverSetting, plans: Columns) -> np.ndarray:
    """Whether an exchange with experts may run beside another micro batch, shape (plans,)."""
    interleaved = np.array([name == "interleaved" for name in plans.schedule_names])[plans.schedule]
    chunks = (plans.pipeline == 1) | interleaved & (plans.virtual_pipeline > 1)
    two = setting.training.micro_batches(plans.data, plans.micro_batch) >= 2
    return (plans.expert > 1) & chunks & two


def _overlaps(plans: Columns) -> np.ndarray:
    return plans.overlap_expert.astype(bool)


def _overlap_recompute(setting: LeverSetting, plans: Columns) -> np.ndarray:
    return ~(_overlaps(plans) & (repeats_layers(plans) | repeats_experts(setting, plans)))


def _overlap_partner(setting: LeverSetting, plans: Columns) -> np.ndarray:
    return ~_overlaps(plans) | may_overlap(setting, plans)


def _mechanism(_: LeverSetting, value: Any) -> tuple[str, ...]:
    return ("overlap of the expert exchange",) if value else ()


LEVER = Lever(
    "overlap_expert",
    acts_on="overlap",
    combined=True,
    of_experts=True,
    relevant=lambda plan: plan.expert > 1,
    mechanism=_mechanism,
    differs=lambda value: f"exchange {'overlapped' if value else 'exposed'}",
    words=lambda value: "overlapped exchange" if value else "",
    rules=(
        ReleaseRule(
            "overlap_recompute",
            "the exchange overlaps with another micro batch where neither whole layers nor whole experts are "
            "recomputed (Megatron Core, transformer_config.py: overlap_moe_expert_parallel_comm)",
            MEGATRON_CORE,
            ("overlap_expert", "recompute", "recompute_modules"),
            _overlap_recompute,
        ),
        ReleaseRule(
            OVERLAP_PARTNER,
            "an exchange between expert-parallel ranks overlaps with another micro batch: a replica needs "
            "two of them, and a pipeline interleaved chunks (Megatron Core, transformer_config.py: "
            "overlap_moe_expert_parallel_comm)",
            MEGATRON_CORE,
            ("overlap_expert", "expert", "pipeline", "virtual_pipeline", "schedule", "data", "micro_batch"),
            _overlap_partner,
            of_levers=False,
        ),
    ),
)
