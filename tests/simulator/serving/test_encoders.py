"""Images in serving: encoders beside prompts, encoder pools, and what neither may change."""

import json
from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.models import models
from simulator.models.towers import Picture
from simulator.serving.encoders import EncoderTimes, EncodingArrays
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.capped import step_arrays

BASE = {
    "model": "qwen3-vl-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 60,
        "arrivals": {"kind": "poisson", "rate": 4},
        "input": 200,
        "output": 20,
    },
}
DISAGGREGATED = [{"role": "prefill"}, {"role": "decode"}]
APART = [*DISAGGREGATED, {"role": "encoder"}]


def run(images=None, pools=None, **workload):
    data = {**BASE, "workload": {**BASE["workload"], **workload}}
    if images is not None:
        data["workload"]["images"] = images
    if pools is not None:
        data["deployment"] = {"pools": pools}
    return serve(make_serving(data, "test", Path()))


def figures(result):
    return {name: column.tolist() for name, column in result.records.columns().items()}


def mean_ttft(result):
    return result.metrics.latencies["ttft"].mean


def test_an_encoder_pool_without_images_changes_no_request():
    assert figures(run(pools=APART)) == figures(run(pools=DISAGGREGATED))


def test_a_tower_without_images_changes_no_request():
    named = make_serving({**BASE, "model": "qwen3-8b"}, "test", Path())
    assert figures(serve(named)) == figures(run())


def test_image_tokens_are_in_the_prompt_and_the_encoder_in_its_step():
    plain, seeing = run(), run("2x1280x720")
    assert seeing.records.columns()["prompt"][0] == plain.records.columns()["prompt"][0] + 2 * 880
    same_prompt = run(input=200 + 2 * 880)
    steps = seeing.setting.pools[0].costs.steps
    encoder = steps.encoder_s([(1960, 0)])
    assert encoder > 0.005
    assert mean_ttft(seeing) > mean_ttft(same_prompt) + 0.9 * encoder


def test_a_tower_lies_in_memory_once():
    """Engines build it with or without images."""
    plain, seeing = (
        make_serving({**BASE, "workload": BASE["workload"] | images}, "test", Path())
        for images in ({}, {"images": "2x1280x720"})
    )
    assert plain.pools[0].costs.kv_blocks == seeing.pools[0].costs.kv_blocks
    assert plain.pools[0].costs.weight_bytes == seeing.pools[0].costs.weight_bytes


@pytest.mark.parametrize("requests", [1, 2, 3])
def test_arrays_add_what_steps_add(requests):
    seeing = make_serving({**BASE, "workload": BASE["workload"] | {"images": "2x1280x720"}}, "test", Path())
    steps, pictures = seeing.pools[0].costs.steps, seeing.pictures
    prompt = pictures.tokens + 200
    added = steps.step([(prompt, 0)] * requests, 4, 4000) - steps.target.step(
        [(prompt, 0)] * requests, 4, 4000
    )
    table = steps.target
    cases = {
        name: step_arrays([table], *more).cases(0)
        for name, more in (("plain", []), ("seeing", [EncodingArrays([steps.times], pictures, prompt)]))
    }
    batch = requests * prompt, 0.0, 4.0, 1000.0, requests
    arrays = cases["seeing"].mixed_seconds(*batch) - cases["plain"].mixed_seconds(*batch)
    assert float(arrays) == pytest.approx(added, rel=1e-9)
    assert cases["seeing"].decode_seconds(4.0, 1000.0) == cases["plain"].decode_seconds(4.0, 1000.0)


def test_a_chunk_encodes_the_images_that_it_begins():
    steps = run("3x1280x720").setting.pools[0].costs.steps
    assert steps.encoder_s([(880, 880)]) == steps.encoder_s([(880, 0)]) > 0
    assert steps.encoder_s([(200, 3 * 880)]) == 0.0
    assert steps.encoder_s([(879, 1)]) == 0.0
    assert steps.encoder_s([(2 * 880, 0)]) == steps.times.seconds(2, steps._starts[0][1])


