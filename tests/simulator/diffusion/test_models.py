"""Diffusion models: parameters beside published ones, patches, and diffusers folders."""

import itertools
import json

import pytest

from core.errors import InputError, UnknownNameError
from core.loading import Catalogue
from simulator.diffusion.convolution import decoder_ops, decoder_parameters
from simulator.diffusion.models import LatentDecoder, diffusion_models
from simulator.diffusion.ops import TransformerCall, call_ops, transformer_parameters
from simulator.diffusion.request import predict_request
from simulator.diffusion.scenario import make_diffusion
from simulator.diffusion.weights import weight_bytes
from simulator.models import models
from simulator.ops.op import Attention, Product

WORK = {"cluster": "dgx-h100", "workload": {"kind": "diffusion"}}
ROUGH = 0.045
"""Publications round to two digits, and small projections of pooled texts are left out (HunyuanDiT, 4 %)."""


@pytest.mark.parametrize("name", diffusion_models.names())
def test_parameters_are_those_that_publications_state(name):
    model = diffusion_models.get(name)
    assert transformer_parameters(model) == pytest.approx(model.stated_parameters, rel=ROUGH)


def test_no_name_is_also_one_of_a_language_model():
    """`plan serve` asks the catalogue of language models first."""
    for name in diffusion_models.names():
        for alias in (name, *diffusion_models.definition(name).get("aliases", ())):
            assert Catalogue.resolve(models, alias) is None


@pytest.mark.parametrize(
    ("name", "size", "tokens"),
    [
        ("pixart-sigma-xl", (1024, 1024, 1), 64 * 64),
        ("sana1.5-1.6b", (1024, 1024, 1), 32 * 32),
        ("hunyuan-video", (720, 1280, 129), 33 * 45 * 80),
        ("cogvideox-2b", (480, 720, 49), 13 * 30 * 45),
        ("cogvideox1.5-5b", (768, 1360, 81), 11 * 48 * 85),
        ("wan2.1-14b", (720, 1280, 81), 21 * 45 * 80),
    ],
)
def test_patches_of_a_sample(name, size, tokens):
    assert diffusion_models.get(name).tokens(*size) == tokens


def test_attention_sees_image_and_text_together_in_joint_blocks():
    model = diffusion_models.get("sd3.5-large")
    cores = [op for op in call_ops(TransformerCall(model, 2.0, 4096.0)) if isinstance(op, Attention)]
    both = 4096 + model.text_tokens
    assert sum(op.flops for op in cores) == 2 * 38 * 4 * both**2 * model.hidden


def test_products_of_a_cross_block_counted_by_hand():
    model = diffusion_models.get("pixart-sigma-xl")
    ops = [op for op in call_ops(TransformerCall(model, 1.0, 4096.0)) if isinstance(op, Product)]
    named = {op.name: op for op in ops}
    assert named["0.attention.qkv"].flops == 28 * 2 * 4096 * 3 * 1152**2
    assert named["0.cross.key_value"].flops == 28 * 2 * 300 * 2 * 1152**2


def test_a_convolution_is_a_product_over_its_window():
    decoder = diffusion_models.get("pixart-sigma-xl").decoder
    last = next(op for op in decoder_ops(decoder, 1.0, (1, 128, 128)) if op.name == "decoder.3.2.1")
    assert last.flops == 2 * 1024**2 * 128 * 128 * 9


