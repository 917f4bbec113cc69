"""Vision towers: parameters and tokens beside those of transformers 5.24, and errors of their files."""

import json

import numpy as np
import pytest

from core.errors import InputError
from simulator.models import models
from simulator.models.huggingface_rules import Config
from simulator.models.towers import Picture, published_tower
from simulator.models.towers.audio import read_audio
from simulator.models.towers.families import read_tower
from simulator.models.towers.images import Images
from simulator.models.towers.pictures import hearing, pictures_of
from simulator.models.towers.rules import Clip
from simulator.models.towers.rules.budget import TokenBudget
from simulator.models.towers.rules.canvas import Canvas
from simulator.models.towers.rules.grid import PixelGrid
from simulator.models.towers.rules.tiles import Tiles
from simulator.ops.tower import tower_ops, tower_parameters

SIZES = [(1280, 720), (640, 480), (3840, 2160), (100, 80), (448, 896)]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-vl-3b", 668_684_288),
        ("qwen2.5-vl-7b", 676_550_144),
        ("qwen2.5-vl-72b", 704_573_696),
        ("qwen3-vl-4b", 415_347_712),
        ("qwen3-vl-8b", 576_388_336),
        ("llama4-scout", 871_932_416),
        ("gemma-3-4b", 419_816_304),
        ("mistral-small-3.1", 438_958_080),
        ("kimi-k2.5", 416_866_032 + 54_277_888),
        # Standardization is two buffers beside the parameters.
        ("gemma-4-31b", 575_741_232 + 2 * 1152),
        ("gemma-4-26b-a4b", 572_792_112 + 2 * 1152),
        ("gemma-4-e4b", 169_330_688),
        ("gemma-4-e2b", 168_544_256),
    ],
)
def test_parameters_are_those_of_transformers_on_the_meta_device(name, parameters):
    assert tower_parameters(published_tower(name)) == parameters


SIGHT = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
FILES = {
    # GLM-4.1V's shape; transformers' own defaults of the three others.
    "glm4v": (
        {
            "depth": 24,
            "hidden_size": 1536,
            "intermediate_size": 13_696,
            "num_heads": 12,
            "out_hidden_size": 4096,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "image_size": 336,
        },
        892_498_432,
    ),
    "internvl": (
        {**SIGHT, "image_size": [448, 448], "patch_size": [14, 14], "attention_bias": False},
        303_938_560 + 33_570_816,
    ),
    "llava": (
        {**SIGHT, "model_type": "pixtral", "image_size": 1024, "patch_size": 16},
        403_489_792 + 1024 * 4096 + 4096 + 4096 * 4096 + 4096,
    ),
    "qwen3_5": (
        {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
        },
        453_650_672,
    ),
}


@pytest.mark.parametrize("model_type", FILES)
def test_a_file_of_each_family_has_the_parameters_of_transformers(model_type):
    vision, parameters = FILES[model_type]
    data = {"model_type": model_type, "text_config": {"hidden_size": 4096}, "vision_config": vision}
    assert tower_parameters(read_tower(Config(data, "config.json"), "test")) == parameters


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [
        (PixelGrid(patch=14, least=3136, most=12_845_056), [1196, 391, 10549, 12, 512]),
        (PixelGrid(patch=16, least=65_536, most=16_777_216), [880, 300, 8160, 72, 392]),
        (PixelGrid(patch=14, least=6272, most=4_816_896), [1196, 391, 6032, 12, 512]),
        (PixelGrid(patch=14, padded=True, most=16_384 * 14**2), [1196, 414, 4214, 12, 512]),
        (Tiles(patch=14, tile=448, separators=2), [2306, 3330, 2306, 3330, 770]),
        (
            Tiles(patch=14, tile=336, most=16, fits="scale", separators=3, tile_separators=1),
            [1887, 727, 2322, 147, 1017],
        ),
        (Canvas(patch=14, merge=2, longest=1540), [1222, 432, 1736, 15, 544]),
        (TokenBudget(patch=16), [264, 266, 264, 252, 253]),
        (TokenBudget(patch=16, tokens=70), [66, 63, 66, 63, 55]),
    ],
    ids=["qwen2.5", "qwen3", "glm", "kimi", "internvl", "llama4", "mistral3", "gemma4", "gemma4-70"],
)
def test_tokens_are_those_of_the_released_image_processors(rule, tokens):
    # qwen to llama4: functions of transformers 5.24 run on these sizes.
    assert [rule.shape(Picture(width, height)).tokens for width, height in SIZES] == tokens


def test_frames_of_a_video_pair_up_in_patches_of_two():
    tower = published_tower("qwen3-vl-8b")
    one, sixteen = tower.shape(Picture(640, 480)), tower.shape(Picture(640, 480, 16))
    assert sixteen.tokens == 8 * one.tokens
    assert sixteen.sequences == 8


def test_a_budget_of_tokens_encodes_padded_patches_whatever_the_image():
    tower = published_tower("gemma-4-31b")
    shapes = [tower.shape(Picture(*size)) for size in [*SIZES, (4000, 10), (7, 9000)]]
    assert {shape.patches for shape in shapes} == {280 * 9}
    assert max(shape.tokens for shape in shapes) == 280 + 2
    video = tower.shape(Picture(640, 480, 4))
    assert (video.patches, video.tokens) == (4 * 70 * 9, 4 * (63 + 2))


