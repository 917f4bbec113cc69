"""Results of benchmark clients: printed tables, further formats, large files, files of another model."""

import json

import pytest
import yaml

from core.errors import InputError
from meshwright.observations.lean_json import MOST_KEPT, read_lean
from meshwright.observations.server_results import is_servers, read_servers
from tests.meshwright.test_learn_servers import AIPERF, GUIDELLM, SERVER, bench

PRINTED = """INFO 01-01 server is ready
============ Serving Benchmark Result ============
Successful requests:                     40
Maximum request concurrency:             4
Benchmark duration (s):                  12.50
Total input tokens:                      28000
Total generated tokens:                  2400
Request throughput (req/s):              3.20
---------------Time to First Token----------------
Mean TTFT (ms):                          80.00
Median TTFT (ms):                        70.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.50
Median TPOT (ms):                        9.40
==================================================
"""
STAGE = {
    "load_summary": {"count": 40, "requested_rate": 2.0, "achieved_rate": 1.9},
    "successes": {
        "count": 40,
        "prompt_len": {"mean": 700.0, "median": 700},
        "output_len": {"mean": 60.0, "median": 60},
        "latency": {
            "time_to_first_token": {"mean": 0.08, "median": 0.07},
            "time_per_output_token": {"mean": 0.0095, "median": 0.0094},
        },
    },
    "failures": {"count": 0},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(SERVER))
    return tmp_path


def written(folder, value, name="results.json"):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_printed_table_is_read_as_its_file(folder):
    path = written(folder, PRINTED * 2, "server.log")
    assert is_servers(path)
    loads, skipped = read_servers(path)
    assert [load.measured["ttft_p50"] for load in loads] == [0.07, 0.07]
    assert loads[0].data["workload"]["arrivals"] == {"kind": "closed", "concurrency": 4}
    assert loads[0].data["workload"]["input"]["tokens"] == 700
    assert not skipped
    assert not is_servers(written(folder, "step: 1 loss: 2", "train.log"))


def test_a_stage_of_inference_perf_is_read(folder):
    (load,), _ = read_servers(written(folder, STAGE))
    assert load.data["workload"]["arrivals"] == {"kind": "poisson", "rate": 2.0}
    assert load.measured == {"ttft_mean": 0.08, "ttft_p50": 0.07, "tpot_mean": 0.0095, "tpot_p50": 0.0094}


def test_genai_perf_keeps_the_load_two_steps_down(folder):
    value = {**AIPERF, "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 4}}}}
    (load,), _ = read_servers(written(folder, value))
    assert load.data["workload"]["arrivals"] == {"kind": "closed", "concurrency": 4}


def test_entries_without_a_load_are_skipped_with_the_reason(folder):
    sweep = json.loads(json.dumps(GUIDELLM))
    throughput = {**sweep["benchmarks"][0], "config": {"strategy": {"type_": "throughput"}}}
    sweep["benchmarks"].insert(0, throughput)
    (load,), skipped = read_servers(written(folder, sweep))
    assert load.name.endswith(":2")
    assert skipped == [("results.json: result 1", "states neither a concurrency nor a rate")]
    sweep["benchmarks"].pop()
    with pytest.raises(InputError, match="neither a concurrency nor a rate"):
        read_servers(written(folder, sweep))


def test_lists_of_single_requests_are_not_kept(folder):
    count = 2000
    details = {
        "input_lens": [700] * count,
        "itls": [[0.009] * 300] * count,
        "generated_texts": ['a "quoted" ] text \\'] * count,
        "errors": [""] * count,
    }
    path = written(folder, {**details, **bench(4), "ttfts": [0.07] * count})
    assert path.stat().st_size > MOST_KEPT
    kept = json.loads(read_lean(path))
    assert kept == {**bench(4), **dict.fromkeys([*details, "ttfts"])}
    (load,), _ = read_servers(path)
    assert load.data["workload"]["input"]["tokens"] == 700


@pytest.mark.parametrize("text", ['{"itls": [[1, 2', '{"errors": "', '["ttfts', '{"requests": {"a": [}'])
def test_a_large_file_that_is_cut_off_is_refused(folder, text):
    with pytest.raises(InputError, match="neither JSON nor JSON Lines"):
        read_servers(written(folder, text))


def test_a_file_of_other_contents_may_not_be_large(folder):
    with pytest.raises(InputError, match="without the lists of single requests"):
        read_servers(written(folder, {"other": "x" * (MOST_KEPT + 1)}))


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-72B-Instruct", "somebody/unheard-of-70b", "llama3.1-70b"])
def test_a_result_of_another_model_is_refused(folder, name):
    with pytest.raises(InputError, match="is of the model"):
        read_servers(written(folder, bench(4, model_id=name)))


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "my-model", "unheard-of-8b", None])
def test_a_result_of_the_same_model_or_of_no_name_is_taken(folder, name):
    assert read_servers(written(folder, bench(4, model_id=name)))[0]


def test_a_run_has_as_many_requests_as_settle_its_means(folder):
    """A million requests took 109 CPU seconds."""
    million = json.loads(json.dumps(GUIDELLM))
    million["benchmarks"][0]["metrics"]["request_totals"] = {"successful": 2**20}
    (load,), _ = read_servers(written(folder, million))
    assert load.data["workload"]["requests"] == 20_000
    million["benchmarks"][0]["config"]["strategy"]["streams"] = 2**17
    with pytest.raises(InputError, match=r"states 131,072 clients; at most 65,536 are run"):
        read_servers(written(folder, million))


@pytest.mark.parametrize(("duration", "clients"), [("125.00", 1), ("12.50", 2), ("2.00", 13), ("0.70", 40)])
def test_a_table_without_load_counts_requests_in_flight(folder, duration, clients):
    """By Little's law: 40 requests of 0.64 s; in the last row they were sent at once."""
    unsaid = PRINTED.replace("Maximum request concurrency:             4\n", "").replace("12.50", duration)
    (load,), _ = read_servers(written(folder, unsaid, "server.log"))
    assert load.data["workload"]["arrivals"] == {"kind": "closed", "concurrency": clients}
