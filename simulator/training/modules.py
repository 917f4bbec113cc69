"""Modules of a layer that selective recomputation names: ops that it repeats, and saved bytes that it frees.

Megatron Core discards a module's output, which the next one would keep as its input, and what the module's
kernels keep for each other, and computes both again before the backward pass (tensor_parallel/random.py:
CheckpointWithoutOutput); of ``mlp`` and ``moe`` all but the layer's input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.levers import ModuleName
from simulator.models import Model
from simulator.ops import Op


class Module(NamedTuple):
    """Ops of a layer's list, by the product or function that they belong to, or by their part.

    Args:
        repeats: those that run again.
        frees: those whose kept bytes are discarded.
        experts: whether only layers with experts, or only those without, have it; None: all.
    """

    repeats: tuple[str, ...]
    frees: tuple[str, ...]
    experts: bool | None = None


DENSE = "up", "activation", "down"
SHARED = tuple(f"shared_{name}" for name in DENSE)

MODULES: dict[ModuleName, Module] = {
    "core_attn": Module(("core",), ()),
    "mla_up_proj": Module(
        ("query_up", "key_value_up", "rope", "latent_norm", "split_projection"), ("attention",)
    ),
    "layernorm": Module(
        ("norm",), ("query_key_value", "query_down", "key_value_down", "up", "shared_up", "router")
    ),
    "mlp": Module(DENSE, DENSE[1:], experts=False),
    "mlp_act": Module(("activation",), ("down",), experts=False),
    "moe_act": Module(("expert_clamp", "expert_activation"), ("expert_down",), experts=True),
    "shared_experts": Module(SHARED, SHARED[1:], experts=True),
    "moe": Module(("mlp", "routed"), ("routed", *SHARED[1:]), experts=True),
}


def has_module(model: Model, name: str) -> bool:
    """Whether a model has layers with a module."""
    if name == "mla_up_proj":
        return model.mla is not None
    if name == "shared_experts":
        return model.moe is not None and model.moe.shared_experts > 0
    experts = next(module.experts for module_name, module in MODULES.items() if module_name == name)
    return experts is None or bool(model.moe_layers if experts else model.dense_layers)


def repeats(op: Op, names: Sequence[ModuleName], experts: bool) -> bool:
    """Whether a forward op runs again before the backward pass of its layer."""
    return any(_matches(op, MODULES[name].repeats) for name in names if _has(name, experts))


def frees(op: Op, names: Sequence[ModuleName], experts: bool) -> bool:
    """Whether the bytes that an op saves are discarded."""
    return any(_matches(op, MODULES[name].frees) for name in names if _has(name, experts))


def _has(name: ModuleName, experts: bool) -> bool:
    return MODULES[name].experts in (None, experts)


def _matches(op: Op, module_names: tuple[str, ...]) -> bool:
    return op.module in module_names or op.part in module_names
