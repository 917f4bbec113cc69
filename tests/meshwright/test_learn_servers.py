"""Measured servers: result files of clients in, site out, answers that name it; a live server; bad input."""

from __future__ import annotations

import copy
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

import meshwright as mw
from meshwright.observations.server_results import read_servers
from tests.examples import AIPERF, GUIDELLM

SERVER = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "arrivals": {"kind": "closed", "concurrency": 1},
        "input": {"kind": "fixed", "tokens": 8},
        "output": {"kind": "fixed", "tokens": 8},
    },
    "deployment": {"engine": "vllm-0.19", "options": {"max_context": 2048, "max_sequences": 64}},
}


def bench(clients, **more):
    """A result as ``vllm bench serve`` and SGLang's ``bench_serving`` write it."""
    return {
        "request_rate": "inf",
        "max_concurrency": clients,
        "completed": 4 * clients,
        "total_input_tokens": 4 * clients * 700,
        "total_output_tokens": 4 * clients * 60,
        "mean_ttft_ms": 60.0 + 4 * clients,
        "median_ttft_ms": 55.0 + 4 * clients,
        "mean_tpot_ms": 9.0 + 0.05 * clients,
        "median_tpot_ms": 9.0 + 0.05 * clients,
        **more,
    }


@pytest.fixture
def results(tmp_path):
    """A function that writes results beside the server's scenario."""

    def write(*values, server=SERVER, name="results.jsonl"):
        if server is not None:
            (tmp_path / "plan.yaml").write_text(yaml.safe_dump(server))
        path = tmp_path / name
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return path

    return write


@pytest.mark.parametrize("value", [bench(4), AIPERF, GUIDELLM], ids=["bench", "aiperf", "guidellm"])
def test_clients_formats_state_the_same_load(results, value):
    (load,), skipped = read_servers(results(value))
    workload = load.data["workload"]
    assert workload["arrivals"] == {"kind": "closed", "concurrency": 4}
    assert workload["input"]["tokens"] == 700
    assert workload["output"]["tokens"] == 60
    assert load.learned_from == ["tpot_mean", "ttft_p50"]
    assert load.measured["ttft_p50"] == pytest.approx(0.0705, rel=0.02)
    assert load.measured["tpot_mean"] == pytest.approx(9.35e-3, rel=0.02)
    assert not skipped


def test_latencies_of_answers_without_content_are_left_out(results):
    """guidellm counts a request that streams no content as 0 ms."""
    silent = copy.deepcopy(GUIDELLM)
    metrics = silent["benchmarks"][0]["metrics"]
    metrics["time_to_first_token_ms"]["successful"]["min"] = 0.0
    (load,), _ = read_servers(results(silent))
    assert set(load.measured) == {"tpot_mean", "tpot_p50"}


@pytest.mark.slow
def test_a_site_of_a_server_changes_answers_that_name_it(run, results, tmp_path):
    path, site = results(bench(1), bench(16)), tmp_path / "site.yaml"
    shown = run("learn", str(path), "-o", str(site)).out
    assert "load left out" in shown
    assert "stays near its prior" in shown
    plan = tmp_path / "plan.yaml"
    plain, learned = (
        json.loads(run("simulate", str(plan), *more, "--json").out) for more in ((), ("--site", str(site)))
    )
    assert learned["site"] == str(path)
    assert "site" not in plain
    assert learned["tpot_s"] != plain["tpot_s"]
    ask = ["plan", "serve", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "1", "--isl", "700"]
    ask += ["--osl", "60", "--concurrency", "4", "--engine", "vllm-0.19"]
    saved = tmp_path / "saved.yaml"
    found = run(*ask, "--site", str(site), "--save", str(saved)).out
    assert "learned from" in found
    assert yaml.safe_load(saved.read_text())["deployment"]["site"]["source"] == str(path)
    changed = json.loads(run("whatif", str(plan), "--site", str(site), "--set", "seed=3", "--json").out)
    assert str(path) in json.dumps(changed)


