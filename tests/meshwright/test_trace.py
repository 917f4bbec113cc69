"""`meshwright simulate --trace`: what Perfetto and Holistic Trace Analysis are given."""

import gzip
import json

import pytest


def read(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def spans(document, thread=None):
    """Events of kernels and collectives; of one stream, if named."""
    events = document["traceEvents"]
    names = {
        (each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"
    }
    return [
        each
        for each in events
        if each.get("cat") == "kernel" and thread in (None, names[each["pid"], each["tid"]])
    ]


@pytest.fixture
def traced(run, scenario, tmp_path):
    """Simulate the small scenario with a trace; returns the report, and the trace."""

    def traced(*replaced):
        path = tmp_path / "step.json.gz"
        ran = run("simulate", str(scenario(*replaced)), "--json", "--trace", str(path))
        assert ran.code == 0, ran.err
        assert str(path) in ran.err
        return json.loads(ran.out), read(path)

    return traced


def test_the_trace_lasts_as_long_as_the_step_and_computes_as_long(traced):
    report, document = traced()
    engine = report["engine"]
    ends = [each["ts"] + each["dur"] for each in spans(document)]
    assert max(ends) == pytest.approx(1e6 * engine["step_time_s"], rel=1e-6)
    for rank in engine["ranks"]:
        computed = sum(each["dur"] for each in spans(document, "compute") if each["pid"] == rank["rank"])
        assert computed == pytest.approx(1e6 * rank["busy_s"]["compute"], rel=1e-3)


def test_kernels_are_events_of_their_own_and_collectives_are_named_as_nccl_does(traced):
    _, document = traced(("tensor: 2", "tensor: 2, sequence_parallel: true"))
    names = {each["name"] for each in spans(document, "compute")}
    assert {"forward layer 0 gemm", "backward layer 15 attention", "optimizer"} <= names
    for stream in ("tensor", "pipeline", "data"):
        sent = spans(document, stream)
        assert sent
        assert all(each["name"].startswith("nccl") for each in sent)


def test_collectives_send_no_more_than_the_links_carry_and_memory_peaks_as_reported(traced):
    report, document = traced(("gpus: 16", "gpus: 32"), ("tensor: 2", "tensor: 8, sequence_parallel: true"))
    capacity = {"nvlink": 300e9, "network": 25e9}
    sent = [each for each in spans(document) if "bytes" in each["args"]]
    assert {level for each in sent for level in each["args"]["bytes"]} == set(capacity)
    for each in sent:
        for level, size in each["args"]["bytes"].items():
            assert size <= 1.001 * capacity[level] * each["dur"] / 1e6
    counters = {}
    for each in document["traceEvents"]:
        if each["ph"] == "C":
            counters.setdefault(each["name"], []).extend(each["args"].values())
    assert {"nvlink bytes/s", "network bytes/s"} <= set(counters)
    peak = max(rank["peak_memory_bytes"] for rank in report["engine"]["ranks"])
    assert max(counters["memory"]) == pytest.approx(peak, rel=1e-6)


def test_into_a_folder_goes_one_file_a_rank(run, scenario, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    assert run("simulate", str(scenario()), "--trace", str(folder)).code == 0
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["rank-0.json.gz", "rank-1.json.gz"]
    for rank, path in enumerate(files):
        assert read(path)["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 2}


def test_holistic_trace_analysis_reads_it(run, scenario, tmp_path):
    hta = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed")
    report = json.loads(run("simulate", str(scenario()), "--trace", str(tmp_path), "--json").out)
    found = hta.TraceAnalysis(trace_dir=str(tmp_path)).get_temporal_breakdown(visualize=False)
    assert list(found["rank"]) == [0, 1]
    for rank, percentage in zip(report["engine"]["ranks"], found["compute_time_pctg"], strict=True):
        computed = 100 * rank["busy_s"]["compute"] / report["engine"]["step_time_s"]
        assert percentage == pytest.approx(computed, abs=0.5)


def test_a_trace_that_cannot_be_written_is_one_message_after_the_figures(run, scenario, tmp_path):
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file" / "step.json.gz"
    ran = run("simulate", str(scenario()), "--trace", str(path), "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["step_time_s"] > 0
    assert ran.err.strip().splitlines()[-1].startswith(f"error: {path}: ")
    assert "Not a directory" in ran.err


def test_a_new_name_without_an_ending_is_a_folder(run, scenario, tmp_path):
    ran = run("simulate", str(scenario()), "--trace", str(tmp_path / "traces"))
    assert ran.code == 0, ran.err
    assert [path.name for path in sorted((tmp_path / "traces").iterdir())] == [
        "rank-0.json.gz",
        "rank-1.json.gz",
    ]


def test_a_trace_of_another_ending_is_refused_before_anything_runs(refused, scenario, tmp_path):
    message = refused("simulate", str(scenario()), "--trace", str(tmp_path / "step.txt"))
    assert "--trace" in message
    assert "step.txt" in message
    assert "FILE.json.gz" in message
