"""Every decoder of transformers, and published ``config.json``: parameters here and on torch's meta device.

    python -m benchmarks.decoder_types FILE.json [FOLDER]

The first run writes what transformers builds (it needs torch and transformers), the second compares; they may
run in two environments. Published files are those of ``tests/simulator/models/hf_configs.py``; with FOLDER
its ``*config.json`` are built instead.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
from pathlib import Path
from typing import Any

from evidence.command import command

SECONDS = 60
"""Most time for one type."""
UNSTATED: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    },
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": (["conv"] * 3 + ["full_attention"]) * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 16,
    },
    "reformer": {"is_decoder": True},
}
"""Keys that a default of transformers leaves empty, without which no layer runs; as in published files."""
APART = {
    "musicgen": "a decoder of sound",
    "musicgen_melody": "a decoder of sound",
    "gemma4_assistant": "a draft that reads the keys of its target",
    "gemma4_unified_assistant": "a draft that reads the keys of its target",
    "longcat_flash": "transformers allocates 256 experts too many in some products; 560.7B as published",
}
"""Types that are no text decoder of their own, or whose class has other parameters than what is published."""
BUILT_AS = {"kimi_k2": "deepseek_v3", "mimo": "qwen2"}
"""Types whose released code derives from a class of transformers without adding parameters (but MTP)."""
OF_SENSES = re.compile("vision|visual|image|audio")
"""In names of parameters of towers, which a text model has not."""


def of_folder(folder: Path) -> dict[str, Any]:
    """Contents of the ``config.json`` files of a folder, by name; without number formats."""
    files = [path for path in sorted(folder.rglob("*config.json")) if "quant" not in path.name]
    read = {path.name if path.name != "config.json" else path.parent.name: path for path in files}
    contents = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in read.items()}
    return {
        name: {key: value for key, value in content.items() if key not in ("quantization_config", "auto_map")}
        for name, content in contents.items()
    }


def build(folder: Path | None) -> dict[str, Any]:
    """Configuration and parameters of each type of causal language model and of each file, or the error."""
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from tests.simulator.models.hf_configs import CONFIGS, PUBLISHED_2025

    built: dict[str, Any] = {}
    configurations = {name: {"model_type": name} for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)}
    listed = of_folder(folder) if folder else configurations | CONFIGS | PUBLISHED_2025
    for name, stated in listed.items():
        signal.alarm(SECONDS)
        try:
            fields = {
                key: value for key, value in stated.items() if key not in ("model_type", "architectures")
            }
            bare = not fields
            fields |= UNSTATED.get(name, {})
            kind = BUILT_AS.get(stated["model_type"], stated["model_type"])
            config = transformers.AutoConfig.for_model(kind, **fields)
            with torch.device("meta"):
                decoder = getattr(config, "text_config", getattr(config, "decoder", config))
                try:
                    model = _class_of(transformers, decoder).from_config(decoder)
                except ValueError:  # a decoder that no class of text models is registered for
                    class_name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name)
                    auto = transformers.AutoModelForImageTextToText
                    model = (
                        getattr(transformers, class_name)(decoder) if class_name else auto.from_config(config)
                    )
            model.tie_weights()
            text = [tensor for part, tensor in model.named_parameters() if not OF_SENSES.search(part)]
            count = sum({id(tensor): tensor.numel() for tensor in text}.values())
            published = json.loads(config.to_json_string(use_diff=False)) if bare else stated
            built[name] = {"params": count, "config": published}
        except Exception as error:  # whatever a release refuses
            built[name] = {"error": f"{type(error).__name__}: {error}"[:160]}
        finally:
            signal.alarm(0)
    return built


def _class_of(transformers: Any, config: Any) -> Any:
    """The class that builds a decoder, with its encoder where it attends to one."""
    if not getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForCausalLM
    speaks = config.model_type == "whisper"
    return transformers.AutoModelForSpeechSeq2Seq if speaks else transformers.AutoModelForSeq2SeqLM


def compare(built: dict[str, Any]) -> None:
    """Print types that differ by more than 0.15 % or are refused, and the counts."""
    from core.errors import InputError
    from simulator.models.huggingface import read_config
    from simulator.ops.counts import model_parameters

    counts = {"right": 0, "off": 0, "not built": 0}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        for name, case in built.items():
            if "error" in case:
                counts["not built"] += 1
                print(f"{name:24} not built: {case['error'][:100]}")
                continue
            published = {key: value for key, value in case["config"].items() if value is not None}
            path.write_text(json.dumps(published), encoding="utf-8")
            try:
                ours = model_parameters(read_config(path))
            except InputError as error:
                refused[name] = str(error).partition("config.json: ")[2]
                continue
            off = 100 * (ours / case["params"] - 1)
            if abs(off) >= 0.15:
                print(f"{name:24} {ours:18,} of {case['params']:18,} {off:+.2f} %; {APART.get(name, '')}")
            if name not in APART or abs(off) < 0.15:
                counts["right" if abs(off) < 0.15 else "off"] += 1
    for name, words in refused.items():
        print(f"{name:24} {APART.get(name, 'refused')}: {words[:110]}")
    kinds = {name.removesuffix("_text") for name in refused.keys() - APART.keys()}
    print(", ".join(f"{count} {name}" for name, count in counts.items()), end="; ")
    print(f"{len(kinds)} kinds refused: {', '.join(sorted(kinds))}; apart: {', '.join(APART)}")


@command
def main(path: Path, folder: Path | None = None) -> None:
    """Write the file, or compare with it."""
    if path.is_file():
        compare(json.loads(path.read_text(encoding="utf-8")))
    else:
        path.write_text(json.dumps(build(folder)), encoding="utf-8")
