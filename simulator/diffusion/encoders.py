"""Text encoders as lists of ops: layers without a mask over the tokens of a prompt."""

from __future__ import annotations

from simulator.diffusion.models import TextEncoder
from simulator.models import Model
from simulator.ops import Batch, Implementation, Op, Rank, Segment, layer

EAGER = Implementation(elementwise="eager", separate_products=True)


def encoder_ops(encoder: TextEncoder, prompts: float, compiled: bool) -> list[Op]:
    """Ops of one text encoder over some prompts; counts are those of all its layers."""
    model = Model.model_validate(
        {
            "name": encoder.name,
            "layers": encoder.layers,
            "hidden": encoder.hidden,
            "heads": encoder.heads,
            "kv_heads": encoder.kv_heads or encoder.heads,
            "head_dim": encoder.head_dim,
            "feed_forward": encoder.feed_forward,
            "vocabulary": encoder.vocabulary,
            "activation": "geglu" if encoder.gated else "gelu",
            "norm": "rmsnorm",
            "position": "none",
        }
    )
    tokens = float(encoder.tokens)
    batch = Batch((Segment(prompts, tokens, tokens, causal=False),))
    rank = Rank(model, batch, how=Implementation() if compiled else EAGER)
    return [
        op.changed(
            name=f"{encoder.name}.{op.name}",
            repeats=op.repeats * encoder.layers,
            launches=op.launches * encoder.layers,
            parameters=op.parameters * encoder.layers,
        )
        for op in layer(rank)
    ]


def encoder_parameters(encoder: TextEncoder) -> int:
    """Parameters of a text encoder with its embedding."""
    layers = sum(float(op.parameters) for op in encoder_ops(encoder, 1.0, False))
    return round(layers) + encoder.vocabulary * encoder.hidden
