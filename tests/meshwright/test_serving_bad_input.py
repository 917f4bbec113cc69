"""Numbers, logs and tables of serving questions that cannot be: one message, no traceback, no file."""

import json
from pathlib import Path

import pytest
import yaml

from tests.examples import PEAK_THROUGHPUT

SMALL = """
model: llama3.1-8b
cluster: dgx-h100
workload: {kind: serving, requests: 20, arrivals: %s, input: %s, output: 8}
deployment: {engine: vllm-0.19, options: {max_context: 2048, token_budget: 512%s}%s}
"""


@pytest.fixture
def scenario(tmp_path):
    """Write a small scenario with some parts replaced."""

    def scenario(arrivals="{kind: burst}", lengths="100", options="", deployment=""):
        path = tmp_path / "serving.yaml"
        path.write_text(SMALL % (arrivals, lengths, options, deployment), encoding="utf-8")
        return str(path)

    return scenario


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arrivals": "{kind: poisson, rate: 1000000000000}"}, "rate: must be"),
        ({"arrivals": "{kind: uniform, rate: 1.0e-20}"}, "rate: must be"),
        ({"arrivals": "{kind: piecewise, period: 5, rates: [0, 0]}"}, "rates: one of at least"),
        ({"arrivals": "{kind: gamma, rate: 1, cv: 1000000}"}, "cv: must be"),
        ({"arrivals": "{kind: closed, concurrency: 1000000000000000}"}, "concurrency"),
        ({"lengths": "{kind: lognormal, median: 100, sigma: 1000}"}, "sigma"),
        ({"lengths": "1000000000000000"}, "tokens"),
        ({"options": ", block_tokens: 1000000000"}, "block_tokens"),
        ({"options": ", max_sequences: 1000000000"}, "max_sequences"),
        ({"deployment": ", replicas: 1000000000000"}, "replicas"),
        ({"deployment": ", scaler: reactive, scaler_options: {interval: 1.0e-12}"}, "interval"),
        ({"deployment": ", pools: [{role: mixed, options: [1]}]"}, "pools.0.options: a mapping is needed"),
        ({"deployment": ", speculation: {draft: gpt2, tokens: 2, acceptance: 3}"}, "acceptance"),
        ({"deployment": ", speculation: {draft: [gpt2], tokens: 2, acceptance: 0.5}"}, "speculation.draft"),
    ],
    ids=lambda one: "" if isinstance(one, str) else " ".join(one.values()),
)
def test_numbers_beyond_their_range_are_refused(refused, scenario, changes, told):
    assert told in refused("simulate", scenario(**changes))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("plain", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n3,5,5\n1,5,5\n", "before the one"),
        ("plain", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,1e300\n", "a whole number is needed"),
        ("plain", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5," + "9" * 30 + "\n", "at most"),
        ("plain", "arrived_at,num_prefill_tokens,num_decode_tokens\n5e11,5,5\n", "time in another unit"),
        ("mooncake", '{"timestamp": ' + "9" * 5000 + "}\n", "not valid JSON"),
        ("mooncake", "[" * 100_000 + "\n", "not valid JSON"),
        ("mooncake", "\x00\ud7ff{", "not valid JSON"),
        ("benchmark", '{"input_lens": [5], "output_lens": [5], "start_times": ["x"]}\n', "start_times"),
        ("sharegpt", '[{"conversations": [{"value": 3}, 5]}]', "entry 0"),
        ("burstgpt", "Timestamp;Request tokens;Response tokens\n1;2;3\n", "'Timestamp' is missing"),
    ],
    ids=lambda one: one[:12],
)
def test_broken_request_logs_name_file_and_place(refused, tmp_path, name, text, told):
    (tmp_path / "log").write_bytes(text.encode("utf-8", "surrogatepass"))
    path = tmp_path / "replay.yaml"
    workload = (
        f"{{kind: serving, requests: 3, arrivals: {{kind: burst}}, trace: {{format: {name}, path: log}}}}"
    )
    if name == "plain":
        workload = "{kind: serving, requests: 3, trace: {format: plain, path: log}}"
    options = "{options: {max_context: 2048, token_budget: 512}}"
    text = f"model: llama3.1-8b\ncluster: dgx-h100\nworkload: {workload}\ndeployment: {options}\n"
    path.write_text(text, encoding="utf-8")
    message = refused("simulate", str(path))
    assert told in message
    assert "log" in message


def test_compressed_logs_that_are_cut_off_are_refused(refused, tmp_path):
    (tmp_path / "log.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x4b")
    workload = "{kind: serving, requests: 3, trace: {format: plain, path: log.gz}}"
    path = tmp_path / "replay.yaml"
    path.write_text(f"model: gpt2\ncluster: dgx-h100\nworkload: {workload}\n", encoding="utf-8")
    assert "cannot be read" in refused("simulate", str(path))


META = "run,file,max_num_seqs,max_num_batched_tokens,arrival,engine,model,gpu,weight_precision\n"
RUN = "one,requests.csv,128,2048,poisson,vllm,meta-llama/Llama-3.1-8B,h100-sxm,bf16\n"
HEAD = "arrival_s,input_tokens,output_tokens,queued_s,first_token_s,last_token_s\n"


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ("arrival_s,input_tokens\n0,5\n", "'output_tokens' is missing"),
        (HEAD + "0,5,x,0,1,2\n", "line 2: column 'output_tokens'"),
        (HEAD + "0,5,5,0,1,2\n", "1 requests; more than 1 are needed"),
        (HEAD + "4,5,5,4,5,6\n0,5,5,0,1,2\n", "arrives before"),
        (HEAD + "nan,5,5,4,5,6\n", "at least 0 is needed"),
    ],
)
def test_measured_requests_are_checked(refused, tmp_path, requests, told):
    (tmp_path / "meta.csv").write_text(META + RUN, encoding="utf-8")
    (tmp_path / "requests.csv").write_text(requests, encoding="utf-8")
    assert told in refused("validate", "--serving", str(tmp_path / "meta.csv"))


