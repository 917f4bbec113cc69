# ruff: noqa: E501 - the log of nccl-tests is as wide as it is
"""`meshwright profile`: measures on this CPU, reads others' logs, and refuses what cannot be measured."""

import json

import pytest
import torch

NCCL_LOG = """\
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
# Using devices
#  Rank  0 Group  0 Pid 1 on node0 device  0 [0x07] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    41.27   25.41   44.47      0    41.10   25.51   44.64      0
     2097152        524288     float     sum      -1    52.10   40.25   70.44      0    52.00   40.33   70.58      0
"""


def test_it_measures_and_does_not_measure_twice(run, tmp_path):
    again = ["profile", "--device", "cpu", "-o", str(tmp_path), "--operations", "embedding", "--json"]
    first, second = (json.loads(run(*again).out) for _ in range(2))
    assert first["measured"] == first["planned"] > 0
    assert (second["measured"], second["resumed"]) == (0, first["planned"])
    assert (tmp_path / "elementwise.csv").is_file()
    assert (tmp_path / "provenance.yaml").is_file()


def test_it_reads_a_log_of_nccl_tests(run, tmp_path):
    log = tmp_path / "all_reduce.log"
    log.write_text(NCCL_LOG, encoding="utf-8")
    ran = run("profile", "--import", str(log), "--name", "dgx-h100", "-o", str(tmp_path / "out"), "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["kept"], report["read"]) == ({"collectives": 2}, {"nccl-tests": 1})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "tpu"], ["tpu"]),
        (["--device", "cpu", "--dtypes", "fp9"], ["--dtypes", "fp9"]),
        (["--device", "cpu", "--operations", "gem"], ["unknown operation", "'gemm'"]),
        (["--import", "nothing.log"], ["nothing.log", "no such file"]),
        (["--device", "cpu", "--collectives", "1"], ["1"]),
    ],
)
def test_what_cannot_be_measured_is_refused_and_nothing_is_written(refused, tmp_path, arguments, words):
    out = tmp_path / "points"
    message = refused("profile", *arguments, "-o", str(out))
    for word in words:
        assert word in message
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_no_cuda_is_said(refused, tmp_path):
    assert "no CUDA here" in refused("profile", "-o", str(tmp_path / "points"))
