"""Engine presets: every file loads, versions fall back, inherited figures say so."""

import numpy as np
import pytest

from core.errors import InputError, UnknownNameError
from core.loading import build
from hwmodels.cluster import usual_cluster
from hwmodels.device import devices
from simulator.models import models
from simulator.serving.engines import Engine, engines, generation_of, layer_times, nearest, stands_for
from simulator.serving.engines.classes import format_class, layer_class
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.costs import options_of
from simulator.serving.steps.price import StepPrice


def test_every_engine_loads_and_names_its_own_version():
    for engine in engines:
        assert engine.times
        assert nearest(engine.engine, engine.version).engine.name == engine.name


@pytest.mark.parametrize(
    ("name", "version", "found", "assumed"),
    [
        ("vllm", "0.15.1", "vllm-0.15", False),
        ("vLLM", "v0.14.1", "vllm-0.15", True),
        ("vllm", "", "vllm-0.19", True),
        ("vllm", "nightly-5b8c30d62b754b57", "vllm-0.19", True),
        ("sglang", "v0.5.9-cu130", "sglang-0.5.9", False),
        ("sglang", "v0.5.12-rocm700-mi35x", "sglang-0.5.12", False),
        ("sglang", "0.5.8.post1", "sglang-0.5.9", True),
        ("trtllm", "1.0.0rc3", "tensorrt-llm-1.0", False),
        ("TensorRT-LLM", "1.2.0rc6.post3", "tensorrt-llm-1.2", False),
        ("trtllm", "0.9.0.dev2024020600", "tensorrt-llm-0.11", True),
        ("deepspeed-mii", "", "fastgen", True),
    ],
)
def test_versions_fall_back_to_the_nearest_of_their_family(name, version, found, assumed):
    preset = nearest(name, version)
    assert (preset.engine.name, preset.assumed) == (found, assumed)


@pytest.mark.parametrize(
    ("reference", "preset", "words"),
    [
        ("sglang-0.4.3", "sglang-0.5.6", "older than every preset of sglang: its steps are likely longer"),
        ("vllm v0.8.5.post1", "vllm-0.10", "vllm-0.10 stands for 0.8.5.post1"),
        ("vllm-0.7.3", "vllm-0.6", "vllm-0.6 stands for 0.7.3"),
        ("vllm-0.9.2", "vllm-0.10", "vllm-0.10 stands for 0.9.2"),
        ("trtllm-0.9", "tensorrt-llm-0.11", "stands for 0.9"),
        ("vllm-7.1", "vllm-0.33", "younger than every preset"),
        ("vllm-0.15.2", "vllm-0.15", ""),
        ("vllm-0.19", "vllm-0.19", ""),
        ("orca", "orca", ""),
    ],
)
def test_a_release_without_a_preset_is_the_nearest_and_says_so(reference, preset, words):
    assert engines.get(reference).name == preset
    assert words in stands_for(reference)
    assert bool(words) == bool(stands_for(reference))


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="vllm"):
        nearest("vlm")


def test_a_version_is_one_mapping_on_top_of_another():
    engine = build(
        Engine,
        {
            "name": "vllm-0.20",
            "engine": "vllm",
            "version": "0.20.0",
            "based_on": "vllm-0.19",
            "stream_interval": {"value": 2, "kind": "read", "source": "release notes"},
        },
        "mine.yaml",
    )
    assert engine.stream_interval.value == 2
    assert engine.block_tokens.kind == "assumed"
    assert "vllm-0.19" in engine.block_tokens.source


def test_a_wrong_graph_size_is_refused():
    data = {
        "name": "x",
        "engine": "vllm",
        "version": "1",
        "based_on": "vllm-0.19",
        "graph_sizes": {"value": "1-8", "kind": "read", "source": "here"},
    }
    with pytest.raises(InputError, match="first:last:step"):
        build(Engine, data, "mine.yaml")


def test_graph_sizes_ascend():
    sizes = engines.get("vllm-0.15").graphs()
    assert sizes[0] == 1 and sizes[-1] == 512 and (sizes[1:] > sizes[:-1]).all()


@pytest.mark.parametrize(
    ("engine", "device", "budget", "sequences", "largest"),
    [
        ("vllm-0.15", "h100-sxm", 8192, 1024, 512),
        ("vllm-0.15", "a100-sxm-80gb", 2048, 256, 512),  # vLLM excludes A100 by name
        ("vllm-0.15", "l40s", 2048, 256, 512),
        ("vllm-0.33", "h200-sxm", 8192, 1024, 512),
        ("vllm-0.33", "b200", 16384, 1024, 1024),
        ("vllm-0.33", "mi355x", 16384, 1024, 512),
        ("sglang-0.5.12", "h100-sxm", 8192, 2048, 256),
        ("sglang-0.5.12", "l4", 2048, 2048, 24),
        ("sglang-0.5.23", "l4", 4096, 2048, 48),
        ("sglang-0.5.23", "b200", 16384, 2048, 512),
    ],
)
def test_limits_follow_the_device(engine, device, budget, sequences, largest):
    preset, hardware = engines.get(engine), devices.get(device)
    assert (preset.token_budget(hardware), preset.sequence_limit(hardware)) == (budget, sequences)
    assert preset.graphs(hardware)[-1] == largest