def test_rates_of_stages_are_numbers(refused, tmp_path):
    path = tmp_path / "stages.csv"
    head = "stage,rate_req_s,system_prompt_tokens,question_tokens,output_tokens,model,gpu,precision\n"
    path.write_text(head + "0,6+x,100,100,100,Qwen/Qwen3-14B,h100-sxm,fp16\n", encoding="utf-8")
    assert "rate_req_s" in refused("validate", "--serving", str(path))


def test_sizes_beyond_any_server_are_skipped(run, tmp_path):
    path = tmp_path / "meta.csv"
    path.write_text(META + RUN.replace("128,2048", "128,900000000"), encoding="utf-8")
    rows = "".join(f"{at},50,8,{at},{at}.1,{at}.5\n" for at in range(3))
    (tmp_path / "requests.csv").write_text(HEAD + rows, encoding="utf-8")
    report = json.loads(run("validate", "--serving", str(path), "--json").out)
    assert "token_budget" in report["skipped"][0]["reason"]


SERVE = ["plan", "serve", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "1", "--osl", "20"]


@pytest.mark.parametrize(
    ("flags", "told", "code"),
    [
        (["--isl", "100", "--ttft", "1", "--fix", "replicas=2"], "no replica count", 1),
        (["--isl", "100", "--ttft", "1", "--fix", "weights=fp9"], "did you mean 'fp8'", 2),
        (["--isl", "100", "--ttft", "1", "--fix", "max_sequences=65536"], "above the token budget", 2),
        (["--isl", "100", "--ttft", "1", "--limit", "weights=fp8"], "no order", 2),
        (["--isl", "200000", "--ttft", "1"], "longer than the 131,072", 2),
        (["--isl", "100", "--ttft", "1", "--top", "0"], "--top", 2),
        (["--isl", "100", "--ttft", "1", "--rank", "2"], "which plan --save writes", 2),
        (["--isl", "100", "--ttft", "1", "--rank", "7", "--save", "x.yaml"], "a higher --top", 2),
        (["--isl", "100", "--ttft", "1", "--precision", "fp8"], "--fix weights=fp8", 2),
        (["--isl", "100", "--ttft", "1", "--price", "2"], "--cluster dgx-h100=8@2.5", 2),
    ],
)
def test_impossible_deployments_are_refused(refused, flags, told, code):
    assert told in refused(*SERVE, *flags, code=code)


def test_engine_figures_have_bounds(refused, scenario, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nengine: vllm\nversion: '1'\nbased_on: vllm-0.15\n"
        "step_s: {value: -3, kind: assumed, source: x}\n"
        "times: [{layers: dense, format: 16-bit, layer_s: 0, sequence_s: 0, kind: assumed, source: x}]\n",
        encoding="utf-8",
    )
    path = scenario()
    text = (tmp_path / "serving.yaml").read_text(encoding="utf-8")
    (tmp_path / "serving.yaml").write_text(text.replace("vllm-0.19", "./mine.yaml"), encoding="utf-8")
    assert "step_s.value: a number from 0 to 60" in refused("simulate", path)


