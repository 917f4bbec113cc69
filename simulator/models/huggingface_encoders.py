"""Rules of a ``config.json`` for encoders, whose tokens attend to all others (transformers 5.24)."""

from __future__ import annotations

from typing import Any

from core.errors import InputError
from simulator.models.huggingface_rules import Config, whole_of


def bert(config: Config) -> dict[str, Any]:
    """BERT, RoBERTa and their kin: embeddings of token types and a pooler take memory only.

    Raises:
        InputError: positions that are not learned, or a decoder.
    """
    for key, plain in (("position_embedding_type", (None, "absolute")), ("is_decoder", (None, False))):
        if config.values.get(key) not in plain:
            raise InputError(f"{key}: only encoders with learned positions are supported", config.where)
    hidden = whole_of(config, "hidden_size")
    return {"other_parameters": whole_of(config, "type_vocab_size", 2) * hidden + hidden * (hidden + 1)}


def modernbert(config: Config) -> dict[str, Any]:
    """ModernBERT: every n-th layer sees all tokens, the others a window around their own."""
    period = whole_of(config, "global_attn_every_n_layers", 3)
    window = whole_of(config, "local_attention", 128)
    # Half of the window on each side, and the token itself.
    return {
        "attention_pattern": ("full",) + ("sliding",) * (period - 1),
        "sliding_window": 2 * (window // 2) + 1,
    }