@pytest.fixture
def folder(tmp_path):
    """A diffusers folder of SD3.5 medium with some keys of its transformer replaced."""

    def folder(**changes):
        transformer = {
            "_class_name": "SD3Transformer2DModel",
            "num_layers": 24,
            "num_attention_heads": 24,
            "attention_head_dim": 64,
            "patch_size": 2,
            "in_channels": 16,
            "out_channels": 16,
            "joint_attention_dim": 4096,
            "qk_norm": "rms_norm",
            "dual_attention_layers": list(range(13)),
            **changes,
        }
        vae = {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 16}
        vae["down_block_types"] = ["DownEncoderBlock2D"] * 4
        t5 = {
            "d_model": 4096,
            "num_heads": 64,
            "d_kv": 64,
            "d_ff": 10240,
            "num_layers": 24,
            "vocab_size": 32128,
        }
        t5 |= {"model_type": "t5", "feed_forward_proj": "gated-gelu"}
        for name, config in (("transformer", transformer), ("vae", vae), ("text_encoder_3", t5)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
        return tmp_path

    return folder


def test_a_folder_reads_as_the_catalogue_says(folder):
    read, known = diffusion_models.get(str(folder())), diffusion_models.get("sd3.5-medium")
    assert transformer_parameters(read) == transformer_parameters(known)
    assert read.decoder == known.decoder
    assert read.tokens(1024, 768) == known.tokens(1024, 768)


def test_a_deep_compression_decoder_has_the_weights_of_its_modules(folder):
    """Counted by the modules of diffusers' AutoencoderDC, without norms and biases (dc-ae-f32c32-sana)."""
    path, widths = folder(), [1024, 1024, 512, 512, 256, 128]
    config = {
        "_class_name": "AutoencoderDC",
        "latent_channels": 32,
        "decoder_block_out_channels": widths[::-1],
        "decoder_block_types": ["ResBlock"] * 3 + ["EfficientViTBlock"] * 3,
        "decoder_layers_per_block": [3] * 6,
    }
    (path / "vae" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    decoder = diffusion_models.get(str(path)).decoder
    assert decoder == diffusion_models.get("sana-1.6b").decoder
    linear = sum(
        3 * (c * 3 * c + 3 * c * (25 + 32) + 2 * c * c + 8 * c * (c + 9) + 4 * c * c) for c in widths[:3]
    )
    residual = sum(3 * 2 * 9 * c * c for c in widths[3:])
    between = sum(9 * before * c for before, c in itertools.pairwise([32, *widths, 3]))
    assert decoder_parameters(decoder) == linear + residual + between
    assert decoder_parameters(decoder) == pytest.approx(159e6, rel=0.01)


def test_a_plain_decoder_has_the_convolutions_of_the_tiny_autoencoder():
    """madebyollin/taesd, taesd.py: ten blocks of three, one after each doubling, first and last."""
    decoder = LatentDecoder.model_validate({"channels": [64] * 4, "blocks": 3, "latent": 4, "plain": True})
    assert decoder_parameters(decoder) == 9 * (4 * 64 + 33 * 64 * 64 + 64 * 3)


def test_a_folder_of_flux2_reads_as_the_catalogue_says(folder):
    read = diffusion_models.get(
        str(
            folder(
                _class_name="Flux2Transformer2DModel",
                num_layers=8,
                num_single_layers=48,
                num_attention_heads=48,
                attention_head_dim=128,
                patch_size=1,
                in_channels=128,
                out_channels=None,
                joint_attention_dim=15360,
                mlp_ratio=3.0,
            )
        )
    )
    known = diffusion_models.get("flux.2-dev")
    assert transformer_parameters(read) == transformer_parameters(known)
    assert read.tokens(1024, 768) == known.tokens(1024, 768)


@pytest.mark.parametrize(
    ("heads", "layers", "parameters"), [(16, 28, 1_956_405_248), (40, 36, 14_265_265_152)]
)
def test_a_folder_of_cosmos_has_the_parameters_that_diffusers_counts(folder, heads, layers, parameters):
    """Cosmos-Predict2 of 2B and 14B parameters; what embeds the time has three times the width there."""
    text = {"text_embed_dim": 1024, "patch_size": [1, 2, 2], "adaln_lora_dim": 256, "mlp_ratio": 4.0}
    sizes = {"num_attention_heads": heads, "attention_head_dim": 128, "num_layers": layers, **text}
    path = folder(_class_name="CosmosTransformer3DModel", **sizes)
    model = diffusion_models.get(str(path))
    assert transformer_parameters(model) == pytest.approx(parameters, rel=0.01)
    assert model.tokens(1280, 720) == 80 * 45
    with pytest.raises(InputError, match="img_context_dim_in: only Cosmos models of text"):
        diffusion_models.get(
            str(folder(_class_name="CosmosTransformer3DModel", **sizes, img_context_dim_in=1))
        )


def test_two_transformers_lie_in_memory_and_one_runs(folder):
    path = folder()
    once = make_diffusion({**WORK, "model": str(path)}, "test", path)
    (path / "transformer_2").mkdir()
    (path / "transformer_2" / "config.json").write_text("{}", encoding="utf-8")
    twice = make_diffusion({**WORK, "model": str(path)}, "test", path)
    assert weight_bytes(twice)["transformer"] == 2 * weight_bytes(once)["transformer"]
    assert predict_request(twice).times.latency_s == predict_request(once).times.latency_s


def test_what_a_folder_lacks_is_named(folder):
    with pytest.raises(InputError, match="joint_attention_dim"):
        diffusion_models.get(str(folder(joint_attention_dim=None)))
    with pytest.raises(UnknownNameError, match="did you mean 'SD3Transformer2DModel'"):
        diffusion_models.get(str(folder(_class_name="SD3Transformer2D")))
