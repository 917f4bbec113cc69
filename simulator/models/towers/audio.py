"""Audio encoders beside language models: layers of Whisper's kind over frames, one reader a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.loading import build
from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, Reader, reader_of, text_hidden
from simulator.models.towers.tower import Tower

WHISPER_CHUNK = 3000
"""Frames to which Whisper's feature extractor pads: 30 s."""


def _whisper(audio: Config) -> Fields:
    """Two convolutions of three frames, of which the second halves them.

    Sizes that a file leaves out are those of Whisper large v3, as in transformers.
    """
    hidden = audio.number("d_model", "hidden_size") or 1280
    return {
        "layers": audio.number("encoder_layers", "num_hidden_layers") or 32,
        "hidden": hidden,
        "heads": audio.number("encoder_attention_heads", "num_attention_heads") or 20,
        "feed_forward": audio.number("encoder_ffn_dim", "intermediate_size") or 5120,
        "patch": 1,
        "stem": [
            {"inputs": 3 * _frequencies(audio), "outputs": hidden, "rate": 2.0},
            {"inputs": 3 * hidden, "outputs": hidden},
        ],
        "rule": {"halvings": 1},
    }


def _frequencies(audio: Config) -> int:
    return audio.number("num_mel_bins") or 128


def _positions(audio: Config, fields: Fields) -> int:
    """Learned positions and the last norm, without the biases that keys lack."""
    hidden = fields["hidden"]
    return ((audio.number("max_source_positions") or 1500) + 2 - fields["layers"]) * hidden


def _projection(inputs: int, outputs: int, bias: bool = True) -> Fields:
    return {"inputs": inputs, "outputs": outputs, "bias": bias}


def _qwen2_audio(audio: Config, config: Config) -> Fields:
    """Clips are cut and padded to 30 s; two frames are one token."""
    fields = _whisper(audio)
    return fields | {
        "pooled": 2,
        "projections": [_projection(fields["hidden"], text_hidden(config))],
        "vectors": _positions(audio, fields),
        "rule": {"pooled": 2, "chunk": WHISPER_CHUNK, "padded": True, "longest": WHISPER_CHUNK},
    }


def _voxtral(audio: Config, config: Config) -> Fields:
    """Clips are padded to multiples of 30 s; four frames are joined to one token."""
    fields, width = _whisper(audio), text_hidden(config)
    joined = 4 * fields["hidden"]
    return fields | {
        "pooled": 4,
        "projections": [_projection(joined, width, False), _projection(width, width, False)],
        "vectors": _positions(audio, fields),
        "rule": {"pooled": 4, "chunk": WHISPER_CHUNK, "padded": True, "counts_padding": True},
    }


def _qwen2_5_omni(audio: Config, config: Config) -> Fields:
    """Layers attend within windows of 2 s; two frames are one token."""
    fields = _whisper(audio)
    return fields | {
        "pooled": 2,
        "window": audio.number("n_window") or 100,
        "projections": [_projection(fields["hidden"], audio.number("output_dim") or 3584)],
        "vectors": 2 * fields["hidden"],
        "rule": {"halvings": 1, "pooled": 2},
    }


def _qwen3_omni(audio: Config, config: Config) -> Fields:
    """Three convolutions over frames and frequencies halve both, second by second; windows of 8 s."""
    fields, chunk = _whisper(audio), 2 * (audio.number("n_window") or 50)
    hidden, mel = fields["hidden"], _frequencies(audio)
    channels = audio.number("downsample_hidden_size") or 480
    heights = [mel]
    for _ in range(3):
        heights.append((heights[-1] + 1) // 2)
    frames = chunk
    for _ in range(3):
        frames = (frames - 1) // 2 + 1
    stem = [
        _projection(9 * (1 if number == 0 else channels), channels)
        | {"rate": float(heights[number + 1] * 2 ** (2 - number))}
        for number in range(3)
    ]
    return fields | {
        "stem": [*stem, _projection(channels * heights[-1], hidden, False)],
        "window": frames * ((audio.number("n_window_infer") or 800) // chunk),
        "projections": [_projection(hidden, hidden), _projection(hidden, audio.number("output_dim") or 3584)],
        "vectors": 2 * hidden,
        "rule": {"halvings": 3, "chunk": chunk},
    }


AUDIO_FAMILIES: Mapping[str, Reader] = MappingProxyType(
    {
        "qwen2_audio": _qwen2_audio,
        "qwen2_5_omni_thinker": _qwen2_5_omni,
        "qwen3_omni_moe_thinker": _qwen3_omni,
        "voxtral": _voxtral,
    }
)
"""Readers by ``model_type``."""


def read_audio(config: Config, name: str) -> Tower | None:
    """The audio encoder of a model that hears; None where the file has none, or none of a family known.

    Args:
        config: the top level of the file.
        name: of the model.

    Raises:
        InputError: a key of the encoder is missing or wrong.
    """
    encoder = reader_of(config, "audio_config", AUDIO_FAMILIES)
    if encoder is None:
        return None
    audio, family = encoder
    fields = family(audio, config)
    return build(Tower, {**fields, "name": name, "rule": {"kind": "clips", **fields["rule"]}}, audio.where)
