"""Rules of a ``config.json`` for encoders, and for decoders that attend to one (transformers 5.24)."""

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
    kind, hidden = str(config.values.get("model_type")), whole_of(config, "hidden_size")
    width = config.number("embedding_size", "input_embedding_size") or hidden
    if kind == "bert-generation":
        return {}
    # The pooler, or the product in front of the head of the task; BigBird has both.
    other = whole_of(config, "type_vocab_size", 2) * width + hidden * (width + 1)
    fields: dict[str, Any] = {}
    if width != hidden:
        fields = {"embedding_width": width, "tied_embeddings": True}
        outputs = config.number("output_embedding_size")
        # RemBERT's output layer has a table of its own, ELECTRA's the embedding's.
        rows = whole_of(config, "vocab_size")
        other += (hidden + rows) * outputs if outputs else hidden * width + rows
    return {**fields, "other_parameters": other + _beside_bert(config, kind, hidden)}


def _beside_bert(config: Config, kind: str, hidden: int) -> int:
    """Parameters that a kind of BERT has beside BERT's."""
    if kind == "big_bird":
        return hidden * (hidden + 1)
    if kind == "ernie" and config.flag("use_task_id"):
        return whole_of(config, "task_type_vocab_size", 3) * hidden
    if kind == "roformer":
        heads = max(whole_of(config, "num_attention_heads", 1), 1)
        return whole_of(config, "max_position_embeddings") * (hidden // heads)
    if kind == "roc_bert":
        widths = [whole_of(config, f"{name}_embed_dim") for name in ("pronunciation", "shape")]
        rows = [whole_of(config, f"{name}_vocab_size") for name in ("pronunciation", "shape")]
        tables = sum(row * width for row, width in zip(rows, widths, strict=True))
        return tables + hidden * (hidden + sum(widths) + 1)
    if kind == "xmod":
        languages = config.values.get("languages")
        narrow = hidden // max(whole_of(config, "adapter_reduction_factor", 2), 1)
        adapters = whole_of(config, "num_hidden_layers")
        adapters *= len(languages) if isinstance(languages, list) else 1
        return adapters * (2 * hidden * narrow + narrow + hidden)
    return 0


def xlnet(config: Config) -> dict[str, Any]:
    """XLNet: projections of relative positions and biases of heads take memory only."""
    hidden = whole_of(config, "d_model")
    return {"other_parameters": whole_of(config, "n_layer") * hidden * (hidden + 5)}


def modernbert(config: Config) -> dict[str, Any]:
    """ModernBERT: every n-th layer sees all tokens, the others a window around their own."""
    period = whole_of(config, "global_attn_every_n_layers", 3)
    window = whole_of(config, "local_attention", 128)
    # Half of the window on each side, and the token itself.
    return {
        "attention_pattern": ("full",) + ("sliding",) * (period - 1),
        "sliding_window": 2 * (window // 2) + 1,
    }


def modernbert_decoder(config: Config) -> dict[str, Any]:
    """ModernBERT as a decoder: a product and a bias in front of the output layer take memory only."""
    hidden = whole_of(config, "hidden_size")
    return {"other_parameters": hidden * (hidden + 1) + whole_of(config, "vocab_size")}


def vit(config: Config) -> dict[str, Any]:
    """ViT and DeiT: one token a patch behind tokens of a class (and of a teacher), learned positions."""
    hidden, sizes = whole_of(config, "hidden_size"), [whole_of(config, "image_size", 224)]
    sizes += [whole_of(config, "patch_size", 16), whole_of(config, "num_channels", 3)]
    image, patch, channels = sizes
    if patch < 1 or image % patch:
        raise InputError(
            f"image_size: must be a multiple of patch_size, found {image} and {patch}", config.where
        )
    leading = 2 if config.values.get("model_type") == "deit" else 1
    labels, classes = config.values.get("id2label"), config.values.get("architectures")
    classifies = isinstance(classes, list) and "ForImageClassification" in str(classes[:1])
    outputs = len(labels) if isinstance(labels, dict) else 2
    head = (hidden + 1) * (outputs if classifies else hidden)
    return {
        "vocabulary": leading,
        "max_sequence": (image // patch) ** 2 + leading,
        "qkv_bias": config.flag("qkv_bias") is not False,
        "other_parameters": (patch * patch * channels + 1) * hidden + head,
    }


T5_TOKENS = 1 << 15
"""Buckets of distance have no table that ends; longer texts are not asked about."""


def t5(config: Config) -> dict[str, Any]:
    """T5, mT5 and UMT5: norms without a shift, no biases, positions by buckets of distance."""
    heads, layers = whole_of(config, "num_heads"), whole_of(config, "num_layers")
    below = config.number("num_decoder_layers")
    decoders = layers if below is None else below
    name = str(config.values.get("feed_forward_proj", "relu"))
    gated = name.startswith("gated-")
    buckets = whole_of(config, "relative_attention_num_buckets", 32) * heads
    every = config.values.get("model_type") == "umt5"
    encoder = {"layers": layers, "other_parameters": buckets * (layers if every else 1)}
    decoder = {"layers": decoders, "other_parameters": buckets * (decoders if every else 1)}
    return {
        "activation": "geglu" if gated else "relu" if name.endswith("relu") else "gelu",
        "max_sequence": T5_TOKENS,
        **_stacks(config, encoder, decoder),
    }


def prophetnet(config: Config) -> dict[str, Any]:
    """ProphetNet: BART with biases of distances; streams of further tokens pass the same layers."""
    keys = {"d_model": "hidden_size"}
    for stack in ("encoder", "decoder"):
        keys |= {f"{stack}_layers": f"num_{stack}_layers"}
        keys |= {f"{stack}_attention_heads": f"num_{stack}_attention_heads"}
    spelled = {new: config.values[old] for new, old in keys.items() if old in config.values}
    config = config._replace(values={**config.values, **spelled})
    fields, hidden, stack = bart(config), whole_of(config, "hidden_size"), _stack(config, "decoder")
    buckets = whole_of(config, "num_buckets", 32) * stack["heads"]
    other = stack["layers"] * buckets * (hidden + 1) + whole_of(config, "ngram") * hidden
    return fields | {"other_parameters": other}


NORMS_OF_ENDS = {"mbart": 2, "marian": 0}
"""Norms of a stack beside its layers': one behind the embedding or at the end, in mBART both."""
WITHOUT_OFFSET = "pegasus", "marian", "blenderbot", "blenderbot-small", "bigbird_pegasus", "prophetnet"
"""Types whose tables of positions have no two rows in front."""


def bart(config: Config) -> dict[str, Any]:
    """BART and its kin: layers with biases, learned or fixed positions in both stacks.

    Raises:
        InputError: layers with prompts of their own (MVP).
    """
    if config.flag("use_prompt"):
        raise InputError("use_prompt: prompts of layers are not supported", config.where)
    kind = str(config.values.get("model_type"))
    hidden, rows = whole_of(config, "d_model"), whole_of(config, "max_position_embeddings", 1024)
    rows += 0 if kind in WITHOUT_OFFSET else 2
    norms = {"other_parameters": max(NORMS_OF_ENDS.get(kind, 1) - 1, 0) * 2 * hidden}
    return {
        "max_sequence": rows,
        "position": "none" if kind == "m2m_100" else "learned",
        **_stacks(config, _stack(config, "encoder") | norms, _stack(config, "decoder") | norms),
    }


def whisper(config: Config) -> dict[str, Any]:
    """Whisper: one token every second frame of sound, keys without a bias, a decoder of text."""
    hidden, bins = whole_of(config, "d_model"), whole_of(config, "num_mel_bins", 80)
    encoder, decoder = _stack(config, "encoder"), _stack(config, "decoder")
    convolutions = 3 * hidden * (bins + hidden) + 2 * hidden
    # Biases of keys that layers here have and Whisper's lack.
    biases = hidden * (encoder["layers"] + 2 * decoder["layers"])
    encoder |= {
        "vocabulary": 1,
        "max_sequence": whole_of(config, "max_source_positions", 1500),
        "other_parameters": max(convolutions - biases, 0),
    }
    decoder["max_sequence"] = whole_of(config, "max_target_positions", 448)
    return _stacks(config, encoder, decoder)


def _stack(config: Config, name: str) -> dict[str, Any]:
    """Layers, heads and width of an MLP of one stack."""
    keys = {"layers": "layers", "heads": "attention_heads", "feed_forward": "ffn_dim"}
    return {field: whole_of(config, f"{name}_{key}") for field, key in keys.items()}


def _stacks(config: Config, encoder: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    """A decoder with its encoder; files of an encoder alone (`T5EncoderModel`) have no decoder."""
    classes = config.values.get("architectures")
    if isinstance(classes, list) and str(classes[:1]).find("Encoder") > 0:
        return {**encoder, "causal": False, "tied_embeddings": True}
    return {**decoder, "encoder": encoder}
