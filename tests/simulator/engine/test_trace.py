"""Traces: what Perfetto and Holistic Trace Analysis need, byte by byte the same."""

import gzip
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.from_times import from_times
from core.errors import InputError
from simulator.engine.trace import write_trace
from simulator.schedules import PipelineTimes, schedules
from simulator.training.step_graph import Attached, StreamWork, run
from simulator.training.step_graph.step import LinkDemand
from simulator.training.step_graph.streams import DATA

TIMES = PipelineTimes.of_equal(4, 8, 2, (1.1, 1.0, 1.2), (2.0, 1.9, 2.4), 0.05, True)


@pytest.fixture(scope="module")
def timeline():
    program = from_times(schedules["pipeoffload"], TIMES, offload_seconds=0.1)
    bucket = (
        Attached(0, StreamWork("reduce <b>x</b>", 0.3, DATA, load=LinkDemand(sent=(("network", 6e8),)))),
    )
    return run(replace(program, work=tuple(replace(each, reductions=bucket) for each in program.work)))


@pytest.fixture(scope="module")
def document(timeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "step.json.gz"
    write_trace(timeline, path)
    return json.loads(gzip.decompress(path.read_bytes()))


def test_every_task_that_took_time_is_there_once(timeline, document):
    spans = [event for event in document["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy")]
    assert len(spans) == int((timeline.ends > timeline.starts).sum())
    assert sum(event["dur"] for event in spans) == pytest.approx(
        float((timeline.ends - timeline.starts).sum()) * 1e6, rel=1e-6
    )


def test_complete_events_have_what_readers_require(document):
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= event.keys()
            assert event["ts"] >= 0 and event["dur"] >= 0
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    assert all({"stream", "device", "correlation"} <= event["args"].keys() for event in kernels)
    assert len({event["args"]["correlation"] for event in kernels}) == len(kernels)
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 0, "world_size": 4}


def test_spans_of_a_thread_do_not_overlap(document):
    threads = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    for spans in threads.values():
        for (start, duration), (following, _) in pairwise(sorted(spans)):
            assert following >= start + duration - 0.002


def test_communication_copies_and_steps_go_by_the_names_that_analysis_looks_for(document):
    names = {event["name"] for event in document["traceEvents"] if event["ph"] == "X"}
    assert "ncclDevKernel_reduce <b>x</b>" in names
    assert any(name.startswith("Memcpy DtoH") for name in names)
    assert any(name.startswith("Memcpy HtoD") for name in names)
    assert "ProfilerStep#0" in names
    labels = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert {"compute", "pipeline", "data", "to host", "from host"} <= labels


def test_counters_show_memory_and_links(timeline, document):
    memory = [
        event
        for event in document["traceEvents"]
        if event["ph"] == "C" and event["name"] == "memory" and event["pid"] == 2
    ]
    assert [event["ts"] for event in memory] == sorted(event["ts"] for event in memory)
    assert max(event["args"]["bytes"] for event in memory) <= round(timeline.peak_memory(2)) + 1
    network = [
        event["args"]["bytes/s"] for event in document["traceEvents"] if event["name"] == "network bytes/s"
    ]
    assert max(network) == 2_000_000_000 and network[-1] == 0


def test_one_rank_a_file(timeline, tmp_path):
    path = tmp_path / "rank3.json"
    write_trace(timeline, path, ranks=[3])
    document = json.loads(path.read_text())
    assert re.search(r'"rank":\s+(\d+)', path.read_text())[1] == "3"
    assert {event["pid"] for event in document["traceEvents"]} == {3}
    assert document["distributedInfo"]["rank"] == 3


def test_the_same_timeline_gives_the_same_bytes(timeline, tmp_path):
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    write_trace(timeline, first)
    write_trace(timeline, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_file_that_cannot_be_written_is_one_clear_message(timeline, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(InputError, match=r"step.json: cannot be written \(Not a directory\)"):
        write_trace(timeline, file / "step.json")
    target = tmp_path / "folder.json"
    target.mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(timeline, target)
    assert sorted(tmp_path.iterdir()) == [file, target]
