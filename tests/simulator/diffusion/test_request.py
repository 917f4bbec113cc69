"""A batch of images or videos: identities of its parts and of its layouts, and what is refused."""

from pathlib import Path

import pytest

from core.errors import InfeasibleError, InputError
from hwmodels.device import devices
from simulator.diffusion.convolution import decoder_ops, tiled_ops
from simulator.diffusion.libraries import diffusion_libraries
from simulator.diffusion.models import diffusion_models
from simulator.diffusion.ops import WIDTH, call_ops
from simulator.diffusion.request import predict_request
from simulator.diffusion.scenario import make_diffusion
from simulator.diffusion.work import call_of, device_seconds, prices_of, work_of

SD3 = {"model": "sd3.5-large", "cluster": "dgx-h100"}
VIDEO = {"model": "hunyuan-video", "cluster": "dgx-h100"}
CLIP = {"height": 720, "width": 1280, "frames": 129}


def setting(base=SD3, layout=None, library="xdit", **workload):
    data = {**base, "workload": {"kind": "diffusion", **workload}, "layout": layout or {}, "library": library}
    return make_diffusion(data, "test", Path())


def predicted(*arguments, **named):
    return predict_request(setting(*arguments, **named))


def test_one_step_is_one_pass_of_the_transformer():
    asked = setting(steps=1)
    request = predict_request(asked)
    kernels = work_of(call_ops(call_of(asked)), prices_of(asked))
    assert request.times.device_s == device_seconds(kernels, asked.library, asked.cluster.device)
    rest = request.times.encoders_s + request.times.decoder_s + asked.library.request_s
    assert request.times.latency_s == pytest.approx(rest + request.times.step_s)


def test_first_steps_read_all_keys():
    """PCPP's first steps are DistriFusion's, so a request of none but those is."""
    first = {"patches": 4, "warm_up": 10}
    whole, partial = (
        predicted(VIDEO, first | share, steps=10, **CLIP) for share in ({}, {"conditioning": 0.3})
    )
    assert partial.times.latency_s == pytest.approx(whole.times.latency_s)
    assert partial.times.step_s < whole.times.step_s


def test_steps_add_up():
    one, many = predicted(steps=1), predicted(steps=28)
    assert many.times.latency_s - one.times.latency_s == pytest.approx(27 * one.times.step_s)


def test_guidance_on_two_devices_is_half_of_the_calls_on_each():
    apart, half = predicted(layout={"guidance": 2}), predicted(guidance=False)
    both = predicted()
    assert apart.times.device_s == half.times.device_s
    assert apart.setting.samples == both.setting.samples / 2
    assert half.times.exposed_s == 0 < apart.times.exposed_s


def test_steps_from_a_cache_run_no_transformer():
    whole, half = predicted(steps=20), predicted(steps=20, skipped=0.5)
    assert whole.times.latency_s - half.times.latency_s == pytest.approx(10 * whole.times.step_s)


@pytest.mark.parametrize("layout", [{"ulysses": 2}, {"ring": 4}, {"ulysses": 4, "ring": 2}, {"patches": 4}])
def test_patches_of_all_ranks_are_those_of_the_sample(layout):
    call = call_of(setting(VIDEO, layout, **CLIP))
    assert call.rows * call.ranks == call.tokens


@pytest.mark.parametrize("layout", [{"ulysses": 8}, {"ring": 8}, {"ulysses": 4, "ring": 2}])
def test_ranks_share_the_work_of_attention(layout):
    def flops(asked):
        return sum(op.flops for op in call_ops(call_of(asked)) if op.kind == "attention")

    alone, shared = flops(setting(VIDEO, **CLIP)), flops(setting(VIDEO, layout, **CLIP))
    assert shared == pytest.approx(alone / 8, rel=1e-9)


def test_bytes_of_exchanges_by_hand():
    asked = setting(VIDEO, {"ulysses": 4}, **CLIP)
    rows = asked.tokens / 4
    blocks = asked.model.layers
    received = predict_request(asked).received_bytes
    assert received == pytest.approx(blocks * 4 * WIDTH * rows * 3072 * 3 / 4)
    stale = predicted(VIDEO, {"patches": 4}, **CLIP).received_bytes
    assert stale == pytest.approx(blocks * 2 * WIDTH * asked.tokens * 3072 * 3 / 4)


def test_first_steps_wait_for_neighbours_that_are_not_stale():
    """What the warm-up adds is the exchange of its steps, less what the later ones show."""
    cold, warm = (predicted(VIDEO, {"patches": 4, "warm_up": count}, **CLIP) for count in (0, 5))
    asked = setting(VIDEO, {"patches": 4}, **CLIP)
    gathered = work_of(call_ops(call_of(asked)), prices_of(asked)).exchange["stale"]
    shown = cold.times.exposed_s
    assert 0 < shown < gathered
    assert warm.times.latency_s - cold.times.latency_s == pytest.approx(5 * (gathered - shown))
    one = predicted(VIDEO, {"warm_up": 5}, **CLIP)
    assert one.times.latency_s == predicted(VIDEO, {"warm_up": 0}, **CLIP).times.latency_s


def test_a_stream_encodes_its_text_once():
    once = predicted(encoded=False)
    assert once.times.encoders_s == 0
    assert predicted().times.latency_s - once.times.latency_s == pytest.approx(predicted().times.encoders_s)