def test_a_file_that_cannot_be_written_leaves_no_other(refused_after_tables, scenario, tmp_path):
    there = tmp_path / "requests.csv"
    refused_after_tables("simulate", scenario(), "--requests", str(there), "--html", "/dev/null/page.html")
    assert not there.exists()


def test_requests_that_no_replica_holds_are_reported(refused, scenario):
    message = refused("simulate", scenario(options=", kv_blocks: 1"), code=1)
    assert "all 20 requests are longer than the 16 tokens" in message
    draft = ", speculation: {draft: llama3.1-70b, tokens: 3, acceptance: 0.7}"
    assert "is larger than its target" in refused("simulate", scenario(deployment=draft))
    full = ", speculation: {kind: eagle, layers: 1000}"
    assert "leaves no room for KV" in refused("simulate", scenario(deployment=full), code=1)


HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens\n"


def test_a_trace_without_requests_or_too_short_for_its_percentile_is_refused(refused, tmp_path):
    path, log = tmp_path / "replay.yaml", tmp_path / "log.csv"
    workload = "{kind: serving, trace: {format: plain, path: log.csv}, slo: {ttft: 1, share: 0.99}}"
    path.write_text(
        f"model: llama3.1-8b\ncluster: dgx-h100\ngpus: 1\nworkload: {workload}\n", encoding="utf-8"
    )
    log.write_text(HEADER, encoding="utf-8")
    assert "no request: the trace is empty" in refused("simulate", str(path))
    log.write_text(HEADER + "0,100,10\n1,100,10\n", encoding="utf-8")
    assert "has 2 requests; 99 % of them rest on at least 100" in refused("plan", str(path))
    log.write_text(HEADER + "0,100,10\n3,100,10\n1,100,10\n", encoding="utf-8")
    assert "log.csv: line 4: request 3 arrives" in refused("simulate", str(path))


@pytest.mark.parametrize("watts", ["nan", "inf", "0", "-5"])
def test_power_of_a_mix_is_a_number(refused, watts):
    flags = ["--isl", "1000", "--osl", "200", "--rate", "5", "--ttft", "1", "--watts", watts]
    assert "watts" in refused("plan", "mix", "--model", "llama3.1-8b", "--types", "l4,h100-sxm", *flags)


def test_equal_replicas_of_a_closed_loop_end_their_steps_together(run, scenario):
    path = scenario(arrivals="{kind: closed, concurrency: 16}", deployment=", replicas: 4")
    text = Path(path).read_text(encoding="utf-8").replace("requests: 20", "requests: 500")
    Path(path).write_text(text, encoding="utf-8")
    assert json.loads(run("simulate", path, "--json").out)["requests"] == 500


def test_thousands_of_refusals_in_a_row_are_an_answer(refused, scenario):
    path = scenario(arrivals="{kind: closed, concurrency: 2}", options=", kv_blocks: 1")
    text = Path(path).read_text(encoding="utf-8").replace("requests: 20", "requests: 5000")
    Path(path).write_text(text, encoding="utf-8")
    assert "all 5,000 requests are longer" in refused("simulate", path, code=1)


def test_long_runs_say_how_long_they_take():
    from meshwright.jobs.serving import run_notice

    assert run_notice(1000) is None
    assert "1,000,000 requests take about 50 s" in (run_notice(1_000_000) or "")


def test_progress_counts_requests_that_ended(scenario):
    from simulator.serving.fleet.replayed import LOOPS, run_as
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    data = yaml.safe_load(Path(scenario()).read_text(encoding="utf-8"))
    data["workload"]["requests"] = 1200
    told = []
    with run_as(LOOPS):
        serve(make_serving(data, "scenario", Path()), told.append)
    assert told == pytest.approx([500 / 1200, 1000 / 1200])


def test_a_measured_row_without_its_batch_is_skipped(run, tmp_path):
    rows = ({**PEAK_THROUGHPUT, "batch": batch} for batch in (512, ""))
    lines = [",".join(PEAK_THROUGHPUT), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "tables.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    ran = run("validate", "--serving", str(tmp_path / "tables.csv"), "--json")
    assert "batch not stated" in ran.out
