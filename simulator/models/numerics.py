"""Constants of a model that launch files need. Predictions read one fact of them: whether rotation scales."""

from math import isfinite
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from core.errors import InputError, shown
from core.loading import Strict
from simulator.models.huggingface_rules import Config

Constant = Annotated[float, Field(gt=0, le=1e15)]
Rotary = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
Scores = Literal["softmax", "sigmoid"]


class RotaryScaling(Strict):
    """Rotary positions stretched beyond the length of pre-training."""

    kind: Rotary
    factor: Constant
    original_sequence: Annotated[int, Field(gt=0, le=2**27)] | None = None
    """Length of pre-training, tokens."""
    low_frequency: Constant | None = None
    high_frequency: Constant | None = None
    beta_fast: Constant | None = None
    beta_slow: Constant | None = None
    mscale: Annotated[float, Field(ge=0, le=1e3)] | None = None
    mscale_all: Annotated[float, Field(ge=0, le=1e3)] | None = None

    @property
    def scales_heads(self) -> bool:
        """Whether sine and cosine carry a factor: YaRN's (arXiv 2309.00071), unless another takes it back."""
        return self.kind == "yarn" and (self.mscale is None or self.mscale != self.mscale_all)


class Numerics(Strict):
    """Constants as the publication states them; None where it does not."""

    norm_epsilon: Constant | None = None
    rotary_base: Constant | None = None
    rotary_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Part of a head with rotary positions."""
    rotary_scaling: RotaryScaling | None = None
    router_scores: Scores | None = None
    """Function of the router's scores."""
    router_bias: bool | None = None
    """Whether a bias balances the choice of experts without an auxiliary loss (arXiv 2408.15664)."""
    router_scale: Constant | None = None
    """Factor on the weights of the chosen experts."""
    router_normalised: bool | None = None
    """Whether the weights of the chosen experts sum to one."""


NUMBERS = {
    "norm_epsilon": ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "norm_epsilon"),
    "rotary_base": ("rope_theta", "rotary_emb_base", "rope_base"),
    "rotary_share": ("partial_rotary_factor", "rotary_pct"),
    "router_scale": ("routed_scaling_factor", "route_scale"),
}
SCALING = {
    "factor": "factor",
    "original_sequence": "original_max_position_embeddings",
    "low_frequency": "low_freq_factor",
    "high_frequency": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all": "mscale_all_dim",
}
KINDS = {"su": "longrope", **{kind: kind for kind in get_args(Rotary)}}
"""Kinds of stretch by their name in ``config.json``."""


def numerics_of(config: Config) -> dict[str, Any]:
    """The constants of a ``config.json``; those that it does not state are left out.

    Raises:
        InputError: a value of a wrong type.
    """
    rotary = config.inner("rope_parameters")
    stated = Config({**rotary.values, **config.values}, config.where)
    constants: dict[str, Any] = {name: _number(stated, *keys) for name, keys in NUMBERS.items()}
    constants["rotary_scaling"] = _scaling(config.inner("rope_scaling")) or _scaling(rotary)
    scores = config.values.get("scoring_func") or config.values.get("score_func")
    if scores in ("softmax", "sigmoid"):
        constants["router_scores"] = scores
    if config.values.get("topk_method") == "noaux_tc" or config.values.get("use_routing_bias") is True:
        constants["router_bias"] = True
    constants["router_normalised"] = config.flag("norm_topk_prob")
    return {name: value for name, value in constants.items() if value is not None}


def _scaling(config: Config) -> dict[str, Any] | None:
    """The stretch of rotary positions; None where there is none, or of a kind that launchers lack."""
    kind = KINDS.get(str(config.values.get("rope_type") or config.values.get("type")))
    if kind is None or (factor := _number(config, "factor")) is None or factor == 1.0:
        return None
    values = {name: _number(config, key) for name, key in SCALING.items()}
    if values["original_sequence"] is not None:
        values["original_sequence"] = int(values["original_sequence"])
    return {"kind": kind, **{name: value for name, value in values.items() if value is not None}}


def _number(config: Config, *keys: str) -> float | None:
    """The first key that is present, as a number; None without any.

    Raises:
        InputError: it is something else.
    """
    for key in keys:
        value = config.values.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise InputError(f"{key}: a number is needed, found {shown(value)}", config.where)
        return float(value)
    return None