def test_devices_speed_up_long_videos_and_not_small_images():
    def speed_up(base, **workload):
        alone, eight = (predicted(base, layout, **workload) for layout in ({}, {"ulysses": 8}))
        return alone.times.latency_s / eight.times.latency_s

    assert 4.5 < speed_up(VIDEO, **CLIP) < 8
    assert speed_up({"model": "pixart-sigma-xl", "cluster": "dgx-h100"}) < 2


def test_small_images_wait_for_the_host_and_a_compiler_joins_its_kernels():
    eager, joined = (predicted(layout={"ulysses": 2, "guidance": 2}, library=name) for name in LIBRARIES)
    assert eager.times.host_s > eager.times.device_s
    assert joined.times.device_s < eager.times.device_s


LIBRARIES = "xdit", "xdit-compiled"


def test_stages_divide_weights_and_time():
    alone, staged = predicted(steps=50), predicted(layout={"pipefusion": 2}, steps=50)
    assert staged.memory_bytes["transformer"] == alone.memory_bytes["transformer"] / 2
    assert staged.times.device_s == pytest.approx(alone.times.device_s / 2)


def test_weights_from_the_host_take_little_memory_and_the_time_of_the_link():
    video = {"model": "wan2.1-14b", "cluster": "dgx-h100"}
    kept, streamed = (predicted(video, {"offload": way}, height=480, width=832) for way in ("none", "layers"))
    assert streamed.memory_bytes["transformer"] < 0.06 * kept.memory_bytes["transformer"]
    assert streamed.times.step_s == pytest.approx(max(streamed.times.stream_s, kept.times.step_s))
    assert streamed.times.stream_s > 0.3


def test_energy_and_price_are_those_of_all_devices():
    request = predicted(layout={"ulysses": 2}, batch=2)
    assert request.joules == pytest.approx(request.watts * request.times.latency_s / 2)
    hour = 2 * request.setting.cluster.device.price_per_hour_usd
    assert request.usd == pytest.approx(hour * request.times.latency_s / 3600 / 2)


@pytest.mark.parametrize(
    ("base", "layout", "workload", "told"),
    [
        (SD3, {}, {"steps": 0}, "steps"),
        (SD3, {}, {"frames": 0}, "frames"),
        (SD3, {}, {"batch": 0}, "batch"),
        (SD3, {}, {"frames": 9}, "workload.frames: sd3.5-large makes images; allowed: 1, found 9"),
        (SD3, {}, {"height": 8}, "workload.height: must be at least 16"),
        (VIDEO, {"guidance": 2}, CLIP, "layout.guidance: guidance on two devices needs two calls a step"),
        (VIDEO, {}, {"guidance": True}, "workload.guidance"),
        (SD3, {"ulysses": 3}, {}, "layout.ulysses: sd3.5-large's 38 heads do not divide by 3"),
        (SD3, {"guidance": 3}, {}, "guidance"),
        (SD3, {"patches": 2, "ring": 2}, {}, "patches with stale neighbours"),
        (SD3, {"decoder": 8}, {}, "decoder (8)"),
        (SD3, {"patches": 8}, {"height": 64, "width": 4096}, "the halo of a kernel"),
        (SD3, {"ring": 2048}, {"height": 512, "width": 512}, "1024 patches of a sample do not reach"),
        ({"model": "sd3.5-lage", "cluster": "dgx-h100"}, {}, {}, "did you mean 'sd3.5-large'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(base, layout, workload, told):
    with pytest.raises(InputError) as caught:
        setting(base, layout, **workload)
    assert told in str(caught.value)


def test_a_model_larger_than_a_device_is_refused_with_its_parts():
    with pytest.raises(InfeasibleError, match=r"transformer .* GB, encoders .* GB"):
        predicted({"model": "hunyuan-video", "cluster": "dgx-a100-40gb"}, **CLIP)


def test_convolutions_on_devices_that_nobody_measured_are_bound_by_bytes():
    library = diffusion_libraries.get("xdit")
    fitted, borrowed = (library.on(devices.get(name)) for name in ("h100-sxm", "h20"))
    assert fitted == library.times["default"]
    # An H20 has a seventh of the H100's products, and more bandwidth.
    assert 1.0 < borrowed.convolution < 0.5 * fitted.convolution
    b200 = library.model_copy(update={"times": {"default": fitted}}).on(devices.get("b200"))
    assert b200.convolution == pytest.approx(library.times["b200"].convolution, rel=0.2)


def test_tiles_that_overlap_are_decoded_again():
    whole, tiled = (predicted(VIDEO, {"tiling": tiling}, **CLIP).times for tiling in (False, True))
    # 90 x 160 latent pixels in tiles of 32 every 24: 114 rows and 208 columns.
    assert tiled.decoder_s / whole.decoder_s == pytest.approx(114 / 90 * 208 / 160, rel=0.1)
    assert tiled.step_s == whole.step_s


def test_a_latent_of_one_tile_is_decoded_once():
    latent = (5, 32, 32)
    decoder = diffusion_models.get("hunyuan-video").decoder
    plain = decoder_ops(decoder, 1.0, latent)
    assert [repr(op) for op in tiled_ops(decoder, 1.0, latent, 1.0, True)] == [repr(op) for op in plain]


def test_tiles_of_a_decoder_that_has_none_are_refused():
    with pytest.raises(InputError, match=r"no tiles of sd3\.5-large's decoder are known"):
        setting(layout={"tiling": True})
