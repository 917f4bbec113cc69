"""Limits that TensorRT-LLM's benchmark sets, and the runs of its published tables."""

import pytest

from evidence.serving.case import MeasuredRow, Setup
from evidence.serving.collection import read_case
from evidence.serving.trtllm_bench import bench_limits
from evidence.serving.trtllm_tables import predict, predict_steady
from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool


def setup(model="llama3.1-8b", device="h200-sxm", **pool) -> Setup:
    engine = engines.get("tensorrt-llm-1.0")
    return Setup(models.get(model), usual_cluster(device), Pool(**pool), engine)


def row(**values):
    known = {
        "case_id": "x-1",
        "engine": "trtllm",
        "engine_version": "1.0",
        "kind": "max_throughput",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "h200-sxm",
        "weight_precision": "fp8",
        "num_requests": 1500,
        "input_tokens": 2048,
        "output_tokens": 2048,
        "out_tok_s": 1000,
    }
    return MeasuredRow({name: str(value) for name, value in {**known, **values}.items()}, "row")


def test_limits_are_rounded_up_by_their_size():
    """8 GB of weights leave 143 GB of 151; 64 KiB a token make room for 532 requests: 640 slots."""
    limits = bench_limits(setup(weights="fp8", kv="fp8"), 2048, 2048, 1.0)
    assert limits == (640, 2048)
    assert limits.graphs == (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 640)


def test_a_long_prompt_raises_the_budget_and_short_requests_meet_the_largest_batch():
    assert bench_limits(setup(weights="fp8", kv="fp8"), 20000, 2000, 1.0).tokens == 20000
    assert bench_limits(setup(weights="fp8", kv="fp8"), 128, 128, 1.0) == (4096, 8192)
    assert bench_limits(setup("llama3.1-70b", "h100-sxm", weights="fp8"), 20000, 2000, 1.0).batch == 64


def test_stages_of_a_pipeline_share_the_requests():
    whole = bench_limits(setup("llama3.1-70b", weights="fp8"), 1000, 1000, 1.0)
    staged = bench_limits(setup("llama3.1-70b", weights="fp8", pipeline=4), 1000, 1000, 1.0)
    assert whole.batch < 4 * staged.batch


@pytest.mark.parametrize("tables", [{}, {"weight_precision": "fp4", "gpu": "b200", "input_tokens": 128}])
def test_a_table_is_the_run_of_a_scenario_and_near_its_steady_state(tables):
    question = read_case("trtllm_tables", row(**tables), "trtllm_tables").question
    run = question.run()
    assert run is not None
    assert run.scenario["deployment"]["options"]["max_sequences"] == question.limits.batch
    ran, steady = predict([question])[0]["out_tok_s"], predict_steady([question])[0]["out_tok_s"]
    assert steady == pytest.approx(ran, rel=0.06)


def test_a_batch_of_an_engine_file_is_no_scenario():
    question = read_case(
        "trtllm_tables", row(kind="peak_throughput", engine_version="0.8.0", batch=64), "trtllm_tables"
    ).question
    assert question.run() is None
