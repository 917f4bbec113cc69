"""The model of a published row: from the catalogue, by name or shape, or from the columns."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from core.loading import build
from meshwright.validation.rows import PublishedRow, SkippedRow, conventions, rule_of
from simulator.models import Model, models


def read_model(row: PublishedRow) -> Model:
    """Return the architecture that a row trained.

    The catalogue's model is taken where columns cannot state the architecture (experts, latent attention):
    by name, or by the shape of one layer. A row with fewer layers ran a proxy of it.

    Raises:
        Skipped: the row names a model that its columns cannot describe, and the catalogue lacks it.
        InputError: the columns describe no model.
    """
    catalogued = _named(row)
    if catalogued is None:
        _refuse(row, True)
        catalogued = _of_shape(row)
    if catalogued is None:
        _refuse(row, False)
        return _dense_by_name(row, _of_columns(row))
    if row.integer("vocab", catalogued.vocabulary) != catalogued.vocabulary:
        # Trained with a tokenizer of its own.
        catalogued = build(Model, {**catalogued.model_dump(), "vocabulary": row.need("vocab")}, row.where)
    layers = row.integer("n_layers", catalogued.layers)
    if layers == catalogued.layers:
        return catalogued
    dense = row.number("dense_layers")
    if dense is None:
        row.assume("proxy of fewer layers: dense ones in proportion")
    return _proxy(catalogued, layers, dense)


@cache
def _with_parts() -> tuple[Model, ...]:
    """The catalogue's models with experts, latent or linear attention."""
    return tuple(model for model in models if has_parts(model))


def has_parts(model: Model) -> bool:
    """Whether columns of a row cannot state the architecture."""
    return bool(model.moe or model.mla or model.linear)


def _refuse(row: PublishedRow, whatever_shape: bool) -> None:
    """Skip a row of a model that is not modelled, or that its columns cannot describe."""
    for rule in conventions()["not_in_columns"]:
        named = re.search(rule["match"], _plain(row.text("model_name")))
        if named and rule.get("whatever_shape", False) == whatever_shape:
            raise SkippedRow(f"model {row.text('model_name')!r}: {rule['reason']}")


def _named(row: PublishedRow) -> Model | None:
    """The catalogue's model that the row names, where columns cannot state it; a width may be blank."""
    name, hidden = models.resolve(row.text("model_name")), row.number("d_model")
    named = None if name is None else models.get(name)
    fits = named is not None and has_parts(named) and (not hidden or named.hidden == hidden)
    if not fits:
        row.need("d_model")
    elif not hidden:
        row.assume("shape by the model's name")
    return named if fits else None


def _of_shape(row: PublishedRow) -> Model | None:
    """The catalogue's model whose layers the row has, where columns cannot state it.

    Fewer or more of them are a proxy of it only where the row's name begins as the model's.
    """
    shape = _shape_of_row(row)
    if shape is None:
        return None
    fitting = [model for model in _with_parts() if _shape(model) == shape and _has_heads(model, row)]
    exact = [model for model in fitting if model.layers == row.need("n_layers")]
    begins = _beginning(row.text("model_name"))
    akin = [model for model in fitting if _beginning(model.name) == begins]
    return next(iter(exact or akin), None)


def _beginning(name: str) -> str:
    """The first word of a model's name: its makers' series."""
    return re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]


def _has_heads(model: Model, row: PublishedRow) -> bool:
    """Whether a model has the row's heads of keys and values; latent ones are counted in several ways."""
    return bool(model.mla) or row.integer("n_kv_heads", model.kv_heads) == model.kv_heads


def _shape(model: Model) -> tuple[int, ...] | None:
    if model.moe is None:
        return None
    moe = model.moe
    return model.hidden, model.heads, moe.experts, moe.top_k, moe.feed_forward


def _shape_of_row(row: PublishedRow) -> tuple[int, ...] | None:
    experts = row.number("n_experts")
    if not experts or experts <= 1 or row.number("moe_d_ff") is None:
        return None
    counts = [row.need(name) for name in ("d_model", "n_heads", "n_experts", "top_k", "moe_d_ff")]
    return tuple(counts)


def _proxy(catalogued: Model, layers: int, dense: float | None) -> Model:
    """A model of fewer layers, with this many dense ones ahead of those with experts.

    Without their number, dense layers keep their share, at least one.
    """
    moe = catalogued.moe
    if moe is not None and moe.first_dense_layers:
        share = max(1, round(moe.first_dense_layers * layers / catalogued.layers))
        number = share if dense is None else round(dense)
        moe = moe.model_copy(update={"first_dense_layers": number})
    data: dict[str, Any] = {**catalogued.model_dump(), "layers": layers, "moe": moe and moe.model_dump()}
    return build(Model, data, f"{catalogued.name} of {layers} layers")


SHAPE = ("hidden", "heads", "kv_heads", "feed_forward", "activation", "norm")
"""What columns state of a dense model and its name must agree with."""

DETAILS = ("head_dim", "qk_norm", "qkv_bias", "tied_embeddings", "position", "norms_per_layer")
"""What only the name of a dense model states."""


def _dense_by_name(row: PublishedRow, stated: Model) -> Model:
    """The model of the columns, with the details of the catalogue's model of that name and shape."""
    name = models.resolve(row.text("model_name"))
    catalogued = None if name is None else models.get(name)
    if catalogued is None or has_parts(catalogued):
        return stated
    different = [field for field in SHAPE if getattr(catalogued, field) != getattr(stated, field)]
    if different:
        return stated
    details = {field: getattr(catalogued, field) for field in DETAILS}
    return build(Model, {**stated.model_dump(), **details}, row.where)


def _plain(name: str) -> str:
    """A name without punctuation and case."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _of_columns(row: PublishedRow) -> Model:
    """The architecture that the columns state."""
    name = re.sub(r"[^a-z0-9.]+", "-", row.text("model_name", "model").lower()).strip("-")
    layers, hidden = row.need("n_layers"), row.need("d_model")
    heads = row.need("n_heads")
    kind = row.text("ffn_type", "gelu").lower()
    gated = re.search(r"glu|\bgated|silu|swish|moe", kind) is not None
    activation = "swiglu" if gated else "relu2" if re.search(r"squared|relu\^?2", kind) else "gelu"
    experts = row.number("n_experts")
    defaults = conventions()["defaults"]
    rule = rule_of(row)
    vocabulary = rule.get("vocabulary", defaults["vocabulary"])
    if not row.text("vocab"):
        row.assume("vocabulary")
    data: dict[str, Any] = {
        "name": name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": row.integer("n_kv_heads", heads),
        "feed_forward": row.integer("d_ff", 4 * hidden),
        "vocabulary": row.integer("vocab", vocabulary),
        "max_sequence": row.need("seq_len"),
        "activation": activation,
        "norm": "rmsnorm" if gated else "layernorm",
        "position": rule.get("position", "learned") if activation == "gelu" else "rope",
        "tied_embeddings": rule.get("tied_embeddings", True) and activation == "gelu",
        "bias": activation == "gelu",
    }
    if hidden % heads:
        data["head_dim"] = round(hidden / heads)
    if experts and experts > 1:
        width = row.integer("moe_d_ff", data["feed_forward"])
        data["moe"] = {"experts": round(experts), "top_k": row.need("top_k"), "feed_forward": width}
    return build(Model, data, row.where)
