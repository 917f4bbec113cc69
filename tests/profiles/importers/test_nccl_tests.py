"""nccl-tests logs: the printed table of several versions, and JSON."""

import json

import pytest

from core.errors import InputError
from profiles import points
from profiles.importers import ImportOptions, import_points

LOG = """\
# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid  31001 on gpu-node-01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  31002 on gpu-node-01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  41001 on gpu-node-02 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  41002 on gpu-node-02 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576  262144     float     sum    -1    55.12   19.02   28.53      0    54.90   19.10   28.65      0
   134217728 33554432     float     sum    -1   2410.6   55.68   83.52      0   2405.9   55.79   83.68      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 56.0955
"""

OLD_LOG = """\
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# Using devices
#   Rank  0 Pid  16612 on      dgx1 device  0 [0x06] Tesla V100-SXM2-16GB
#   Rank  1 Pid  16612 on      dgx1 device  1 [0x07] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256    half              9.51    0.11    0.11  0e+00     9.40    0.11    0.11  0e+00
"""


def read(path, out, **options):
    result = import_points(path, out, options=ImportOptions(**options))
    return result, list(points.read(result.files["collectives"]).rows())


def test_log_of_two_nodes(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(LOG)
    result, rows = read(log, tmp_path / "out")
    assert result.read == {"nccl-tests": 1}
    first = {key: rows[0][key] for key in ("system", "op", "dtype", "n_gpus", "n_nodes", "bytes", "time_us")}
    assert first == {
        "system": "h100-sxm",
        "op": "all_reduce",
        "dtype": "fp32",
        "n_gpus": 4,
        "n_nodes": 2,
        "bytes": 1048576,
        "time_us": 55.12,
    }
    assert rows[1]["time_us"] == 2410.6
    assert rows[0]["source"] == "nccl-tests:nccl-2.27.7"


def test_old_log_needs_the_collective_from_its_name(tmp_path):
    log = tmp_path / "v100.txt"
    log.write_text(OLD_LOG.replace("half              ", "half     sum      "))
    with pytest.raises(InputError, match="which collective"):
        read(log, tmp_path / "out")
    named = log.rename(tmp_path / "all_gather_v100.txt")
    _, rows = read(named, tmp_path / "out")
    assert rows[0]["op"] == "all_gather"
    assert (rows[0]["system"], rows[0]["dtype"], rows[0]["n_gpus"]) == ("v100-16gb", "fp16", 2)
    assert rows[0]["time_us"] == 9.51


def test_json_and_log_of_one_run_agree(tmp_path):
    config = {"nthreads": 1, "ngpus": 2, "devices": [], "iterations": 20}
    for rank, host in enumerate(["gpu-node-01", "gpu-node-01", "gpu-node-02", "gpu-node-02"]):
        device = {"rank": rank, "group": 0, "hostname": host, "device_info": "NVIDIA H100 80GB HBM3"}
        config["devices"].append(device)
    results = [
        {
            "size": 1048576,
            "count": 262144,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 55.12, "alg_bw": 19.02, "bus_bw": 28.53, "nwrong": 0.0},
            "in_place": {"time": 54.9, "alg_bw": 19.1, "bus_bw": 28.65, "nwrong": 0.0},
        }
    ]
    data = {
        "version": 2,
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1M"],
        "nccl_version": 22707,
    }
    document = tmp_path / "run.json"
    document.write_text(json.dumps({**data, "config": config, "results": results}))
    log = tmp_path / "run.log"
    log.write_text(LOG)
    _, from_json = read(document, tmp_path / "a")
    _, from_log = read(log, tmp_path / "b")
    assert from_json[0] == from_log[0]