def test_a_stated_largest_graph_is_the_last_size():
    """Sizes double beyond the engine's own up to it, and none is above it."""
    preset = engines.get("tensorrt-llm-1.2")
    assert preset.graphs(devices.get("b200"), 1, 700)[-4:].tolist() == [128, 256, 512, 700]
    assert preset.graphs(devices.get("b200"), 1, 20).tolist() == [1, 2, 4, 8, 16, 20]


def test_stated_graph_sizes_are_the_captured_ones():
    preset = engines.get("tensorrt-llm-1.2")
    assert preset.graphs(devices.get("b200"), 1, None, (384, 1, 640)).tolist() == [1, 384, 640]
    with pytest.raises(InputError, match="graph_sizes and largest_graph: give one of them"):
        build(Pool, {"graph_sizes": [1, 2], "largest_graph": 2}, "deployment")


def test_sglang_captures_larger_batches_over_four_tensor_ranks():
    assert engines.get("sglang-0.5.12").graphs(devices.get("h100-sxm"), 4)[-1] == 512


def test_small_device_of_an_older_file_is_the_first_limit():
    small = {"below_bytes": 75e9} | {
        key: {"value": 64, "kind": "read", "source": "here"}
        for key in ("max_batched_tokens", "max_sequences")
    }
    data = {"name": "x", "engine": "vllm", "version": "1", "based_on": "vllm-0.19", "small_device": small}
    engine = build(Engine, data, "mine.yaml")
    assert engine.token_budget(devices.get("l40s")) == 64
    assert engine.token_budget(devices.get("a100-sxm-80gb")) == 8192
    with pytest.raises(InputError, match="device_limits replaces it"):
        build(Engine, data | {"device_limits": []}, "mine.yaml")


def test_graphs_inside_the_memory_share_leave_less_room_for_kv():
    """vLLM 0.26 subtracts its estimate of graphs from the budget; a share of 0.92 makes up for it."""
    assert engines.get("vllm-0.33").graphs_counted.value
    assert not engines.get("vllm-0.19").graphs_counted.value


def test_times_of_a_missing_class_come_from_the_nearest_version():
    found, assumed = layer_times(engines.get("vllm-0.17"), "dense", "16-bit")
    assert assumed and found.layers == "dense"
    found, assumed = layer_times(engines.get("vllm-0.11"), "dense", "16-bit")
    assert not assumed


def test_a_version_keeps_its_own_time_a_sequence_for_classes_that_it_lacks():
    """Layers of 16-bit experts come from another version, sampling and host work of a sequence do not."""
    newer, older = engines.get("vllm-0.19"), engines.get("vllm-0.11")
    found, assumed = layer_times(newer, "experts", "16-bit")
    other, _ = layer_times(older, "experts", "16-bit")
    own, _ = layer_times(newer, "experts", "fp8")
    assert assumed and found.layer_s == other.layer_s
    assert found.sequence_s == own.sequence_s < other.sequence_s


@pytest.mark.parametrize(
    ("model", "dense"), [("llama4-maverick", 24), ("deepseek-v3", 3), ("qwen3-30b-a3b", 0)]
)
def test_layers_without_experts_are_launched_as_dense_layers(model, dense):
    engine = engines.get("vllm-0.19")
    price = StepPrice(models.get(model), usual_cluster("h100-sxm"), Pool(tensor=8), engine)
    stored = format_class(price.pool.stored)
    own, _ = layer_times(engine, layer_class(price.model), stored)
    other, _ = layer_times(engine, "dense", stored)
    layers = price.model.layers
    launches = (layers - dense) * own.layer_s + dense * other.layer_s
    assert price.gaps == pytest.approx(launches + 2 * layers * own.all_reduce_s)


@pytest.mark.parametrize(
    ("degrees", "mib"),
    [
        # 512 MiB, 1.5 for each of 8,192 tokens, 2 for each sequence of a graph, 128 for each rank.
        ({}, 512 + 12_288 + 2 * 256 + 128),
        ({"tensor": 8}, 512 + 12_288 + 2 * 512 + 1_024),
        ({"data": 8, "expert": 8}, 512 + 12_288 + 2 * 512 + 1_024 + 512 * 8 * 4.5),
        # A stated largest graph, of all tokens that its sequences verify, and stated sizes.
        ({"tensor": 8, "largest_graph": 1024}, 512 + 12_288 + 2 * 1_024 + 1_024),
        ({"data": 8, "largest_graph": 64}, 512 + 12_288 + 2 * 64 + 1_024 + 64 * 8 * 3),
        ({"graph_sizes": [1, 32]}, 512 + 12_288 + 2 * 32 + 128),
        (
            {"largest_graph": 768, "speculation": {"kind": "mtp", "tokens": 2, "acceptance": 0.8}},
            512 + 12_288 + 2 * 256 + 128 + 2_048,
        ),
    ],
)
def test_sglang_leaves_memory_free_by_its_rule(degrees, mib):
    device = devices.get("h200-sxm")
    found = engines.get("sglang-0.5.9").share_of_memory(device, build(Pool, degrees, "pool"))
    assert found == pytest.approx(1 - mib * 2**20 / device.memory_bytes, abs=1e-3)


