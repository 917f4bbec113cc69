"""Traces of torch.profiler: a real one of this machine, and a GPU's with kernels inside operations."""

import gzip
import json

import pytest

from core.errors import InputError
from profiles import points
from profiles.importers import ImportOptions, import_points


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A linear layer after attention, forward and backward, as torch records it here."""
    torch = pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    linear = torch.nn.Linear(96, 160)
    x = torch.randn(2, 32, 96, requires_grad=True)
    with torch.profiler.profile(record_shapes=True) as profiler:
        heads = x.view(2, 32, 3, 32).transpose(1, 2)
        attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        linear(attended.transpose(1, 2).reshape(2, 32, 96)).square().sum().backward()
    profiler.export_chrome_trace(str(path))
    return path


def rows_of(result, table):
    return list(points.read(result.files[table]).rows())


@pytest.mark.slow
def test_layouts_of_a_linear_layer(trace, tmp_path):
    found = rows_of(import_points(trace, tmp_path), "gemm")
    shapes = {row["layout"]: (row["m"], row["n"], row["k"]) for row in found}
    assert shapes == {"forward": (64, 160, 96), "dgrad": (64, 96, 160), "wgrad": (160, 96, 64)}
    assert {(row["gpu"], row["dtype"]) for row in found} == {("cpu", "fp32")}


def test_attention_both_ways(trace, tmp_path):
    found = rows_of(import_points(trace, tmp_path), "attention_prefill")
    assert {row["direction"] for row in found} == {"forward", "backward"}
    for row in found:
        assert (row["batch"], row["n_heads"], row["n_kv_heads"], row["head_dim"]) == (2, 3, 3, 32)
        assert (row["seq_q"], row["seq_kv"], row["kernel"]) == (32, 32, "sdpa")


def test_zipped_traces_are_the_same(trace, tmp_path):
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(trace.read_bytes()))
    plain = import_points(trace, tmp_path / "a", options=ImportOptions(gpu="cpu"))
    packed = import_points(zipped, tmp_path / "b", options=ImportOptions(gpu="cpu"))
    for table, path in plain.files.items():
        assert path.read_bytes() == packed.files[table].read_bytes()


def gpu_trace():
    """Two products and an all-reduce of 8 ranks on a GPU, as Kineto writes them."""
    dims, types = [[4096, 8192], [8192, 8192], [], []], ["c10::BFloat16", "c10::BFloat16"]
    inner = {"Input Dims": dims, "Input type": types, "Input Strides": [[8192, 1], [1, 8192]]}
    events = []
    for step, duration in enumerate((800.0, 900.0)):
        start = 1000.0 * step
        outer_id, inner_id = 10 * step + 1, 10 * step + 2
        outer = {"name": "aten::mm", "ts": start, "dur": 20.0, "args": {"External id": outer_id, **inner}}
        inside = {"name": "aten::out", "ts": start + 5, "dur": 9.0, "args": {"External id": inner_id}}
        events += [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, **event} for event in (inside, outer)]
        for identity, part in ((outer_id, 0.25), (inner_id, 0.75)):
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": part * duration}
            events.append({**kernel, "args": {"External id": identity, "device": 0}})
    for duration in (500.0, 350.0):
        sizes = {"In msg nelems": 16777216, "Out msg nelems": 16777216, "dtype": "BFloat16"}
        group = {
            "Collective name": "allreduce",
            "Group size": 8,
            "Process Group Ranks": "[0, 1, 2, 3, 8, 9, 10, 11]",
        }
        kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 0.0, "dur": duration}
        events.append({**kernel, "args": {**sizes, **group}})
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}


def test_kernels_inside_an_operation_are_its_time(tmp_path):
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(gpu_trace()))
    result = import_points(path, tmp_path / "out")
    (product,) = rows_of(result, "gemm")
    assert (product["gpu"], product["dtype"], product["layout"]) == ("h100-sxm", "bf16", "forward")
    assert product["time_us"] == 850.0  # median of both steps, kernels of both levels
    assert product["spread"] == pytest.approx(50 / 850, rel=1e-4)


def test_collectives_take_the_shortest_and_count_nodes(tmp_path):
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(gpu_trace()))
    result = import_points(path, tmp_path / "out", options=ImportOptions(devices_per_node=8))
    (point,) = rows_of(result, "collectives")
    assert (point["op"], point["n_gpus"], point["n_nodes"]) == ("all_reduce", 8, 2)
    assert (point["bytes"], point["time_us"]) == (2 * 16777216, 350.0)


def test_a_product_faster_than_the_peak_is_dropped(tmp_path):
    trace = gpu_trace()
    for event in trace["traceEvents"]:
        event["dur"] /= 10
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(trace))
    assert import_points(path, tmp_path / "out").impossible["gemm"] == 1


def test_a_trace_without_shapes(tmp_path):
    trace = gpu_trace()
    for event in trace["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match="record_shapes=True"):
        import_points(path, tmp_path / "out")


def test_a_cut_off_trace(trace, tmp_path):
    path = tmp_path / "cut.json"
    path.write_text(trace.read_text()[:2000])
    with pytest.raises(InputError, match="perhaps cut off"):
        import_points(path, tmp_path / "out", "kineto")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dur": [1]}, "dur: a time is needed, found [1]"),
        ({"ts": "soon"}, "ts: a time is needed, found 'soon'"),
        ({"args": [1]}, "args: a mapping is needed"),
        ({"args": {"External id": "x", "Input Dims": [[1]]}}, "External id: a number is needed"),
        ({"args": {"Group size": None}}, "Group size: a number is needed"),
        ({"dur": float("nan")}, "dur: a time is needed"),
    ],
)
def test_values_of_wrong_types_are_named(tmp_path, change, words):
    trace = gpu_trace()
    trace["traceEvents"][0] |= change
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match=r"traceEvents\.0") as caught:
        import_points(path, tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_event_that_is_no_mapping_is_named(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [7], "deviceProperties": "none"}))
    with pytest.raises(InputError, match=r"traceEvents\.0: a mapping is needed, found 7"):
        import_points(path, tmp_path / "out")


@pytest.mark.parametrize(
    "inputs",
    [
        {"Input Dims": [["x", "y"], ["y", "z"]], "Input type": ["c10::BFloat16"] * 2},
        {"Input Dims": [[0, 4], [4, 8]], "Input type": ["c10::BFloat16"] * 2},
        {"Input Dims": [[1e300, 4], [4, 8]], "Input type": ["c10::BFloat16"] * 2},
        {"Input Dims": [[4, 4], [4, 8]], "Input type": [1, 2]},
        {"Input Dims": {"a": 1}, "Input type": "x"},
        {"Input Dims": 7, "Input type": None},
    ],
)
def test_a_shape_that_is_none_is_no_point(tmp_path, inputs):
    trace = gpu_trace()
    before = import_points(write_trace(tmp_path, trace), tmp_path / "before").written
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "tid": [1]}
    trace["traceEvents"].append({**event, "args": {"External id": 1, **inputs}})
    assert import_points(write_trace(tmp_path, trace), tmp_path / "after").written == before


def write_trace(folder, trace):
    path = folder / "changed.json"
    path.write_text(json.dumps(trace))
    return path


def test_a_trace_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("profiles.importers.kineto.MOST_BYTES", 2**20)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2**22))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        import_points(path, tmp_path / "out")