@pytest.mark.slow
def test_sites_of_others_are_refused(refused, results, tmp_path):
    site = tmp_path / "site.yaml"
    mw.learn(results(bench(1))).save(site)
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump({**SERVER, "cluster": "dgx-a100-80gb"}))
    assert "device h100-sxm" in refused("simulate", str(plan), "--site", str(site))
    plan.write_text(yaml.safe_dump({**SERVER, "deployment": {"engine": "vllm-0.17"}}))
    assert "engine vllm-0.19" in refused("simulate", str(plan), "--site", str(site))
    ask = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "128"]
    assert "servers only" in refused("plan", *ask, "--site", str(site))
    old = yaml.safe_load(site.read_text()) | {"site_format": 0}
    site.write_text(yaml.safe_dump(old))
    plan.write_text(yaml.safe_dump(SERVER))
    assert "another version" in refused("simulate", str(plan), "--site", str(site))


@pytest.mark.slow
def test_bad_results_are_refused(refused, results):
    assert "there is none" in refused("learn", str(results(bench(1), server=None)))
    assert "is no result of" in refused("learn", str(results({"a": 1})))
    assert "neither a concurrency nor a rate" in refused(
        "learn", str(results({**AIPERF, "input_config": {}}))
    )
    assert "cannot both be right" in refused("learn", str(results(bench(4), bench(4, mean_tpot_ms=30.0))))
    assert "states no prompt tokens" in refused("learn", str(results(bench(4, total_input_tokens=0))))


@pytest.mark.parametrize("value", [10**400, -9.0, True, "9", [9], 1e300, 0])
def test_a_latency_that_is_no_number_is_not_learned_from(refused, results, value):
    latencies = dict.fromkeys(("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms"), value)
    assert "states neither TTFT nor TPOT" in refused("learn", str(results(bench(4, **latencies))))


def test_answers_of_one_token_have_no_time_per_token(refused, results):
    path = results(bench(4, total_output_tokens=16))
    assert "answers of one token" in refused("learn", str(path))


@pytest.mark.parametrize("deployment", ["abc", 5, [1]])
def test_a_deployment_that_is_no_mapping_is_refused(refused, results, deployment):
    path = results(bench(4))
    path.with_name("plan.yaml").write_text(yaml.safe_dump({**SERVER, "deployment": deployment}))
    assert "deployment: must be" in refused("learn", str(path))


@pytest.mark.parametrize("text", ["[" * 3000, "{'a': 1}", "9" * 5000, ""])
def test_results_that_are_no_json_are_refused(refused, results, text):
    path = results(bench(4))
    path.write_text(text)
    assert refused("learn", str(path)).count("\n") == 1


class Streaming(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint whose tokens take 4 ms each, after 20 ms."""

    FIRST_S, TOKEN_S = 0.02, 0.004

    def log_message(self, *_):
        """Stay quiet."""

    def do_GET(self):
        self._start("application/json")
        self.wfile.write(json.dumps({"data": [{"id": "tiny"}]}).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._start("text/event-stream")
        time.sleep(self.FIRST_S)
        for number in range(asked["max_tokens"]):
            if number:
                time.sleep(self.TOKEN_S)
            self._event({"choices": [{"text": "x"}]})
        usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": asked["max_tokens"]}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _start(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


@pytest.fixture
def url():
    """A server on loopback for one test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_observe_measures_a_live_server_and_learn_takes_the_file(run, url, tmp_path):
    out = tmp_path / "results.jsonl"
    shown = run("observe", url, "-o", str(out), "--concurrency", "1,3", "--isl", "40", "--osl", "6", "--json")
    found = json.loads(shown.out)["observed"]
    assert [level["max_concurrency"] for level in found] == [1, 3]
    assert all(level["completed"] >= 8 and level["model_id"] == "tiny" for level in found)
    for level in found:
        assert level["median_ttft_ms"] >= 1e3 * Streaming.FIRST_S
        assert level["mean_tpot_ms"] >= 1e3 * Streaming.TOKEN_S
        assert level["total_output_tokens"] == 6 * level["completed"]
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(SERVER))
    assert [load.data["workload"]["arrivals"]["concurrency"] for load in read_servers(out)[0]] == [1, 3]


def test_observe_keeps_its_bounds(url):
    found = mw.observe(url, concurrency=(2, 8), osl=4, requests=9)
    assert found.cut
    assert sum(level["completed"] for level in found.results) <= 9
    for wrong in ({"concurrency": (1000,)}, {"seconds": 1e9}, {"osl": 1}, {"concurrency": ()}):
        with pytest.raises(mw.InputError):
            mw.observe(url, **wrong)


def test_no_server_is_an_error(refused):
    assert "no answer" in refused("observe", "http://127.0.0.1:9", "--model", "tiny")
    assert "address of a server" in refused("observe", "ftp://host")