@pytest.mark.parametrize(("data", "budget"), [(1, 4096), (8, 512), (1, 16384), (1, 256)])
def test_sglang_leaves_memory_free_by_a_stated_chunk(data, budget):
    device, engine = devices.get("h200-sxm"), engines.get("sglang-0.5.9")
    stated = {"engine": engine.name, "data": data, "options": {"token_budget": budget}}
    pool = build(Pool, stated, "pool")
    chunks = {4096: 4096, 512: 4096, 16384: 16384, 256: 2048}[budget] - 8192
    share = engine.share_of_memory(device, pool) - chunks * 1.5 * 2**20 / device.memory_bytes
    # At least 10 GiB stay free on a device of more than 60 GiB.
    most = 1 - 10 * 2**30 / device.memory_bytes
    assert options_of(pool, device).memory_share == pytest.approx(min(share, most))


def test_sglangs_graphs_count_attention_ranks_as_tensor_ranks():
    engine, device = engines.get("sglang-0.5.9"), devices.get("h200-sxm")
    assert engine.captured(device, build(Pool, {"data": 8, "expert": 8}, "pool"))[-1] == 512
    assert engine.captured(device, build(Pool, {"data": 2, "expert": 2}, "pool"))[-1] == 256


def test_attention_ranks_share_sglangs_chunk():
    device = devices.get("h200-sxm")
    assert engines.get("sglang-0.5.9").token_budget(device, 8) == 1024
    assert engines.get("vllm-0.19").token_budget(device, 8) == engines.get("vllm-0.19").token_budget(device)


def test_a_stated_share_is_obeyed():
    stated = {"engine": "sglang-0.5.9", "options": {"memory_share": 0.5}}
    assert options_of(build(Pool, stated, "pool"), devices.get("h200-sxm")).memory_share == 0.5
    assert (
        options_of(build(Pool, {"engine": "sglang-0.5.9"}, "pool"), devices.get("h200-sxm")).memory_share
        > 0.85
    )


def test_a_version_without_a_number_is_the_newest_with_times():
    newest = nearest("trtllm")
    assert nearest("trtllm", "gpt-oss-dev") == newest and newest.assumed


def test_blackwell_has_times_of_its_own():
    assert generation_of(engines.get("vllm-0.19"), devices.get("b200")) == "blackwell"
    assert generation_of(engines.get("vllm-0.19"), devices.get("h100-sxm")) == ""
    entry, assumed = layer_times(engines.get("vllm-0.19"), "experts", "fp8", "blackwell")
    assert not assumed and entry.generation == "blackwell"
    # NVIDIA's generations stand for each other before another class of layers does.
    other, assumed = layer_times(engines.get("vllm-0.6"), "dense", "16-bit", "blackwell")
    assert assumed and other.layers == "dense" and other.generation in ("", "blackwell")


def test_a_family_is_its_newest_preset_with_measured_rows():
    assert engines.get("sglang") is nearest("sglang").engine
    assert engines.get("trtllm").engine == "tensorrt-llm"
    assert stands_for("vllm") == f"{nearest('vllm').engine.name} stands for vllm"
    assert stands_for(nearest("vllm").engine.name) == ""


LOST_MS = {4: 6.7, 8: 11.6, 16: 16.3, 32: 12.3}
"""TPOT of DeepSeek-R1 under SGLang on MI300X with the default tile less that with a tuned one, by clients
(ROCm/aiter, pull 1930)."""


def test_a_product_without_a_tile_of_its_own_takes_the_time_of_the_default():
    def step_ms(engine, device="mi300x", model="deepseek-r1", tokens=tuple(LOST_MS)):
        price = StepPrice(
            models.get(model), usual_cluster(device), Pool(tensor=8, weights="fp8"), engines.get(engine)
        )
        return 1e3 * price.linear(np.array(tokens, dtype=float))

    lost = step_ms("sglang-0.5.9") - step_ms("sglang-0.5.12")
    assert lost.mean() == pytest.approx(np.mean(list(LOST_MS.values())), rel=0.1)
    prompt = step_ms("sglang-0.5.9", tokens=(16384.0,)) - step_ms("sglang-0.5.12", tokens=(16384.0,))
    assert prompt == pytest.approx(0.0)
    for others in ({"device": "mi355x"}, {"model": "qwen3-235b-a22b"}):
        assert np.all(step_ms("sglang-0.5.9", **others) == step_ms("sglang-0.5.12", **others))
