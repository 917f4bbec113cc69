"""Weight-only formats: narrow weights save bytes, not operations."""

import numpy as np
import pytest

from evidence.serving.ledger import PUBLISHED, evaluate
from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.memory import memory, weight_bytes
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.weight_only import WeightFormats, widened_product


def linear(tokens, model="llama3.1-70b", device="h100-sxm", engine="vllm-0.15", **pool) -> np.ndarray:
    price = StepPrice(models.get(model), usual_cluster(device), Pool(tensor=4, **pool), engines.get(engine))
    return price.linear(np.array(tokens, dtype=float))


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_narrow_weights_save_time_at_few_tokens_only(weights):
    tokens = [1, 16, 4096]
    wide, narrow = linear(tokens), linear(tokens, weights=weights, activations="bf16")
    assert (narrow[:2] < 0.8 * wide[:2]).all()
    assert narrow[2] == pytest.approx(wide[2], rel=0.05) and narrow[2] > wide[2]


def test_four_bits_are_read_faster_than_eight():
    eight, four = (linear([1], weights=name, activations="bf16") for name in ("int8", "int4"))
    assert 0.5 < float(four[0] / eight[0]) < 1.0


def test_stated_activations_choose_the_kernel():
    """8-bit products are faster at many tokens than 8-bit weights alone."""
    both = linear([4096], weights="int8")
    assert float(both[0]) < 0.75 * float(linear([4096], weights="int8", activations="bf16")[0])
    model, cluster = models.get("llama3.1-8b"), usual_cluster("h100-sxm")
    assert WeightFormats.of(model, cluster, "int4", "fp8").dense == "fp8"
    assert WeightFormats.of(model, cluster, "int4").dense == "bf16"


def test_the_first_marlin_computes_blocks_of_64_tokens():
    old, new = (linear([32, 2048], engine=name, weights="int4") for name in ("vllm-0.6", "vllm-0.15"))
    assert old[0] == pytest.approx(new[0], rel=0.1) and old[1] > 1.4 * new[1]


def test_experts_in_four_bits_read_less_and_compute_no_faster():
    price = {
        name: StepPrice(models.get("mixtral-8x7b"), usual_cluster("h100-sxm"), Pool(weights=name), engine)
        for engine in [engines.get("vllm-0.15")]
        for name in ("bf16", "int4")
    }
    few, many = (price["int4"].experts(t) / price["bf16"].experts(t) for t in (np.array([2.0]), 16384.0))
    # Four tokens that hit all experts take 283 us in int4 (SGLang 0.5.10), bytes in 16 bits 945 us.
    assert 0.25 < float(few[0]) < 0.4 and float(many) > 1.0


def test_narrow_experts_are_read_no_faster_than_multiprocessors_widen_them():
    seconds = {
        name: float(
            StepPrice(
                models.get("mixtral-8x7b"),
                usual_cluster(name),
                Pool(weights="int4"),
                engines.get("vllm-0.15"),
            ).experts(np.array([16.0]))[0]
        )
        for name in ("h100-sxm", "h200-sxm", "a100-sxm-80gb")
    }
    # H200 has 1.43 times the bandwidth of H100 and as many multiprocessors; A100 has 0.61 of the bandwidth.
    assert 1.05 < seconds["h100-sxm"] / seconds["h200-sxm"] < 1.25
    assert seconds["a100-sxm-80gb"] / seconds["h100-sxm"] == pytest.approx(3.35 / 2.04, rel=0.1)


def test_int4_experts_run_in_a_format_of_their_own():
    # aiconfigurator 0.12, SGLang 0.5.10 on H100, 8 experts of 4,096 x 14,336, a quarter of each: 5,728 us.
    price = StepPrice(
        models.get("mixtral-8x7b"),
        usual_cluster("h100-sxm"),
        Pool(tensor=4, weights="int4"),
        engines.get("sglang-0.5.9"),
    )
    assert price.weights.experts == "int4_w4a16" and not price.weights.experts_widened
    seconds = float(price.experts(np.array([8192.0]))[0]) / price.model.moe_layers
    assert seconds == pytest.approx(5728e-6, rel=0.15)


def gpt_oss(model, device, engine):
    return StepPrice(models.get(model), usual_cluster(device), Pool(), engines.get(engine))


@pytest.mark.parametrize(
    ("device", "engine", "format_"),
    [
        ("h100-sxm", "vllm-0.11", "int4_w4a16"),  # Marlin's: vLLM had no triton_kernels before pull 28788
        ("h100-sxm", "vllm-0.12", "mxfp4_w4a16"),
        ("a100-sxm-80gb", "vllm-0.19", "int4_w4a16"),
        ("b200", "vllm-0.19", "mxfp4_w4a16"),
        ("b200", "tensorrt-llm-1.2", "mxfp4_w4a8"),
    ],
)
def test_mxfp4_experts_run_in_the_kernels_of_their_engine(device, engine, format_):
    assert gpt_oss("gpt-oss-20b", device, engine).weights.experts == format_


def test_a_deployment_names_the_kernels_and_inputs_of_mxfp4_experts():
    def experts(device, **degrees):
        pool = Pool(weights="fp4", **degrees)
        model, cluster = models.get("gpt-oss-120b"), usual_cluster(device)
        return StepPrice(model, cluster, pool, engines.get("vllm-0.19")).weights.experts

    assert experts("h100-sxm") == "mxfp4_w4a16"
    assert experts("h100-sxm", expert_kernels="marlin") == "int4_w4a16"
    assert experts("b200") == "mxfp4_w4a16"
    # No table of vLLM's library has MXFP4 with inputs of 8 bits: it is estimated.
    assert experts("b200", activations="fp8") == "mxfp4"


