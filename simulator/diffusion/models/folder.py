"""Read a diffusers folder: ``model_index.json``, and ``config.json`` of transformer, encoders and VAE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from core.errors import InputError, named
from core.loading import build, read_mapping
from simulator.diffusion.models.model import DiffusionModel
from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, needed

INDEX = "model_index.json"


def _sizes(config: Config) -> Fields:
    heads, width = needed(config, "num_attention_heads"), needed(config, "attention_head_dim")
    inputs = needed(config, "in_channels")
    side = config.number("patch_size") or 1
    return {
        "hidden": heads * width,
        "heads": heads,
        "head_dim": width,
        "inputs": inputs,
        "outputs": config.number("out_channels") or inputs,
        "patch": (1, side, side),
    }


def _pixart(config: Config) -> Fields:
    fields, layers = _sizes(config), needed(config, "num_layers")
    blocks = {"kind": "cross", "count": layers, "feed_forward": 4 * fields["hidden"]}
    return {
        **fields,
        "blocks": [blocks],
        "text_width": needed(config, "caption_channels"),
        "text_tokens": 300,
    }


def _sd3(config: Config) -> Fields:
    fields, layers = _sizes(config), needed(config, "num_layers")
    dual = config.values.get("dual_attention_layers")
    twice = len(dual) if isinstance(dual, list) else 0
    block = {"kind": "joint", "feed_forward": 4 * fields["hidden"]}
    groups = [{**block, "count": twice, "dual": True, "modulated": 15}] if twice else []
    return {
        **fields,
        "blocks": [*groups, {**block, "count": layers - twice, "modulated": 12}],
        "qk_norm": config.values.get("qk_norm") is not None,
        "text_width": needed(config, "joint_attention_dim"),
        "text_tokens": 333,
    }


def _sana(config: Config) -> Fields:
    fields, layers = _sizes(config), needed(config, "num_layers")
    ratio = config.values.get("mlp_ratio")
    blocks = {
        "kind": "cross",
        "count": layers,
        "feed_forward": int(fields["hidden"] * (ratio if isinstance(ratio, int | float) else 2.5)),
        "gated": True,
        "attention": "linear",
        "convolution": True,
        "heads": config.number("num_cross_attention_heads") or 0,
    }
    return {
        **fields,
        "blocks": [blocks],
        "qk_norm": config.values.get("qk_norm") is not None,
        "text_width": needed(config, "caption_channels"),
        "text_tokens": 300,
    }


def _hunyuan_dit(config: Config) -> Fields:
    fields, layers = _sizes(config), needed(config, "num_layers")
    ratio = config.values.get("mlp_ratio")
    wide = int(fields["hidden"] * (ratio if isinstance(ratio, int | float) else 4.0))
    text = needed(config, "cross_attention_dim")
    blocks = {
        "kind": "cross",
        "count": layers,
        "feed_forward": wide,
        "skips": layers // 2 - 1,
        "modulated": 1,
    }
    outputs = 2 * fields["inputs"] if config.flag("learn_sigma") is not False else fields["inputs"]
    return {
        **fields,
        "outputs": outputs,
        "blocks": [blocks],
        "qk_norm": True,
        "rope": True,
        "text_width": text,
        "text_hidden": text,
        "text_tokens": (config.number("text_len") or 77) + (config.number("text_len_t5") or 256),
    }


def _flux(config: Config) -> Fields:
    fields = _sizes(config)
    block = {"feed_forward": 4 * fields["hidden"]}
    blocks = [{**block, "kind": "joint", "count": needed(config, "num_layers"), "modulated": 12}]
    if single := config.number("num_single_layers"):
        blocks.append({**block, "kind": "single", "count": single, "modulated": 3})
    # Latents are packed: a patch of 2 x 2 latent pixels is one input.
    return {
        **fields,
        "patch": (1, 2, 2),
        "inputs": fields["inputs"] // 4,
        "outputs": fields["inputs"] // 4,
        "blocks": blocks,
        "qk_norm": True,
        "rope": True,
        "text_width": needed(config, "joint_attention_dim"),
        "text_tokens": 512,
        "guidance": "embedded" if config.flag("guidance_embeds") else "classifier-free",
    }


def _flux2(config: Config) -> Fields:
    fields, ratio = _flux(config), config.values.get("mlp_ratio")
    wide = int(fields["hidden"] * (ratio if isinstance(ratio, int | float) else 3.0))
    blocks = [{**group, "feed_forward": wide, "gated": True, "modulated": 0} for group in fields["blocks"]]
    # Distilled models have one call a step, whether guidance is embedded or not.
    return {**fields, "blocks": blocks, "shared_modulation": 15, "guidance": "embedded"}


def _cogvideox(config: Config) -> Fields:
    fields, layers = _sizes(config), needed(config, "num_layers")
    side, condition = fields["patch"][1], config.number("time_embed_dim") or 512
    blocks = {
        "kind": "shared",
        "count": layers,
        "feed_forward": 4 * fields["hidden"],
        "modulated": 12,
        "condition": condition,
    }
    return {
        **fields,
        "patch": (config.number("patch_size_t") or 1, side, side),
        "blocks": [blocks],
        "qk_norm": True,
        "rope": bool(config.flag("use_rotary_positional_embeddings")),
        "text_width": needed(config, "text_embed_dim"),
        "text_tokens": config.number("max_text_seq_length") or 226,
    }


def _hunyuan_video(config: Config) -> Fields:
    fields, ratio = _sizes(config), config.values.get("mlp_ratio")
    block = {"feed_forward": int(fields["hidden"] * (ratio if isinstance(ratio, int | float) else 4.0))}
    return {
        **fields,
        "patch": (config.number("patch_size_t") or 1, *fields["patch"][1:]),
        "blocks": [
            {**block, "kind": "joint", "count": needed(config, "num_layers"), "modulated": 12},
            {**block, "kind": "single", "count": needed(config, "num_single_layers"), "modulated": 3},
        ],
        "qk_norm": True,
        "rope": True,
        "text_width": needed(config, "text_embed_dim"),
        "text_tokens": 256,
        "guidance": "embedded" if config.flag("guidance_embeds") else "classifier-free",
    }


def _wan(config: Config) -> Fields:
    patch = config.values.get("patch_size")
    sides = tuple(patch) if isinstance(patch, list) else (1, 2, 2)
    fields = _sizes(config._replace(values={**config.values, "patch_size": None}))
    blocks = {
        "kind": "cross",
        "count": needed(config, "num_layers"),
        "feed_forward": needed(config, "ffn_dim"),
    }
    return {
        **fields,
        "patch": sides,
        "blocks": [blocks],
        "qk_norm": True,
        "rope": True,
        "text_width": needed(config, "text_dim"),
        "text_tokens": 512,
    }


def _cosmos(config: Config) -> Fields:
    """Wan's blocks with modulation of low rank, over a text that keeps its width (Cosmos-Predict).

    Raises:
        InputError: blocks that see images beside the text, or that a control network joins.
    """
    for key in ("img_context_dim_in", "controlnet_block_every_n"):
        if config.values.get(key):
            raise InputError(f"{key}: only Cosmos models of text are supported", config.where)
    ratio, text = config.values.get("mlp_ratio"), needed(config, "text_embed_dim")
    hidden = _sizes(config._replace(values={**config.values, "patch_size": None}))["hidden"]
    wide = int(hidden * (ratio if isinstance(ratio, int | float) else 4.0))
    fields = _wan(config._replace(values={**config.values, "ffn_dim": wide, "text_dim": text}))
    modulation = {"modulated": 12, "condition": config.number("adaln_lora_dim") or 256}
    masked = config.flag("concat_padding_mask") is not False
    return {
        **fields,
        "inputs": fields["inputs"] + masked,
        "blocks": [{**fields["blocks"][0], **modulation}],
        "text_hidden": text,
    }


TRANSFORMERS: Mapping[str, Callable[[Config], Fields]] = MappingProxyType(
    {
        "PixArtTransformer2DModel": _pixart,
        "SD3Transformer2DModel": _sd3,
        "SanaTransformer2DModel": _sana,
        "HunyuanDiT2DModel": _hunyuan_dit,
        "FluxTransformer2DModel": _flux,
        "Flux2Transformer2DModel": _flux2,
        "QwenImageTransformer2DModel": _flux,
        "CogVideoXTransformer3DModel": _cogvideox,
        "HunyuanVideoTransformer3DModel": _hunyuan_video,
        "WanTransformer3DModel": _wan,
        "CosmosTransformer3DModel": _cosmos,
    }
)
"""Readers by ``_class_name`` of ``transformer/config.json`` (diffusers 0.35, models/transformers)."""


def read_folder(path: Path) -> DiffusionModel:
    """The model of a diffusers folder.

    Raises:
        InputError: a file or a key is missing or wrong.
        UnknownNameError: a class of transformer that is not known.
    """
    read_mapping(path / INDEX, bounded=False)
    config = _config(path / "transformer" / "config.json")
    name = str(config.values.get("_class_name"))
    fields_of = named("class of transformer", name, TRANSFORMERS, f"{config.where}: _class_name")
    encoders = [
        _encoder(_config(part / "config.json"))
        for part in sorted(path.glob("text_encoder*"))
        if (part / "config.json").is_file()
    ]
    fields = fields_of(config)
    decoder = _decoder(_config(path / "vae" / "config.json"))
    return build(
        DiffusionModel,
        {
            "name": path.resolve().name or "model",
            "source": str(path),
            **fields,
            "transformers": 1 + (path / "transformer_2" / "config.json").is_file(),
            "encoders": [{**encoder, "tokens": fields["text_tokens"]} for encoder in encoders],
            "decoder": decoder,
        },
        str(path),
    )


def _config(path: Path) -> Config:
    return Config(read_mapping(path, bounded=False), str(path))


def _encoder(config: Config) -> Fields:
    for part in ("text_config", "thinker_config"):
        inner = config.inner(part)
        config = Config({**config.values, **inner.values}, inner.where) if inner.values else config
    hidden = needed(config, "d_model", "hidden_size")
    heads = needed(config, "num_heads", "num_attention_heads")
    width = config.number("d_kv", "head_dim") or hidden // heads
    gated = bool(config.flag("is_gated_act")) or "gated" in str(config.values.get("feed_forward_proj", ""))
    return {
        "name": str(config.values.get("model_type", "text encoder")),
        "layers": needed(config, "num_layers", "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.number("num_key_value_heads") or 0,
        "head_dim": width,
        "feed_forward": needed(config, "d_ff", "intermediate_size"),
        "gated": gated or config.number("num_key_value_heads") is not None,
        "vocabulary": needed(config, "vocab_size"),
    }


def _decoder(config: Config) -> Fields:
    channels = config.values.get("decoder_block_out_channels") or config.values.get("block_out_channels")
    if channels is None and isinstance(factors := config.values.get("dim_mult"), list):
        channels = [needed(config, "base_dim") * factor for factor in factors]
    if not isinstance(channels, list):
        raise InputError("key 'block_out_channels' is missing", config.where)
    blocks = config.number("layers_per_block", "num_res_blocks")
    kinds = config.values.get("decoder_block_types")
    ratio = config.number("temporal_compression_ratio") or (4 if "dim_mult" in config.values else 1)
    return {
        "channels": channels,
        "blocks": blocks + 1 if blocks else 3,
        "latent": needed(config, "latent_channels", "z_dim"),
        "time": ratio if "3D" in str(config.values.get("down_block_types", "3D")) else 1,
        **({"linear_stages": kinds.count("EfficientViTBlock")} if isinstance(kinds, list) else {}),
    }