@pytest.mark.parametrize("file", [{"image_processor": {"max_soft_tokens": 1120}}, {"image_processor": {}}])
def test_the_budget_of_the_processor_beside_the_file_is_taken(tmp_path, file):
    vision = {**SIGHT, "patch_size": 16, "default_output_length": 560}
    data = {"model_type": "gemma4", "text_config": {"hidden_size": 1536}, "vision_config": vision}
    (tmp_path / "processor_config.json").write_text(json.dumps(file), encoding="utf-8")
    tower = read_tower(Config(data, str(tmp_path / "config.json")), "test")
    assert tower.rule.tokens == file["image_processor"].get("max_soft_tokens", 560)


def test_attention_of_windows_is_linear_in_the_image():
    tower = published_tower("qwen2.5-vl-7b")

    def core(side):
        ops = tower_ops(tower, tower.shape(Picture(side, side)))
        named = {op.name: op.flops for op in ops if op.kind == "attention"}
        return named["windowed attention"], named["attention"]

    (windowed, full), (windowed_2, full_2) = core(1120), core(2240)
    assert windowed_2 / windowed == pytest.approx(4)
    assert full_2 / full == pytest.approx(16)


VISION = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 4096,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}
TEXT = {
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "model_type": "qwen3_vl_text",
}


@pytest.fixture
def folder(tmp_path):
    """A model's folder with some keys of its vision configuration replaced."""

    def folder(**changes):
        config = {"model_type": "qwen3_vl", "text_config": TEXT, "vision_config": {**VISION, **changes}}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path

    return folder


def test_a_file_has_the_tower_of_the_published_model(folder):
    assert tower_parameters(models.get(str(folder())).tower) == 576_388_336


def test_limits_of_the_preprocessor_beside_the_file_are_taken(folder):
    path = folder()
    few = {"size": {"shortest_edge": 65_536, "longest_edge": 262_144}}
    (path / "preprocessor_config.json").write_text(json.dumps(few), encoding="utf-8")
    assert models.get(str(path)).tower.shape(Picture(1280, 720)).tokens <= 256


@pytest.mark.parametrize(
    ("changes", "told"), [({"out_hidden_size": None}, "out_hidden_size"), ({"num_heads": 7}, "heads")]
)
def test_a_tower_that_cannot_be_read_is_refused_where_there_are_images(folder, changes, told):
    model = models.get(str(folder(**changes)))
    assert model.tower is None
    with pytest.raises(InputError, match="vision_config") as caught:
        pictures_of(model, [Images(width=640, height=480)], "workload.images")
    assert told in str(caught.value)


def test_text_models_have_no_tower():
    assert models.get("qwen3-8b").tower is None
    assert models.get("Qwen/Qwen3-VL-8B-Instruct").tower is not None


WHISPER = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
}
HEARD = {
    # Whisper large v3's encoder has 636,968,960 parameters; projectors as transformers' classes have them.
    "qwen2_audio": ({}, 636_968_960 + 1280 * 4096 + 4096),
    "voxtral": ({}, 636_968_960 + 5120 * 4096 + 4096 * 4096),
    # Positions are no parameters; a bias of keys in each layer is too many here.
    "qwen2_5_omni_thinker": (
        {"output_dim": 3584},
        636_968_960 - 1500 * 1280 + 32 * 1280 + 1280 * 3584 + 3584,
    ),
    # Three convolutions of 480 channels, a linear layer over 16 frequencies, keys with biases.
    "qwen3_omni_moe_thinker": ({"output_dim": 2048}, 647_927_168),
}
SECONDS = (30, 10.5, 0.3, 61.2)


def heard(model_type):
    audio = {**WHISPER, **HEARD[model_type][0]}
    data = {"model_type": model_type, "text_config": {"hidden_size": 4096}, "audio_config": audio}
    return read_audio(Config(data, "config.json"), "test")


@pytest.mark.parametrize("model_type", HEARD)
def test_an_audio_encoder_has_the_parameters_of_its_classes(model_type):
    assert tower_parameters(heard(model_type)) == HEARD[model_type][1]


@pytest.mark.parametrize(
    ("model_type", "tokens", "patches"),
    [
        ("qwen2_audio", [750, 262, 7, 750], [1500, 1500, 1500, 1500]),
        ("voxtral", [375, 375, 375, 1125], [1500, 1500, 1500, 4500]),
        ("qwen2_5_omni_thinker", [750, 262, 7, 1530], [1500, 525, 15, 3060]),
        ("qwen3_omni_moe_thinker", [390, 137, 4, 796], [390, 137, 4, 796]),
    ],
)
def test_tokens_of_clips_are_those_of_the_released_processors(model_type, tokens, patches):
    shapes = [heard(model_type).shape(Clip(seconds)) for seconds in SECONDS]
    assert [shape.tokens for shape in shapes] == tokens
    assert [shape.patches for shape in shapes] == patches


def test_longer_clips_take_more_work_and_windows_bound_attention():
    def attention(tower, seconds):
        ops = tower_ops(tower, tower.shape(Clip(seconds)))
        return sum(float(np.sum(op.flops)) for op in ops if op.kind == "attention")

    tower = heard("qwen3_omni_moe_thinker")
    assert attention(tower, 160) == pytest.approx(2 * attention(tower, 80), rel=0.01)
    whole = tower.model_copy(update={"window": 0})
    assert attention(whole, 160) == pytest.approx(4 * attention(whole, 80), rel=0.01)


def test_a_tower_takes_what_it_encodes():
    with pytest.raises(InputError, match="sound only"):
        heard("voxtral").shape(Picture(640, 480))
    with pytest.raises(InputError, match="pictures only"):
        published_tower("qwen3-vl-8b").shape(Clip(3))
    with pytest.raises(InputError, match="no audio encoder"):
        hearing(models.get("qwen3-vl-8b"), "workload.audio")