@pytest.mark.xfail(strict=True, reason="1,008 us since tiles are a power mean")
def test_triton_experts_take_as_long_as_in_the_public_table():
    # aiconfigurator 0.12, vLLM 0.24 on H100, 32 experts of 2,880 x 2,880: 773 us with balanced routing of
    # 2,048 tokens, 1,007 us with skewed routing.
    price = gpt_oss("gpt-oss-20b", "h100-sxm", "vllm-0.19")
    assert 773e-6 < float(price.experts(np.array([2048.0]))[0]) / price.model.moe_layers < 1007e-6


@pytest.mark.parametrize(
    ("engine", "kernels", "library"),
    [
        ("vllm-0.11", None, "vllm-triton"),  # VLLM_USE_FLASHINFER_MOE_FP16 and _FP8 are off by default
        ("vllm-0.19", None, "vllm"),
        ("vllm-0.19", "triton", "vllm-triton"),
        ("sglang-0.5.9", "triton", "sglang"),  # no table of its own
    ],
)
def test_experts_on_blackwell_run_in_the_kernels_of_the_version(engine, kernels, library):
    pool = Pool(tensor=4, expert_kernels=kernels)
    price = StepPrice(models.get("qwen3-235b-a22b"), usual_cluster("b200"), pool, engines.get(engine))
    assert price.expert_prices.kernels.library == library
    assert price.prices.kernels.library == engine.partition("-")[0]


@pytest.mark.xfail(
    strict=True, reason="FlashInfer's experts take 349 us, 13 % long, since tiles are a power mean"
)
def test_triton_experts_on_b200_take_as_long_as_in_the_public_table():
    # aiconfigurator 0.12, vLLM 0.22 on B200: 128 experts of 4,096 x 384, 8 of them a token, 2,048 tokens with
    # skewed routing: 536 us; 308 us with FlashInfer's kernels in 0.24.
    model, cluster, pool = models.get("qwen3-235b-a22b"), usual_cluster("b200"), Pool(tensor=4)
    for engine, microseconds in (("vllm-0.11", 536), ("vllm-0.19", 308)):
        price = StepPrice(model, cluster, pool, engines.get(engine))
        seconds = float(price.experts(np.array([2048.0]))[0]) / model.moe_layers
        assert seconds == pytest.approx(1e-6 * microseconds, rel=0.1)


def test_marlin_pads_experts_and_so_leaves_less_room_for_kv():
    """gpt-oss-120b on one H100 under vLLM 0.10.2: 28 sequences of 2,050 tokens decoded at once, by Little's
    law (gpustack/gpustack, docs/performance-lab/gpt-oss-120b/h100.md). At vLLM's share of 0.9 nothing is left
    for KV (vLLM issue 23278); the share of 0.95 is that of issue 27508."""
    old, new = (gpt_oss("gpt-oss-120b", "h100-sxm", engine) for engine in ("vllm-0.11", "vllm-0.12"))
    assert old.expert_padding == pytest.approx(3072 * 2944 / 2880**2)
    assert memory(old, 8192, 1024).kv_tokens == 0
    assert 55e3 < memory(old, 8192, 1024, 0.95).kv_tokens < 80e3
    assert memory(new, 8192, 1024, 0.95).kv_tokens > 200e3


def test_published_latencies_of_weight_only_formats():
    """Llama-3.1-8B on H100; the two rows of one sequence gave the time of a call."""
    entries = evaluate([PUBLISHED / "vllm_weight_only.csv"]).entries
    found = {entry.case.case_id: entry.relative_error for entry in entries}
    assert len(found) == 12
    assert max(map(abs, found.values())) < 0.12


@pytest.mark.parametrize(("model", "gibibytes"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_blocks_of_32_store_as_much_as_the_published_checkpoints(model, gibibytes):
    """Sizes of OpenAI's checkpoints (arXiv 2508.10925, table 1)."""
    price = StepPrice(models.get(model), usual_cluster("h100-sxm"), Pool(), engines.get("vllm-0.15"))
    assert weight_bytes(price) / 2**30 == pytest.approx(gibibytes, rel=0.01)


def test_marlin_gains_on_an_a10_what_its_authors_measured():
    """3.87 times the speed up to 32 tokens, within 15 %, and 1 to 2 times at 128: products of 18,432 x 73,728
    on an A10 (IST-DASLab/marlin)."""
    cluster = usual_cluster("a10g")
    # An A10 has the memory of an A10G and 125 TFLOP/s.
    device = cluster.device.model_copy(update={"peak_flops": {"bf16": 125e12}})
    formats = WeightFormats.of(models.get("llama2-7b"), cluster, "int4", "bf16")
    engine = engines.get("vllm-0.19")
    parameters = np.array(18432.0 * 73728.0)
    for tokens, low, high in ((1, 3.29, 4.45), (16, 3.29, 4.45), (32, 3.29, 4.45), (128, 1.0, 2.0)):
        flops = 2.0 * tokens * parameters
        wide = np.asarray(device.kernels.gemm(float(tokens), 73728.0, 18432.0, dtype="bf16"))
        narrow = widened_product(formats, device, wide, parameters, flops, engine)
        assert low < float(wide / narrow) < high, tokens
