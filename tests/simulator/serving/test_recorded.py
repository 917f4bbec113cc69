"""Recorded sessions of agents: who waits for whom, how long, and which blocks are known."""

import json
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.traces import get_format


def call(time, blocks, output=10, prompt=None, **more):
    prompt = prompt or 64 * len(blocks)
    return {"t": time, "type": "s", "in": prompt, "out": output, "hash_ids": list(blocks), **more}


def agent(time, *requests):
    return {"t": time, "type": "subagent", "agent_id": "a", "requests": list(requests)}


def session(*requests, **more):
    return {"id": "x", "block_size": 64, "requests": list(requests), **more}


TREE = session(
    call(0.0, range(1, 11), output=128, api_time=2.0),
    agent(3.0, call(0.5, range(20, 30)), call(9.5, range(20, 32), api_time=1.0, think_time=1.5)),
    agent(3.0, call(0.0, range(40, 44))),
    call(20.0, range(1, 16), think_time=4.0),
)


def read(tmp_path, document):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return next(get_format("weka").sessions(path))


def served(tmp_path, *documents, requests=4, **more):
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    workload = {
        "kind": "serving",
        "requests": requests,
        "arrivals": {"kind": "closed", "concurrency": 1},
        "trace": {"format": "weka", "path": str(tmp_path), **more},
    }
    scenario = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 1,
        "workload": workload,
        "deployment": {"engine": "vllm-0.19"},
    }
    return serve(make_serving(scenario, "test", Path()))


def columns(result):
    found = result.records.columns()
    order = found["arrival_s"].argsort(kind="stable")
    return {key: found[key][order] for key in ("arrival_s", "last_s", "prompt")}


def test_waits_are_those_of_the_client(tmp_path):
    first, second = read(tmp_path, TREE).calls
    assert (first.wait_s, second.wait_s) == (0.0, 4.0)
    one, two = first.agents
    assert (one.start_s, two.start_s) == (1.5, 1.0)
    assert [each.wait_s for each in one.calls] == [0.0, 1.5]


def test_times_inside_of_a_sub_agent_may_be_the_sessions(tmp_path):
    absolute = session(call(0.0, [1], api_time=2.0), agent(3.0, call(3.5, [2]), call(9.0, [2, 3])))
    (found,) = read(tmp_path, absolute).calls[0].agents
    assert found.start_s == 1.5
    assert found.calls[1].wait_s == 5.5


def test_an_output_that_the_next_prompt_repeats_is_known(tmp_path):
    first, second = read(tmp_path, TREE).calls
    assert first.prefix == tuple(range(1, 13))  # 640 tokens, and 128 of the answer
    assert second.prefix == tuple(range(1, 16))


def test_a_call_waits_for_the_sub_agents_above_it(tmp_path):
    found = columns(served(tmp_path, TREE, requests=5))
    begin, last, prompts = (found[key].tolist() for key in ("arrival_s", "last_s", "prompt"))
    assert prompts == [640, 256, 640, 768, 960]
    assert begin[1] == pytest.approx(last[0] + 1.0)
    assert begin[2] == pytest.approx(last[0] + 1.5)
    assert begin[3] == pytest.approx(last[2] + 1.5)
    assert begin[4] == pytest.approx(max(last[1], last[3]) + 4.0)


def test_a_long_wait_is_cut_where_asked(tmp_path):
    found = columns(served(tmp_path, TREE, requests=5, longest_wait=1.25))
    assert found["arrival_s"][4] == pytest.approx(found["last_s"][3] + 1.25)


def test_blocks_of_a_session_are_cached_and_those_of_another_pass_are_not(tmp_path):
    single = session(call(0.0, range(1, 33)), call(1.0, range(1, 65)))
    once = served(tmp_path, single, requests=2)
    twice = served(tmp_path, single, requests=4)
    hits = [result.to_dict()["hit_rate"] for result in (once, twice)]
    assert hits[0] == pytest.approx(32 / 96, abs=0.02)
    assert hits[1] == pytest.approx(hits[0])


@pytest.mark.parametrize(("scope", "share"), [("local", 0.0), ("global", 0.5)])
def test_sessions_share_blocks_of_a_common_name_space_only(tmp_path, scope, share):
    one = session(call(0.0, range(1, 65)), hash_id_scope=scope)
    result = served(tmp_path, one, one, requests=2)
    assert result.to_dict()["hit_rate"] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            session(agent(0.0, call(0.0, [1])), call(1.0, [1])),
            "requests[0]: is a sub-agent that no call starts",
        ),
        (session(call(0.0, [1]), agent(1.0)), "requests[1]: key 'requests': a list of objects"),
        (session({**call(0.0, [1]), "type": "x"}), "key 'type': n, s or subagent"),
        (session(call(0.0, [1], prompt=-5)), "column 'in': at least 1"),
        (session(call(0.0, [1, 2, 3, 4], prompt=64)), "4 hashes for 64 tokens"),
        (session(call(0.0, [1]), hash_id_scope="mine"), "key 'hash_id_scope'"),
        ({**session(call(0.0, [1])), "block_size": 16}, "hashes of 64 tokens are read, found 16"),
        ([], "a JSON object is needed"),
    ],
)
def test_a_wrong_session_names_file_entry_and_key(tmp_path, document, message):
    with pytest.raises(InputError) as found:
        read(tmp_path, document)
    assert message in str(found.value) and str(tmp_path) in str(found.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"program": {"kind": "conversation", "turns": 2}}, "recorded sessions are programs"),
        ({"arrivals": None}, "has no arrival times"),
        ({"trace": {"format": "weka", "path": "x", "rate_scale": 2}}, "no rate_scale or start"),
        ({"trace": {"format": "plain", "path": "x", "longest_wait": 2}}, "has no sessions"),
    ],
)
def test_keys_that_recorded_sessions_have_no_use_for_are_refused(change, message):
    workload = {
        "kind": "serving",
        "arrivals": {"kind": "closed", "concurrency": 1},
        "trace": {"format": "weka", "path": "x"},
    }
    scenario = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 1,
        "workload": {**workload, **change},
        "deployment": {"engine": "vllm-0.19"},
    }
    with pytest.raises(InputError, match=message):
        make_serving(scenario, "test", Path())
