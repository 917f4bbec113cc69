"""The shape and the constants of a model under Megatron's configuration keys."""

from __future__ import annotations

from itertools import groupby

from meshwright.exporters.table import Facts
from simulator.models import MixtureOfExperts, Model
from simulator.models.numerics import Numerics, RotaryScaling

YARN = {"original_sequence": "yarn_original", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
"""Constants of YaRN that only models without latent attention take as options."""
LATENT_LENGTH = 4096
"""original_max_position_embeddings of MLATransformerConfig, which no option sets."""


def model_facts(model: Model, facts: Facts) -> tuple[Facts, list[str]]:
    """The shape of a model under Megatron's configuration keys."""
    options = {name: value for name, value in facts.items() if name.startswith("model.")}
    for name in ("model.attention_pattern", "model.mlp_pattern", "model.sliding_window", "model.qkv_bias"):
        options.pop(name, None)
    for name in [name for name in options if name.startswith("model.linear.")]:
        del options[name]
    options, gaps = _numeric_facts(model, options)
    options["derived.qkv_bias"] = model.qkv_bias and not model.bias
    options["derived.latent"] = model.mla is not None
    options["derived.tokenizer"] = "NullTokenizer"
    if model.mla:
        del options["model.kv_heads"]
        # Megatron-LM divides the width by the heads unless it is told theirs, whoever reads it.
        if model.hidden % model.heads == 0:
            del options["model.head_dim"]
    else:
        options["derived.grouped_heads"] = model.kv_heads != model.heads
        if model.kv_heads == model.heads:
            del options["model.kv_heads"]
    if model.linear or model.mlp_pattern != (True,) or "none" in model.attention_pattern:
        gaps.append("model.attention_pattern: give --hybrid-layer-pattern for layers of other kinds")
    elif set(model.attention_pattern) == {"sliding"} and model.sliding_window:
        options["derived.window"] = f"{model.sliding_window - 1},0"
    elif "sliding" in model.attention_pattern:
        gaps.append(
            "model.attention_pattern: give --window-size and --window-attn-skip-freq for sliding layers"
        )
    if model.moe:
        options |= _expert_facts(model, model.moe)
    for name in ("every", "first_dense_layers", "places", "shared_experts", "shared_feed_forward"):
        options.pop(f"model.moe.{name}", None)
    return options, gaps


def _numeric_facts(model: Model, facts: Facts) -> tuple[Facts, list[str]]:
    """Rotary positions and the router in Megatron's options, and constants without an option."""
    constants = model.numerics or Numerics()
    stated_facts = {
        name: value for name, value in facts.items() if not name.startswith("model.numerics.rotary_")
    }
    stated_facts.pop("model.numerics.router_normalised", None)
    gaps: list[str] = []
    if model.moe and constants.router_scores == "sigmoid" and constants.router_normalised is False:
        gaps.append("model.numerics.router_normalised = false: Megatron-LM normalises sigmoid scores")
    if model.moe and constants.router_scores != "sigmoid":
        stated_facts["derived.pre_softmax"] = constants.router_normalised is False
    if "model.numerics.router_scale" in stated_facts and constants.router_scale == 1.0:
        del stated_facts["model.numerics.router_scale"]
    stated_facts["derived.latent_norms"] = model.mla is not None
    if model.position != "rope":
        return stated_facts, gaps
    if constants.rotary_base:
        stated_facts["derived.rotary_base"] = int(constants.rotary_base)
    if constants.rotary_share not in (None, 1.0):
        stated_facts["model.numerics.rotary_share"] = constants.rotary_share
    more, missing = _scaled_positions(model, constants.rotary_scaling)
    return stated_facts | more, gaps + missing


def _scaled_positions(model: Model, scaling: RotaryScaling | None) -> tuple[Facts, list[str]]:
    """The stretch of rotary positions in Megatron's options."""
    if scaling is None:
        return {"derived.rope_type": "rope"} if model.mla else {}, []
    if scaling.kind == "llama3" and model.mla is None:
        return {"derived.llama_scaling": True, "derived.llama_factor": scaling.factor}, []
    if scaling.kind != "yarn":
        return {}, [
            f"model.numerics.rotary_scaling = {scaling.kind}: Megatron-LM scales as Llama 3 and YaRN do"
        ]
    facts: Facts = {"derived.yarn_factor": scaling.factor}
    facts |= {"derived.mscale": scaling.mscale, "derived.mscale_all": scaling.mscale_all}
    yarn = {f"derived.{option}": getattr(scaling, name) for name, option in YARN.items()}
    if model.mla is None:
        return {**facts, **yarn, "model.position": "yarn"}, []
    original = scaling.original_sequence
    stated = f"model.numerics.rotary_scaling.original_sequence = {original}"
    gap = f"{stated}: latent attention takes {LATENT_LENGTH}"
    return facts | {"derived.rope_type": "yarn"}, [gap] if original not in (None, LATENT_LENGTH) else []


def _expert_facts(model: Model, moe: MixtureOfExperts) -> Facts:
    """Expert layers in the keys of Megatron's configuration."""
    first, every, places = moe.first_dense_layers, moe.every, set(moe.places)
    rest = model.layers - first
    options: Facts = {"derived.grouped_products": True}
    if places:
        runs = groupby(range(model.layers), key=lambda layer: int(layer in places))
        pattern = "+".join(f"[{has_experts}]*{sum(1 for _ in run)}" for has_experts, run in runs)
        options["derived.layer_frequency"] = f"({pattern})"
    elif first and every == 1:
        options["derived.layer_frequency"] = f"([0]*{first}+[1]*{rest})"
    elif every > 1:
        period = f"([0]*{every - 1}+[1]*1)*{rest // every}"
        tail = f"+[0]*{rest % every}" if rest % every else ""
        options["derived.layer_frequency"] = f"([0]*{first}+{period}{tail})" if first else f"({period}{tail})"
    if moe.shared_experts:
        options["derived.shared_width"] = moe.shared_experts * moe.shared_feed_forward
    if not moe.latent:
        options["model.moe.latent"] = None
    if moe.groups == 1:
        options |= {"model.moe.groups": None, "model.moe.chosen_groups": None}
    return options
