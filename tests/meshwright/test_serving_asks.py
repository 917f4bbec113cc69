"""Short ways to ask for a deployment: uses, files of requests, prefixes, drafts, KV formats."""

import json

import pytest

from meshwright.questions.uses import uses, with_use
from simulator.serving.workload.programs import SPAN

PLACE = ["plan", "serve", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "1", "--together"]
PLACE += ["--limit", "pipeline=1", "--json"]
LENGTHS = ["--isl", "1000", "--osl", "100", "--ttft", "1", "--tpot", "0.05"]


@pytest.mark.parametrize("use", sorted(uses()))
def test_a_use_is_enough(run, use):
    report = json.loads(run(*PLACE, "--use", use).out)
    own = uses()[use]
    asked = report["question"]
    # System prompts of agents are whole spans.
    assert asked["prompt_tokens"] == pytest.approx(own.isl.value, abs=SPAN if own.turns else 0)
    assert asked["output_tokens"] == max(own.osl.value, 1)
    assert asked["ttft"] == own.ttft.value
    assert asked["tpot"] == (own.tpot.value if own.tpot else None)


@pytest.mark.slow
def test_more_agents_than_any_deployment_carries_exit_with_1(run):
    lengths = ["--isl", "4000", "--prefix", "3400", "--tpot", "0.008", "--concurrency", "4000"]
    short = run(*[word for word in PLACE if word != "--json"], "--use", "agents", *lengths)
    assert short.code == 1
    assert "No deployment tried carries 4,000" in " ".join(short.out.split())


def test_stated_values_win_over_a_use():
    filled = with_use({"use": "agents", "isl": 100, "osl": None, "ttft": 9.0, "tpot": None, "prefix": None})
    assert (filled["isl"], filled["ttft"], filled["prefix"]) == (100, 9.0, None)
    assert filled["osl"] == uses()["agents"].osl.value


def test_flags_fix_drafts_and_kv(run):
    report = json.loads(run(*PLACE, *LENGTHS, "--kv", "fp8", "--speculate", "ngram:3").out)
    pool = report["deployments"][0]["pools"][0]
    assert (pool["kv"], pool["speculation"]) == ("fp8", "ngram:3")


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n", "azure"),
        ("b.csv", "Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n", "burstgpt"),
        ("c.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,10\n", "plain"),
        (
            "d.jsonl",
            '{"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [1]}\n',
            "mooncake",
        ),
        ("e.json", '{"input_lens": [10], "output_lens": [5]}\n', "benchmark"),
        ("f.json", '[{"conversations": [{"value": "abc"}, {"value": "defg"}]}]\n', "sharegpt"),
    ],
)
def test_the_format_of_requests_is_found(tmp_path, name, text, form):
    from simulator.serving.workload.traces.detection import detect_format

    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert detect_format(path).name == form


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--use", "caht", "--rate", "1"], "did you mean 'chat'"),
        ([*LENGTHS, "--prefix", "1000"], "must be below --isl"),
        ([*LENGTHS, "--prefix", "many"], "must be tokens (3000) or a share"),
        ([*LENGTHS, "--speculate", "mtp"], "no heads of multi-token prediction"),
        ([*LENGTHS, "--speculate", "mtpp"], "did you mean 'mtp'"),
        ([*LENGTHS, "--speculate", "llama3.1-8b"], "found the draft model"),
        ([*LENGTHS, "--kv", "fp9"], "fp8"),
        ([*LENGTHS, "--kv", "fp8", "--fix", "kv=fp8"], "fixed twice"),
        ([*LENGTHS, "--rate", "0"], "rate"),
        ([*LENGTHS, "--concurrency", "4", "--rate", "2"], "excludes --rate"),
        ([*LENGTHS, "--kv", "fp4"], "no kernel of h100-sxm reads fp4 KV"),
    ],
)
def test_wrong_asks_are_refused(run, flags, problem):
    wrong = run(*PLACE, *flags)
    assert wrong.code == 2
    assert problem in wrong.err


def test_requests_without_lengths_are_refused(run, tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("time,user\n1,a\n", encoding="utf-8")
    wrong = run(*PLACE, "--requests", str(path), "--ttft", "1")
    assert wrong.code == 2
    assert "no lengths of requests" in wrong.err
    assert "num_prefill_tokens" in wrong.err


def test_requests_of_another_schema_and_hits_beyond_the_prompt_are_refused(run, tmp_path):
    other, hits = tmp_path / "other.jsonl", tmp_path / "hits.csv"
    other.write_text('{"when": 1}\n', encoding="utf-8")
    columns = "arrived_at,num_prefill_tokens,num_decode_tokens,num_cached_tokens"
    hits.write_text(f"{columns}\n0,100,5,500\n", encoding="utf-8")
    for path, words in ((other, "found when. Known: azure"), (hits, "(500) exceeds the prompt (100 tokens)")):
        wrong = run(*PLACE, "--requests", str(path), "--ttft", "1")
        assert wrong.code == 2
        assert words in " ".join(wrong.err.split())


def test_a_target_below_a_lone_requests_latency_is_told_the_floor(run):
    asked = [*PLACE, "--isl", "1000", "--osl", "100", "--ttft", "1", "--tpot", "0.0001"]
    wrong = run(*asked)
    assert wrong.code == 1
    assert "a lone request takes TTFT" in wrong.err
    assert "TPOT" in wrong.err.partition("a lone request takes")[2]


@pytest.mark.slow
def test_an_answer_with_pipeline_stages_says_that_no_measured_server_has_them(run):
    place = ["plan", "serve", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "2", *LENGTHS]
    staged, plain = (run(*place, "--fix", f"pipeline={stages}").out for stages in (2, 1))
    words = " ".join(staged.split())
    assert "no measured server has pipeline stages" in words
    assert "of rank 1: from the model alone" in words
    assert "from the model alone" not in " ".join(plain.split())


def test_embeddings_are_prompts_with_one_output_token(run):
    lengths = ["--isl", "512", "--ttft", "1"]
    embedded, one = (run(*PLACE, *lengths, "--osl", count) for count in ("0", "1"))
    assert "an embedding is priced as the prompt's pass" in embedded.err
    assert json.loads(embedded.out) == json.loads(one.out)


def test_embeddings_without_targets_have_those_of_their_use(run):
    lengths = ["--isl", "512", "--osl", "0"]
    silent, stated = (run(*PLACE, *lengths, *target) for target in ((), ("--ttft", "500ms")))
    assert json.loads(silent.out) == json.loads(stated.out)


def test_an_encoder_is_asked_for_embeddings(run):
    place = ["plan", "serve", "--model", "bge-m3", "--cluster", "h100", "--gpus", "1", "--json"]
    silent, stated = (run(*place, *use) for use in ((), ("--use", "embeddings")))
    assert "requests of --use embeddings, as none are stated" in silent.err
    assert json.loads(silent.out) == json.loads(stated.out)
