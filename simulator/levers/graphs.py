"""Kernels that are replayed from CUDA graphs."""

from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field

from simulator.levers.dispatcher import flex
from simulator.levers.grouped_launches import fused_mlp
from simulator.levers.lever import Lever, Partial, choice, column
from simulator.levers.recompute_modules import repeats_experts, repeats_layers
from simulator.levers.rule import MEGATRON_CORE, Columns, LeverSetting, ReleaseRule, every, uses

Value = Literal["none", "slow-hosts", "router", "attention", "layer", "step"]
WORDS = (None, *get_args(Value))
GRAPHS_RECOMPUTE = "graphs_recompute"

GROWING: tuple[Value, ...] = ("router", "attention", "layer", "step")
"""Values by the kernels that graphs hold: each holds those of the values before it."""


class StatedGraphs(Partial):
    """As a plan states it."""

    graphs: Value | None = Field(
        default=None,
        description="kernels that are replayed from CUDA graphs: none; router, dispatch preparation and "
        "shared experts of layers with experts (router); attention too (attention), or these only on hosts "
        "that launch slowly, as Grace (slow-hosts); whole dense layers too (layer); all (step)",
    )


@choice
class ChosenGraphs:
    """As a release does it."""

    graphs: Value = "none"


@column
class GraphsColumn:
    """Of arrays of plans: codes of the values, shape (plans,)."""

    graphs: np.ndarray


def _step_graphs(setting: LeverSetting, plans: Columns) -> np.ndarray:
    if setting.model.moe is None or setting.of(plans).choices.fixed_capacity:
        return every(plans)
    on_device = fused_mlp(setting, plans) & flex(setting, plans)
    return ~uses(setting, "graphs", WORDS, plans.graphs, "step") | on_device


def _graphs_recompute(setting: LeverSetting, plans: Columns) -> np.ndarray:
    replayed = [setting.with_choices(graphs=word).graphs for word in WORDS]
    of_parts = np.array([graphs not in ("none", "step") for graphs in replayed])[plans.graphs]
    around = repeats_layers(plans) | repeats_experts(setting, plans) & (setting.model.moe is not None)
    return ~(around & of_parts)


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    used = setting.with_choices(graphs=value).graphs
    return () if used == "none" else (f"CUDA graphs of {used}",)


LEVER = Lever(
    "graphs",
    acts_on="passes",
    combined=True,
    mechanism=_mechanism,
    differs=lambda value: f"graphs {value or 'as released'}",
    words=lambda value: "no graphs" if value == "none" else f"{value} graphs",
    rules=(
        ReleaseRule(
            "step_graphs",
            "a graph of the whole step needs shapes that the host knows: dense layers, experts with a fixed "
            "capacity, or fused expert kernels behind the flex dispatcher, which read token counts on the "
            "device (Megatron Core, paged stash; Transformer Engine, fused grouped MLP)",
            MEGATRON_CORE,
            ("graphs", "grouped_launches", "dispatcher"),
            _step_graphs,
        ),
        ReleaseRule(
            GRAPHS_RECOMPUTE,
            "recomputed modules lie inside or outside graphs of parts, not around them; full recomputation "
            "needs graphs of the whole step (Megatron Core, transformer_config.py)",
            MEGATRON_CORE,
            ("graphs", "recompute", "recompute_modules"),
            _graphs_recompute,
        ),
    ),
)
