"""Constants that take a large part of predicted steps are named."""

from evidence.serving.case import MeasuredRow
from evidence.serving.closed_loop import read
from evidence.serving.shares import constant_shares

ROW = {
    "case_id": "one",
    "harness": "aic",
    "engine": "vllm",
    "engine_version": "0.12.0",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "h100-sxm",
    "tp": "1",
    "weight_precision": "bf16",
    "isl_tokens": "128",
    "osl_tokens": "128",
    "concurrency": "8",
    "tpot_ms_mean": "8",
}


def case(**changes):
    return read(MeasuredRow({**ROW, **changes}, "row"), "closed_loop.csv")


def test_shares_of_all_constants_leave_time_to_kernels():
    shares = constant_shares([case()], least=0.0)
    assert {one.constant for one in shares} >= {"layer_s", "sequence_s"}
    assert 0.0 < sum(one.share for one in shares) < 0.5


def test_the_time_a_sequence_takes_over_with_the_batch():
    few, many = (
        {one.constant: one.share for one in constant_shares([case(concurrency=str(n))], least=0.0)}
        for n in (1, 256)
    )
    assert many["sequence_s"] > 10 * few["sequence_s"]
    assert many["layer_s"] < few["layer_s"]


def test_only_large_shares_are_named_and_flagged_rows_count_nowhere():
    assert constant_shares([case()], least=0.9) == []
    assert constant_shares([case(flag="slow_server")], least=0.0) == []