def test_a_system_prompt_precedes_the_images():
    steps = run("1280x720", prefix={"tokens": 512}).setting.pools[0].costs.steps
    assert steps.encoder_s([(512, 0)]) == 0.0
    assert steps.encoder_s([(1, 512)]) > 0.0


def test_an_encoder_pool_takes_the_tower_off_the_prompts_replica():
    together, apart = run("4x1280x720", DISAGGREGATED), run("4x1280x720", APART)
    encoder = apart.fleet.encoder
    assert encoder.busy_s == pytest.approx(60 * encoder.seconds)
    assert apart.setting.pools[0].costs.kv_blocks == together.setting.pools[0].costs.kv_blocks
    assert apart.setting.gpus == together.setting.gpus + 1
    first = apart.records.columns()
    assert (first["scheduled_s"] >= first["arrival_s"] + encoder.seconds).all()


def test_the_host_takes_its_time_for_each_picture():
    times = run("1280x720").setting.pools[0].costs.steps.times
    shape, known = times.tower.shape(Picture(1280, 720)), engines.get("vllm-0.11").picture_s
    assert known.value > 0.0
    assert engines.get("vllm-0.19").picture_s.value == 0.0
    kernels = [times.seconds(count, shape) for count in (1, 3)]
    pool, cluster = Pool(role="mixed"), clusters.get("dgx-h100")
    engine = engines.get("vllm-0.19").model_copy(update={"picture_s": known})
    slower = EncoderTimes(times.tower, models.get("qwen3-vl-8b"), cluster, pool, engine)
    host = [slower.seconds(count, shape) - alone for count, alone in zip((1, 3), kernels, strict=True)]
    assert host == pytest.approx([known.value, 3 * known.value])


def test_more_images_a_request_take_longer_to_encode():
    seconds = [run(f"{count}x1280x720", APART).fleet.encoder.seconds for count in (1, 2, 8)]
    assert seconds == sorted(seconds)
    assert seconds[2] > 3 * seconds[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "llama3.1-8b", "images": "1280x720"}, "workload.images: llama3.1-8b has no vision tower"),
        ({"images": "0x1280x720"}, "count"),
        ({"images": "1280"}, "COUNTxWIDTHxHEIGHT"),
        ({"images": {"width": 0, "height": 5}}, "width"),
        ({"images": "64x4096x4096"}, "the images have"),
        ({"model": "llama3.1-8b", "pools": APART}, "deployment.pools.2.role"),
        ({"pools": [{"role": "encoder"}]}, "needs pools of the language model"),
        ({"pools": [*APART, {"role": "encoder"}]}, "one pool of role encoder"),
        ({"images": "1280x720", "program": {"kind": "samples", "count": 2}}, "images"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(changes, told):
    data = {**BASE, "model": changes.get("model", "qwen3-vl-8b"), "workload": dict(BASE["workload"])}
    data["workload"] |= {key: value for key, value in changes.items() if key in ("images", "program")}
    if "pools" in changes:
        data["deployment"] = {"pools": changes["pools"]}
    with pytest.raises(InputError) as caught:
        make_serving(data, "test", Path())
    assert told in str(caught.value)


def omni(folder):
    """A small model that hears: Qwen3-Omni's encoder beside two layers."""
    text = {
        "model_type": "qwen3_omni_moe_text",
        "hidden_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 152_064,
        "max_position_embeddings": 65_536,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 768,
        "intermediate_size": 768,
    }
    audio = {"model_type": "qwen3_omni_moe_audio_encoder", "output_dim": 2048}
    thinker = {"model_type": "qwen3_omni_moe_thinker", "audio_config": audio, "text_config": text}
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "qwen3_omni_moe", "thinker_config": thinker}), encoding="utf-8")
    return str(path)


