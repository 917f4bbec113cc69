"""Questions over HTTP, in a browser and by assistants: answers, refusals, limits, no files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from core.errors import InputError
from meshwright.service.answers import read
from meshwright.service.web import MOST_BYTES, application
from meshwright.service.worker import Busy, TooLong, Workers

TRAIN = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "seq_len": "4k", "global_batch": 64}
SERVE = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "isl": 500, "osl": 50, "rate": 2}
SERVE |= {"ttft": "500ms", "tpot": "30ms"}
SIZE = {"model": "llama3.1-8b", "clusters": "dgx-h100", "gpus": "8..16", "tokens": "1T", "global_batch": 64}
FILES = "requests read no files"


@pytest.fixture(scope="module")
def client():
    with TestClient(application(Workers(seconds=120.0))) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "body", "key"),
    [
        ("train", TRAIN, "plans"),
        ("serve", SERVE, "deployments"),
        ("size", SIZE, "sizes"),
        ("simulate", {"scenario": "gpt3-175b-1024-a100"}, "step_time_s"),
        ("rl", {"model": "qwen3-1.7b", "cluster": "dgx-h100", "gpus": 8, "osl": 500, "top": 1}, "plans"),
    ],
)
def test_every_question_is_answered(client, kind, body, key):
    """The mapping of ``--json``, the tables, and the scenario to copy."""
    told = client.post(f"/api/{kind}", json=body)
    assert told.status_code == 200, told.text
    answer = told.json()
    assert key in answer["answer"]
    assert "TP1" in answer["text"] or "TP8" in answer["text"]
    assert "model:" in answer["scenario"] or kind == "size"


@pytest.mark.slow
def test_pages_come_with_the_answer(client):
    for kind, body in (("serve", SERVE), ("simulate", {"scenario": "gpt3-175b-1024-a100"})):
        told = client.post(f"/api/{kind}?page=true", json=body).json()
        assert told["page"].startswith("<!DOCTYPE html>")
    assert "Seconds by part" in told["page"] and "matrix products" in told["page"]


@pytest.mark.slow
def test_what_does_not_fit_is_an_answer(client):
    told = client.post("/api/train", json=TRAIN | {"model": "llama3.1-405b", "gpus": 1})
    assert told.status_code == 200
    assert "no plan fits" in told.json()["problem"]


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        (
            "train",
            TRAIN | {"model": "llama3.1-8bb"},
            "unknown model 'llama3.1-8bb'; did you mean 'llama3.1-8b'",
        ),
        ("train", TRAIN | {"modle": "x"}, "unknown key 'modle'; did you mean 'model'"),
        ("train", {}, "key 'model' is missing"),
        ("train", TRAIN | {"gpus": "many"}, "gpus: "),
        ("train", TRAIN | {"model": "/etc/passwd"}, FILES),
        ("train", TRAIN | {"cluster": {"name": "x", "device": "../../d.yaml"}}, FILES),
        ("size", SIZE | {"clusters": "dgx-h100,dgx-h1000"}, "unknown cluster 'dgx-h1000'"),
        ("simulate", {"scenario": {"model": "m.yaml"}}, FILES),
        ("simulate", {"scenario": "nothing-like-it"}, "unknown scenario"),
        ("serve", SERVE | {"ttft": "soon"}, "ttft: must be seconds"),
        ("serve", SERVE | {"requests": "log.csv"}, "unknown key 'requests'"),
    ],
)
def test_wrong_requests_get_the_own_sentence(client, kind, body, sentence):
    told = client.post(f"/api/{kind}", json=body)
    assert told.status_code == 422, told.text
    assert sentence in told.json()["detail"]


def test_a_scenario_is_read_as_yaml():
    text = "model: llama3.1-8b\ncluster: dgx-h100\ngpus: 8\nworkload: {seq_len: 4096, global_batch: 64}\n"
    assert read("simulate", {"scenario": text}).scenario["gpus"] == 8
    with pytest.raises(InputError, match="line 2: not valid YAML"):
        read("simulate", {"scenario": "model: [x\ny: 3"})
    with pytest.raises(InputError, match="requests read no files"):
        read("simulate", {"scenario": "model: ./a.yaml\ngpus: 8\n"})


def test_a_number_of_several_types_is_refused_in_one_line():
    with pytest.raises(InputError) as refused:
        read("serve", {"model": "llama3.1-8b", "cluster": "dgx-h100", "rate": "20/s"})
    assert refused.value.problem == "rate: must be a number, found '20/s'"


def test_bodies_above_a_megabyte_are_refused(client):
    told = client.post("/api/train", content=b" " * (MOST_BYTES + 1))
    assert told.status_code == 413
    told = client.post("/api/train", json=TRAIN | {"model": "x" * (MOST_BYTES - 200)})
    assert told.status_code == 422
    assert len(told.text) < 2000


def test_other_hosts_are_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_the_schema_and_the_form_have_every_key(client):
    schema = client.get("/api/openapi.json").json()
    body = schema["paths"]["/api/train"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"model", "cluster", "gpus", "adapter"} <= set(body["properties"])
    form = client.get("/").text
    assert "llama3.1-8b" in form
    assert "src=" not in form and "href=" not in form
    assert "dgx-h100" in client.get("/api/catalogue").json()["clusters"]


def test_long_questions_are_ended():
    async def ask():
        await Workers(seconds=0.01).answer("train", TRAIN, page=False)

    with pytest.raises(TooLong):
        asyncio.run(ask())


def test_two_thousand_questions_at_once_are_mostly_refused():
    async def ask():
        workers = Workers(at_once=1, waiting=2, seconds=0.01)
        calls = [workers.answer("train", TRAIN, page=False) for _ in range(2000)]
        return await asyncio.gather(*calls, return_exceptions=True)

    told = asyncio.run(ask())
    assert sum(isinstance(each, Busy) for each in told) == 1997


@pytest.mark.slow
def test_requests_write_nothing_where_the_service_runs(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama.yaml").write_text("name: mine")
    with pytest.raises(InputError, match="no files"):
        read("train", TRAIN | {"model": "llama.yaml"})
    client.post("/api/train?page=true", json=TRAIN)
    assert os.listdir(tmp_path) == ["llama.yaml"]


@pytest.mark.slow
def test_assistants_call_the_same_questions():
    pytest.importorskip("mcp")
    from meshwright.service.assistant import called

    async def ask(name, arguments):
        return await called(Workers(seconds=120.0), name, arguments)

    done = asyncio.run(ask("serve", SERVE))
    assert not done.is_error and done.structured_content["deployments"]
    wrong = asyncio.run(ask("serve", SERVE | {"latency": 1}))
    assert wrong.is_error and "unknown key 'latency'" in wrong.content[0].text
    assert "unknown tool" in asyncio.run(ask("erase", {})).content[0].text
    assert "dgx-h100" in asyncio.run(ask("catalogue", {})).content[0].text


@pytest.mark.slow
def test_an_assistant_talks_over_standard_streams():
    pytest.importorskip("mcp")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def ask():
        run = ["-m", "meshwright", "mcp"]
        how = StdioServerParameters(command=sys.executable, args=run, env=dict(os.environ))
        async with stdio_client(how) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            tools = await session.list_tools()
            told = await session.call_tool("train", TRAIN | {"model": "lama"})
            return [tool.name for tool in tools.tools], told

    names, told = asyncio.run(ask())
    assert names == ["train", "serve", "size", "simulate", "rl", "catalogue"]
    assert told.is_error and "unknown model 'lama'" in told.content[0].text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_the_form_is_drawn_in_a_browser(tmp_path):
    pytest.importorskip("uvicorn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = subprocess.Popen([sys.executable, "-m", "meshwright", "ui", "--port", str(port)])
    try:
        for _ in range(120):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.25)
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
        command += [f"--user-data-dir={tmp_path}", "--dump-dom", f"http://127.0.0.1:{port}/"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False).stdout
        assert 'name="model"' in shown and 'data-kind="serve"' in shown
        assert json.loads(shown.split('id="data">')[1].split("</script>")[0])["questions"].keys() >= {"train"}
    finally:
        serving.terminate()
        serving.wait(20)