def test_bad_time_is_named_with_its_line(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(LOG.replace("55.12", "-55.12"))
    with pytest.raises(InputError, match=r"run\.log: line 14, column time: .*-55\.12"):
        read(log, tmp_path / "out")


def test_cut_off_json(tmp_path):
    document = tmp_path / "run.json"
    document.write_text('{"version": 2, "nccl_version": 22707, "config": {')
    with pytest.raises(InputError, match="not valid JSON, perhaps cut off"):
        read(document, tmp_path / "out")


def test_faster_than_memory_is_dropped(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(LOG.replace("2410.6", "  2.41"))  # 100 MB in 2.4 us is 42 TB/s
    result, rows = read(log, tmp_path / "out")
    assert result.impossible == {"collectives": 1}
    assert [row["bytes"] for row in rows] == [1048576]


NAMED = LOG.replace("# Collective test starting: all_reduce_perf\n", "")


@pytest.mark.parametrize(
    "label",
    ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", "[pod/nccl-0/main] ", "node-a: ", "2025-03-01T10:00:00Z "],
)
def test_labels_of_launchers_are_dropped(tmp_path, label):
    log = tmp_path / "all_reduce.log"
    log.write_text("".join(f"{label}{line}\n" for line in NAMED.splitlines()))
    _, rows = read(log, tmp_path / "out")
    assert [(row["n_gpus"], row["n_nodes"], row["time_us"]) for row in rows] == [
        (4, 2, 55.12),
        (4, 2, 2410.6),
    ]


def test_the_bus_factor_of_a_sum_tells_the_collective(tmp_path):
    log = tmp_path / "run1.log"
    log.write_text(NAMED)
    assert {row["op"] for row in read(log, tmp_path / "out")[1]} == {"all_reduce"}
    log.write_text(NAMED.replace("28.53", "14.26").replace("83.52", "41.76"))
    assert {row["op"] for row in read(log, tmp_path / "out")[1]} == {"reduce_scatter"}


def test_a_command_line_in_the_log_tells_the_collective(tmp_path):
    log = tmp_path / "run1.log"
    log.write_text(
        "+ mpirun -np 4 ./build/alltoall_perf -b 1M -e 128M -f 128\n" + NAMED.replace(" sum ", " none")
    )
    assert {row["op"] for row in read(log, tmp_path / "out")[1]} == {"alltoall"}


def test_a_log_that_names_no_collective_asks_for_the_option(tmp_path):
    log = tmp_path / "run1.log"
    log.write_text(NAMED.replace(" sum ", " none"))
    with pytest.raises(InputError, match="--collective: all_reduce"):
        read(log, tmp_path / "out")
    assert {row["op"] for row in read(log, tmp_path / "out", collective="alltoall")[1]} == {"alltoall"}
    with pytest.raises(InputError, match="did you mean 'alltoall'"):
        read(log, tmp_path / "out", collective="alltoal")


@pytest.mark.parametrize("row", ["1e400   19.02", "nan   19.02", "-3   19.02"])
def test_a_time_that_none_can_be_is_refused_by_its_line(tmp_path, row):
    log = tmp_path / "all_reduce.log"
    log.write_text(LOG.replace("55.12   19.02", row))
    with pytest.raises(InputError, match="line 14"):
        read(log, tmp_path / "out")


RCCL_LOG = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 graph: 0
#
rccl-tests: Version develop:0123456
# Using devices
#  Rank  0 Group  0 Pid  71001 on amd-node-1 device  0 [0000:05:00] AMD Instinct MI300X
#  Rank  1 Group  0 Pid  71002 on amd-node-1 device  1 [0000:15:00] AMD Instinct MI300X
#  Rank  2 Group  0 Pid  71003 on amd-node-1 device  2 [0000:25:00] AMD Instinct MI300X
#  Rank  3 Group  0 Pid  71004 on amd-node-1 device  3 [0000:35:00] AMD Instinct MI300X
RCCL version : 2.27.7-develop:0123456
HIP version  : 7.0.51831-0123456789
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    76.26   13.75   20.63      0    76.43   13.72   20.58
"""
RECORD = {"numCycle": 0, "name": "AllReduce", "nodes": 2, "ranks": 16, "size": 1048576, "type": "half"}
RECORD |= {"redop": "sum", "time": 76.26, "algBw": 13.75, "busBw": 20.63, "wrong": "0"}


def test_logs_of_rccl_name_their_release(tmp_path):
    (tmp_path / "amd.log").write_text(RCCL_LOG)
    _, (row,) = read(tmp_path / "amd.log", tmp_path / "out")
    assert (row["system"], row["op"], row["n_gpus"]) == ("mi300x", "all_reduce", 4)
    assert row["time_us"] == 76.26 and row["source"] == "rccl-tests:rccl-2.27.7"


def test_records_of_rccl_need_the_device(tmp_path):
    path = tmp_path / "amd.json"
    path.write_text(json.dumps([{**RECORD, "inPlace": 0}, {**RECORD, "inPlace": 1}]))
    with pytest.raises(InputError, match="names no device: give --gpu"):
        read(path, tmp_path / "out")
    _, (row,) = read(path, tmp_path / "out", gpu="mi300x")
    assert (row["n_gpus"], row["n_nodes"], row["dtype"], row["bytes"]) == (16, 2, "fp16", 1048576)
    path.write_text(json.dumps([{**RECORD, "inPlace": 0, "busBw": None, "ranks": None}]))
    with pytest.raises(InputError, match="record 0: is no record of rccl-tests"):
        read(path, tmp_path / "out", gpu="mi300x")


def test_logs_indented_as_in_a_page(tmp_path):
    (tmp_path / "page.log").write_text("".join(f"    {line}\n" for line in LOG.splitlines()))
    _, rows = read(tmp_path / "page.log", tmp_path / "out")
    assert [row["time_us"] for row in rows] == [55.12, 2410.6]
