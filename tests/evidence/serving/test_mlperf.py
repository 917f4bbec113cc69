"""MLPerf rows: limits, degrees, devices and engines that rows leave to the rules of the benchmark."""

import pytest

from evidence.serving.case import MeasuredRow
from evidence.serving.collection import read_case
from evidence.serving.mlperf import predict

ROW = {
    "case_id": "one",
    "round": "v5.1",
    "accelerator": "NVIDIA H100-SXM-80GB",
    "gpu": "h100-sxm",
    "n_gpus": "8",
    "framework": "TensorRT 10.11, CUDA 12.9",
    "model": "meta-llama/Llama-2-70b-chat-hf",
    "benchmark": "llama2-70b-99",
    "scenario": "Offline",
    "realised_output_tokens": "292",
    "out_tok_s": "30000",
}


def question(**changes):
    return read_case("mlperf", MeasuredRow({**ROW, **changes}, "row"), "mlperf.csv").question


def test_rows_without_limits_have_those_of_their_scenario():
    interactive, server = question(scenario="Interactive"), question(scenario="Server")
    assert (interactive.load.ttft_s, interactive.load.tpot_s) == (0.45, 0.04)
    assert (server.load.ttft_s, server.load.tpot_s) == (2.0, 0.2)
    assert question(scenario="Server", tpot_limit_ms="150").load.tpot_s == pytest.approx(0.15)


def test_a_server_card_has_its_own_bandwidth():
    card = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    found = question(gpu="rtx-pro-6000", accelerator=card).serving.cluster.device
    assert found.name == "rtx-pro-6000-server"


def test_rounds_before_v5_have_no_pipelines():
    stages = {each.pool.pipeline for each in question(round="v4.1").setups}
    assert stages == {1}
    assert {each.pool.pipeline for each in question().setups} == {1, 2, 4}


@pytest.mark.parametrize(
    ("framework", "engine"),
    [
        ("vLLM 0.4.3+rocm614, PyTorch 2.3.0", "vllm-0.10"),
        ("vLLM 0.6.5.dev964+mlperf50, Pytorch 2.7.0", "vllm-0.10"),
        ("vLLM 0.10.0, RHEL 9.6", "vllm-0.10"),
    ],
)
def test_forks_of_amd_have_the_kernels_of_later_versions(framework, engine):
    found = question(gpu="mi300x", accelerator="AMD Instinct MI300X", framework=framework)
    assert found.serving.engine.name == engine


def test_tighter_limits_cost_throughput():
    rates = [
        predict([question(scenario=name)])[0]["out_tok_s"] for name in ("Offline", "Server", "Interactive")
    ]
    assert rates[0] >= rates[1] > rates[2] > 0


@pytest.mark.parametrize(
    ("model", "benchmark", "prompt"),
    [
        ("meta-llama/Llama-3.1-405B-Instruct", "llama3.1-405b", 9428.6),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", 427.4),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1", 803.8),
    ],
)
def test_other_benchmarks_have_their_own_lengths(model, benchmark, prompt):
    found = question(model=model, benchmark=benchmark, gpu="h200-sxm", realised_output_tokens="")
    assert found.load.prompt == prompt
    assert found.load.variation > 0.0


def test_models_with_experts_may_spread_attention():
    spread = {each.pool.data for each in question(model="deepseek-ai/DeepSeek-R1", gpu="h200-sxm").setups}
    assert spread == {1, 2, 4, 8}
    assert {each.pool.data for each in question().setups} == {1}
    (answer,) = predict([question(model="deepseek-ai/DeepSeek-R1", gpu="h200-sxm")])
    assert answer["out_tok_s"] > 1000.0
