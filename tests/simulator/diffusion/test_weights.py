"""Weights that devices share or that come from the host: bytes, times, memory, and what is refused."""

from dataclasses import asdict
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.diffusion.convolution import decoder_ops
from simulator.diffusion.ops import WIDTH, transformer_parameters
from simulator.diffusion.request import predict_request
from simulator.diffusion.scenario import make_diffusion
from simulator.diffusion.weights import arriving_seconds, transformer_bytes

COSMOS = {"model": "cosmos3-super", "cluster": "dgx-b300", "library": "vllm-omni"}
SD3 = {"model": "sd3.5-large", "cluster": "dgx-h100"}


def setting(layout, base=COSMOS, **workload):
    sizes = {"kind": "diffusion", "height": 512, "width": 512, **workload}
    return make_diffusion({**base, "workload": sizes, "layout": layout}, "test", Path())


def predicted(layout, base=COSMOS, **workload):
    return predict_request(setting(layout, base, **workload))


def test_a_block_by_hand():
    # 0.975 GB a block: queries and output of 64 heads, keys and values of 8, three matrices of the MLP.
    asked = setting({})
    block = 5120 * 128 * (2 * 64 + 2 * 8) + 3 * 5120 * 25600
    assert transformer_parameters(asked.model) == pytest.approx(64 * block, rel=0.003)
    assert transformer_bytes(asked) == WIDTH * transformer_parameters(asked.model)


def test_parts_take_a_part_of_the_link_and_are_gathered():
    whole, parts = (
        setting({"data": 4, "offload": "layers", "sharded": way}, batch=4) for way in (False, True)
    )
    size, blocks = transformer_bytes(whole), 64
    link = whole.cluster.device.kernels.host_copy
    assert arriving_seconds(whole, size, blocks) == pytest.approx(float(link(size)))
    gathered = blocks * float(whole.cluster.collective("all_gather", size / blocks, 4, 1))
    assert arriving_seconds(parts, size, blocks) == pytest.approx(float(link(size / 4)) + gathered)
    resident = setting({"data": 4, "sharded": True}, batch=4)
    assert arriving_seconds(resident, size, blocks) == pytest.approx(gathered)
    assert arriving_seconds(setting({"data": 4}, batch=4), size, blocks) == 0


def test_calls_that_run_apart_bring_the_blocks_twice():
    both, one = (predicted({"offload": "layers"}, guidance=way) for way in (True, False))
    assert both.times.stream_s == pytest.approx(2 * one.times.stream_s)
    assert both.times.device_s == pytest.approx(2 * one.times.device_s)
    joined = {"model": "sd3.5-large", "cluster": "dgx-h100"}
    together, alone = (predicted({"offload": "layers"}, joined, guidance=way) for way in (True, False))
    assert together.times.stream_s == alone.times.stream_s


def test_copies_are_batches_side_by_side():
    alone, copies = predicted({}, SD3), predicted({"data": 4}, SD3, batch=4)
    assert asdict(copies.times) == asdict(alone.times)
    assert copies.rate == pytest.approx(4 * alone.rate)
    assert copies.setting.devices == 4
    assert copies.joules == pytest.approx(alone.joules)


def test_the_busiest_copy_decides():
    assert predicted({"data": 4}, SD3, batch=5).setting.prompts == 2


def test_shared_weights_take_a_part_and_two_blocks():
    whole = 64 * 2 * 487_587_840.0
    memory = predicted({"ulysses": 4, "sharded": True}).memory_bytes["transformer"]
    assert memory == pytest.approx(whole / 4 + 2 * whole / 64, rel=0.004)
    streamed = predicted({"data": 4, "sharded": True, "offload": "layers"}, batch=4).memory_bytes[
        "transformer"
    ]
    assert streamed == pytest.approx(2.25 * whole / 64, rel=0.004)


def test_an_encoder_from_the_host_takes_its_link():
    # T5-XXL and CLIP of FLUX.1, H100: 196 ms in layers from the host (sgl-project/sglang pull request 25517).
    flux = {"model": "flux.1-dev", "cluster": "dgx-h100"}
    kept, streamed = (predicted({"offload": way}, flux).times.encoders_s for way in ("none", "layers"))
    assert kept < 0.03
    assert streamed == pytest.approx(0.196, rel=0.1)


def test_nothing_is_longer_for_a_faster_link_of_parts():
    times = [
        predicted({"ulysses": ranks, "sharded": True, "offload": "layers"}).times.stream_s
        for ranks in (2, 4, 8)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"sharded": True}, "one device holds all weights"),
        ({"pipefusion": 2, "sharded": True}, "different blocks"),
        ({"data": 2}, "leave copies without one"),
        ({"data": 0}, "layout.data"),
        ({"ulysses": 2, "data": 2, "decoder": 4}, "decoder \\(4\\): a copy has 2 devices"),
    ],
)
def test_layouts_that_do_not_exist_are_refused(layout, words):
    with pytest.raises(InputError, match=words):
        setting(layout)


def test_a_decoder_holds_one_image_or_the_frames_of_one_latent_frame():
    """2,178 values a pixel in 16 bits (ComfyUI); Wan 2.2's widest: 512 channels at half the pixels a side."""
    images = [predicted({}, SD3, height=1024, width=1024, batch=count).memory_bytes for count in (1, 4)]
    assert [each["activations"] for each in images] == pytest.approx([2178 * 1024**2 * 2.0] * 2)
    video = predicted({"sharded": True, "ulysses": 4}, height=480, width=832, frames=29).memory_bytes
    assert video["activations"] == pytest.approx(2178 / 256 * 4 * 512 * 240 * 416 * 2.0)


def test_a_decoder_of_videos_makes_one_frame_of_the_first_latent_frame():
    """1 + 4 frames of two latent frames cost 5 / 1 of the pixels at full resolution."""
    asked = setting({}).model.decoder
    one, two = (decoder_ops(asked, 1.0, (frames, 8, 8))[-2] for frames in (1, 2))
    assert float(two.m) == pytest.approx(5 * float(one.m))
