"""Models: shapes and parameter counts."""

from __future__ import annotations

from typing import Any

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.units import counted
from simulator.models import Model, models
from simulator.ops.counts import active_parameters, flops_per_token, model_parameters


def _brief(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "family": model.family,
        "parameters": model_parameters(model),
        "active_parameters": active_parameters(model),
        "stated_parameters": model.stated_parameters,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "feed_forward": model.feed_forward,
        "vocabulary": model.vocabulary,
        "max_sequence": model.max_sequence,
        "experts": model.moe.experts if model.moe else 0,
    }


def _more(model: Model) -> dict[str, Any]:
    return {
        **model.model_dump(mode="json"),
        "forward_flop_per_token": float(flops_per_token(model, model.max_sequence)),
    }


def _attention(model: Model) -> str:
    if model.mla:
        return "MLA"
    return (
        "MHA" if model.kv_heads == model.heads else "MQA" if model.kv_heads == 1 else f"GQA({model.kv_heads})"
    )


SHORT_SEQUENCE = 4096


def _flops(model: Model) -> str:
    """Forward FLOP of a token at a usual and at the longest sequence."""
    lengths = sorted({min(SHORT_SEQUENCE, model.max_sequence), model.max_sequence})
    return ", ".join(f"{counted(float(flops_per_token(model, s)))} in sequences of {s:,}" for s in lengths)


def _kinds(model: Model) -> str:
    """Layers by kind of attention, where a model has several."""
    kinds = {kind: model.layers_of_kind(kind) for kind in dict.fromkeys(model.attention_pattern)}
    words = {"sliding": f"sliding window of {model.sliding_window}", "none": "without attention"}
    counted_kinds = [f"{count} {words.get(kind, kind)}" for kind, count in kinds.items() if count]
    return f": {', '.join(counted_kinds)}" if len(counted_kinds) > 1 or "full" not in kinds else ""


def _weights(model: Model) -> str:
    """Formats of the checkpoint's weights and KV; nothing for 16 bits."""
    if model.checkpoint_problem:
        return f"not known: {model.checkpoint_problem}"
    parts = f" ({model.parts.describe()})" if model.parts else ""
    kv = f", KV in {model.checkpoint_kv}" if model.checkpoint_kv else ""
    return f"{model.checkpoint}{parts}{kv}" if (model.checkpoint, kv) != ("bf16", "") else ""


def _about(model: Model) -> dict[str, str]:
    stated = f" (stated {counted(model.stated_parameters)})" if model.stated_parameters else ""
    active = f", {counted(active_parameters(model))} active" if model.moe else ""
    heads = f"{model.heads} heads of {model.head_dim}"
    figures = {
        "parameters": f"{counted(model_parameters(model))}{active}{stated}",
        "layers": f"{model.layers} of width {model.hidden}{_kinds(model)}",
        "attention": f"{_attention(model)}, {heads}, {model.position} positions",
        "MLP": f"{model.activation}, {model.feed_forward} wide",
        "vocabulary": f"{model.vocabulary}, {'tied' if model.tied_embeddings else 'untied'}",
        "longest sequence": str(model.max_sequence),
        "norm": model.norm,
        "forward FLOP per token": _flops(model),
        "weights": _weights(model),
        "left out": model.left_out,
        "also": ", ".join(model.aliases),
        "source": model.source,
    }
    if model.moe:
        moe = model.moe
        shared = f" and {moe.shared_experts} shared" if moe.shared_experts else ""
        figures["experts"] = (
            f"{moe.top_k} of {moe.experts}{shared}, {moe.feed_forward} wide, in {model.moe_layers} layers"
        )
    return figures


KIND = Kind(
    names=models.names,
    get=models.get,
    brief=_brief,
    more=_more,
    cells={
        "model": lambda model: model.name,
        "attention": _attention,
        "MLP": lambda model: model.activation,
        "parameters": lambda model: counted(model_parameters(model)),
        "active": lambda model: counted(active_parameters(model)) if model.moe else "",
        "layers": lambda model: str(model.layers),
        "hidden": lambda model: str(model.hidden),
        "heads": lambda model: str(model.heads),
        "feed-forward": lambda model: str(model.feed_forward),
        "vocabulary": lambda model: str(model.vocabulary),
        "experts": lambda model: f"{model.moe.top_k} of {model.moe.experts}" if model.moe else "",
    },
    about=_about,
    text_columns=3,
)
