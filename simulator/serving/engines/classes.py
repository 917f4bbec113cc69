"""Classes of models and of weights by which the times of engines are told apart."""

from __future__ import annotations

from simulator.models import Model
from simulator.serving.engines.engine import FormatClass, LayerClass


def layer_class(model: Model) -> LayerClass:
    """Class of layers by which engines' times differ."""
    if model.moe is None:
        return "dense"
    if model.linear is not None:
        return "linear-experts"
    return "latent-experts" if model.mla else "experts"


def format_class(weights: str) -> FormatClass:
    """Class of weight formats by which engines' times differ."""
    if weights in ("fp4", "int4"):
        return "fp4"
    return "fp8" if weights in ("fp8", "int8") else "16-bit"