def hear(path, pools=None, **workload):
    data = {**BASE, "model": path, "workload": {**BASE["workload"], **workload}}
    return serve(make_serving(data | ({"deployment": {"pools": pools}} if pools else {}), "test", Path()))


def test_clips_are_tokens_of_the_prompt_and_an_encoder_pool_takes_them(tmp_path):
    path = omni(tmp_path)
    text, sound, apart = hear(path), hear(path, audio="2x30"), hear(path, APART, audio="2x30")
    assert sound.to_dict()["audio"]["tokens"] == 780
    assert mean_ttft(sound) > mean_ttft(text)
    assert apart.to_dict()["audio"]["encoder"]["busy"] > 0
    assert figures(hear(path, APART)) == figures(hear(path, DISAGGREGATED))


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ({"audio": 0}, "workload.audio"),
        ({"audio": "2x"}, "COUNTxSECONDS"),
        ({"audio": True}, "COUNTxSECONDS"),
        ({"audio": "30", "images": "640x480"}, "not both"),
        ({"audio": "64x80000"}, "tokens"),
        ({"images": "640x480"}, "no vision tower"),
    ],
)
def test_clips_that_no_request_has_are_refused(tmp_path, workload, words):
    with pytest.raises(InputError, match=words):
        hear(omni(tmp_path), **workload)
    with pytest.raises(InputError, match="no audio encoder"):
        run(audio=30)


def test_the_host_of_an_encoder_pool_makes_patches_beside_other_requests_towers():
    """120 ms for a picture of 1,920 x 1,080 (SGLang): one request waits for it, a busy pool does not."""

    def asked(engine, **arrivals):
        work = {**BASE["workload"], "images": "4x1920x1080", "arrivals": arrivals}
        pools = [{"role": "encoder"}, {"role": "mixed"}]
        data = {**BASE, "workload": work, "deployment": {"engine": engine, "pools": pools}}
        return serve(make_serving(data, "test", Path()))

    alone = {"kind": "closed", "concurrency": 1}
    sglang = asked("sglang-0.5.12", **alone)
    encoder = sglang.fleet.encoder
    assert encoder is not None
    assert encoder.host_s == pytest.approx(4 * 0.12, rel=0.03)
    assert mean_ttft(sglang) > encoder.host_s + encoder.seconds
    vllm = asked("vllm-0.19", **alone).fleet.encoder
    assert vllm is not None and vllm.host_s == 0
    burst = asked("sglang-0.5.12", kind="burst")
    assert burst.fleet.encoder.busy_s == pytest.approx(60 * encoder.seconds)
    assert burst.records.columns()["first_s"].max() > encoder.host_s + 60 * encoder.seconds
    assert burst.records.columns()["first_s"].max() < 60 * (encoder.host_s + encoder.seconds)


def test_embeddings_through_the_host_hold_up_the_encoder_and_the_request():
    def asked(engine):
        work = {**BASE["workload"], "images": "4x1920x1080", "arrivals": {"kind": "closed", "concurrency": 1}}
        pools = [{"role": "encoder"}, {"role": "mixed"}]
        data = {**BASE, "workload": work, "deployment": {"engine": engine, "pools": pools}}
        return serve(make_serving(data, "test", Path()))

    spared = {
        name: {"value": 0.0, "kind": "read", "source": "test"}
        for name in ("embedding_out_s", "embedding_in_s")
    }
    rdma = {"name": "rdma", "engine": "sglang", "version": "rdma", "based_on": "sglang-0.5.12", **spared}
    host, links = asked("sglang-0.5.12"), asked(rdma)
    figures = engines.get("sglang-0.5.12")
    out, into = (getattr(figures, name).value * host.setting.pictures.embedding_bytes for name in spared)
    assert host.fleet.encoder.seconds - links.fleet.encoder.seconds == pytest.approx(out) and out > 0.1
    assert mean_ttft(host) - mean_ttft(links) == pytest.approx(out + into, rel=1e-6)
