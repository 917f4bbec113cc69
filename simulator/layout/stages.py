"""How layers and parameters fall on pipeline stages: first, middle and last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.ops.ends import padded_vocabulary
from simulator.plan import Plans
from simulator.schedules import Schedule, get_schedule
from simulator.setting import Setting

MIRRORED = {"first": "last", "middle": "middle", "last": "first"}
"""The kind of stage that a rank is for micro batches that come from the other end of the pipeline."""


@dataclass
class Stages:
    """Layers of the three kinds of stage; arrays of shape (plans,).

    With one stage only ``first`` counts and it holds both ends of the model. ``middle`` is the fullest of the
    middle stages where they differ; with two stages it stands for an average stage without an end.
    """

    first: np.ndarray
    middle: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans) -> Stages:
        """Spread the layers as evenly as whole layers allow; the remainder goes to the middle stages.

        Layers of multi-token prediction follow the model's on the last stage.
        """
        layers, p = setting.model.layers, plans.pipeline
        even = np.floor(layers / p)
        first = np.where(plans.first_stage_layers == 0, even, np.maximum(plans.first_stage_layers, 0))
        last = np.where(plans.last_stage_layers == 0, even, np.maximum(plans.last_stage_layers, 0))
        between = np.maximum(p - 2, 1)
        middle = np.where(p > 2, np.ceil((layers - first - last) / between), np.where(p == 2, layers / 2, 0))
        given = (plans.first_stage_layers != 0) | (plans.last_stage_layers != 0)
        first = np.where((p == 2) & ~given, layers - last, first)
        if setting.mtp_layers:
            first, middle, last = _behind(setting, plans, given, (first, middle, last))
        return cls(
            np.where(p == 1, layers + setting.mtp_layers, first).astype(float),
            middle.astype(float),
            np.where(p == 1, 0, last).astype(float),
        )


def _behind(
    setting: Setting, plans: Plans, given: np.ndarray, even: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers of first, middle and last stage with multi-token prediction on the last.

    All chunks hold as many layers, rounded up; what that is too many the last chunk lacks, then the first
    (layouts of the DeepSeek-V3 recipes, Megatron Bridge).
    """
    layers, p, v = setting.model.layers, plans.pipeline, plans.virtual_pipeline
    chunk = np.ceil(layers / (p * v))
    spare = chunk * p * v - layers
    fits = ~given & (p > 1) & (spare <= 2 * chunk)
    lacks = np.minimum(spare, chunk)
    balanced = chunk * v - (spare - lacks), chunk * v, chunk * v - lacks
    first, middle, last = (np.where(fits, new, old) for new, old in zip(balanced, even, strict=True))
    return first, np.where(p == 2, even[1], np.where(p > 2, middle, 0)), last + setting.mtp_layers


@dataclass
class Parameters:
    """Parameters on one device by kind of stage; arrays of shape (plans,).

    ``dense`` are sharded over tensor-parallel ranks and replicated over data- and context-parallel ones;
    ``experts`` are sharded over expert-parallel ranks too.
    """

    dense: dict[str, np.ndarray]
    experts: dict[str, np.ndarray]
    one_layer: np.ndarray

    def total(self, stage: str) -> np.ndarray:
        """All parameters of one device of a stage."""
        return self.dense[stage] + self.experts[stage]


def parameters(setting: Setting, plans: Plans, stages: Stages) -> Parameters:
    """Count the parameters that one device of each kind of stage holds before data-parallel sharding."""
    model, t = setting.model, plans.tensor
    share = model.moe_layers / model.layers
    replicated = model.norm_parameters + share * model.router_parameters
    sharded = (
        model.attention_parameters
        + (1 - share) * model.dense_mlp_parameters
        + share * model.shared_expert_parameters
    )
    dense = sharded / t + replicated
    routed = share * model.moe.experts * model.expert_parameters if model.moe else 0.0
    experts = routed / (plans.expert * plans.expert_tensor)
    layers = {"first": stages.first, "middle": stages.middle, "last": stages.last}
    second = by_schedule(plans, lambda schedule: schedule.copies - 1)
    held = {stage: layers[stage] + second * layers[MIRRORED[stage]] for stage in layers}
    ends = _ends(setting, plans)
    return Parameters(
        dense={stage: held[stage] * dense + ends[stage] for stage in held},
        experts={stage: held[stage] * experts for stage in held},
        one_layer=dense + experts,
    )


def by_schedule(plans: Plans, value: Callable[[Schedule], float]) -> np.ndarray:
    """What each plan's schedule says, shape (plans,)."""
    return np.array([value(get_schedule(name)) for name in plans.schedule_names])[plans.schedule]


def gathered_together(plans: Plans, micro_batches: np.ndarray) -> np.ndarray:
    """Micro batches that share one gather of sharded parameters, shape (plans,)."""
    together = np.ones(len(plans))
    for index, name in enumerate(plans.schedule_names):
        chosen = plans.schedule == index
        together[chosen] = get_schedule(name).gathered_together(plans.pipeline[chosen], micro_batches[chosen])
    return together


def head_share(plans: Plans) -> dict[str, np.ndarray]:
    """Part of an output layer that each kind of stage holds.

    It sits on the last stage, where model chunks go back and forth (or with one stage) on the first, with
    bidirectional pipelines on both; vocabulary parallelism spreads it evenly.
    """
    spread = by_schedule(plans, lambda schedule: schedule.output_barriers > 0)
    both = by_schedule(plans, lambda schedule: schedule.copies > 1)
    back = by_schedule(plans, lambda schedule: schedule.returns) | (plans.pipeline == 1)
    even = spread / plans.pipeline
    return {
        "first": np.where(spread, even, both | back),
        "middle": even,
        "last": np.where(spread, even, both | ~back),
    }


def _ends(setting: Setting, plans: Plans) -> dict[str, np.ndarray]:
    """Parameters of the input embedding and of the output layer on each kind of stage."""
    model, t = setting.model, plans.tensor
    table = padded_vocabulary(setting.model, t) * model.hidden / t
    positions = model.max_sequence * model.hidden if model.position == "learned" else 0
    spread = by_schedule(plans, lambda schedule: schedule.output_barriers > 0)
    both = by_schedule(plans, lambda schedule: schedule.copies > 1)
    back = by_schedule(plans, lambda schedule: schedule.returns) | (plans.pipeline == 1)
    # On one rank tied tables are one.
    output = np.where(back & model.tied_embeddings, 0.0, table)
    share = head_share(plans)
    embedded = {"first": np.ones(len(plans)), "middle": np.zeros(len(plans)), "last": 1.0 * both}
    return {
        stage: np.where(spread, table / plans.pipeline, embedded[stage] * table)
        + embedded[stage] * positions
        + share[stage] * output
        + (share[stage] > 0) * model.norm_width
        for stage in MIRRORED
    }
