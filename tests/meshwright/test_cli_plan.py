"""`meshwright plan`: what it ranks, and that its JSON adds up."""

import json

import pytest

from tests.examples import TRAINING_FLAGS


def asked(run, *more: str) -> dict:
    ran = run("plan", *TRAINING_FLAGS, "--json", *more)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_every_candidate_is_scored_or_removed_by_a_rule(run):
    report = asked(run)
    assert report["scored"] > 0
    assert report["scored"] + sum(report["removed"].values()) == report["candidates"]


@pytest.mark.parametrize(
    ("objective", "key"),
    [("time", "step_time_s"), ("cost", "usd_per_million_tokens"), ("energy", "kwh_per_million_tokens")],
)
def test_plans_are_ranked_by_the_objective(run, objective, key):
    """Behind the recommended plan, which gives up little where the best may not fit or is unmeasured."""
    values = [plan[key] for plan in asked(run, "--objective", objective, "--top", "8")["plans"]]
    assert len(values) == 8
    assert values[1:] == pytest.approx(sorted(values[1:]), rel=1e-6)
    assert values[0] <= 1.05 * min(values)


def test_breakdowns_add_up_to_the_step_and_to_the_memory(run):
    for plan in asked(run)["plans"]:
        assert sum(plan["time_breakdown_s"].values()) == pytest.approx(plan["step_time_s"], rel=1e-9)
        stages = plan["memory"]["stages"]
        for stage in stages:
            assert sum(stage["parts_bytes"].values()) == pytest.approx(stage["total_bytes"], rel=1e-9)
        assert max(stage["total_bytes"] for stage in stages) == pytest.approx(plan["memory"]["peak_bytes"])
        assert plan["memory"]["fits"]
        assert plan["memory"]["peak_bytes"] <= plan["memory"]["capacity_bytes"]
        for each in plan["communication"].values():
            assert each["exposed_s"] <= each["total_s"] * (1 + 1e-9)


def test_every_plan_occupies_the_gpus_and_divides_the_batch(run):
    for entry in asked(run, "--top", "20")["plans"]:
        plan = entry["plan"]
        assert plan["tensor"] * plan["pipeline"] * plan["context"] * plan["data"] == 16
        assert 64 % (plan["data"] * plan["micro_batch"]) == 0


def test_figures_agree_with_each_other(run):
    for plan in asked(run)["plans"]:
        tokens = 2048 * 64
        assert plan["tokens_per_s_per_gpu"] == pytest.approx(tokens / plan["step_time_s"] / 16)
        assert plan["tokens_per_day"] == pytest.approx(86400 * tokens / plan["step_time_s"])
        assert plan["mfu"] <= plan["hfu"] <= 1
        assert 0 <= plan["bubble_share"] + plan["exposed_communication_share"] <= 1


def test_fixed_fields_and_limits_are_kept(run):
    report = asked(run, "--fix", "tensor=4", "--fix", "zero=1", "--limit", "pipeline=2", "--top", "20")
    for entry in report["plans"]:
        assert entry["plan"]["tensor"] == 4
        assert entry["plan"]["zero"] == 1
        assert entry["plan"]["pipeline"] <= 2


def test_a_fixed_field_never_makes_the_best_plan_better(run):
    free, held = asked(run, "--top", "1"), asked(run, "--top", "1", "--fix", "pipeline=4")
    assert held["plans"][0]["step_time_s"] >= free["plans"][0]["step_time_s"]


def test_the_same_question_gives_the_same_bytes(run):
    assert run("plan", *TRAINING_FLAGS, "--json").out == run("plan", *TRAINING_FLAGS, "--json").out


def test_a_scenario_asks_what_the_flags_ask_and_flags_change_it(run, scenario):
    path = str(scenario())
    from_file = json.loads(run("plan", path, "--json").out)
    assert from_file["plans"] == asked(run)["plans"]
    changed = json.loads(run("plan", path, "--gpus", "8", "--json").out)
    assert changed["question"]["gpus"] == 8


def test_the_search_of_a_scenario_is_used(run, scenario):
    path = scenario(("gpus: 16", "gpus: 16\nsearch: {fix: {tensor: 8}, limit: {pipeline: 1}, top: 2}"))
    plans = json.loads(run("plan", str(path), "--json").out)["plans"]
    assert len(plans) == 2
    assert {(entry["plan"]["tensor"], entry["plan"]["pipeline"]) for entry in plans} == {(8, 1)}


def test_flags_go_before_the_search_of_a_scenario_and_must_not_contradict_it(run, refused, scenario):
    path = str(scenario(("gpus: 16", "gpus: 16\nsearch: {fix: {tensor: 8}, limit: {pipeline: 2}, top: 1}")))
    (best,) = json.loads(run("plan", path, "--fix", "tensor=4", "--json").out)["plans"]
    assert best["plan"]["tensor"] == 4
    assert best["plan"]["pipeline"] <= 2
    assert "pipeline is fixed at 4 and limited to 2" in refused("plan", path, "--fix", "pipeline=4")


def test_simulate_costs_a_searched_plan_as_the_search_did(run, scenario):
    for entry in asked(run, "--top", "5")["plans"]:
        path = scenario(("{tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}", json.dumps(entry["plan"])))
        ran = run("simulate", str(path), "--json")
        assert ran.code == 0, ran.err
        simulated = json.loads(ran.out)
        assert simulated["plan"] == entry["plan"]
        assert simulated["step_time_s"] == pytest.approx(entry["step_time_s"], rel=1e-6)
        assert simulated["memory"]["peak_bytes"] == pytest.approx(entry["memory"]["peak_bytes"], rel=1e-6)


def test_the_table_shows_the_plans_the_rules_and_the_runner_up(run):
    out = run("plan", *TRAINING_FLAGS, "--top", "3", "--more").out
    for word in (
        "rank",
        "TP",
        "MFU",
        "fits with",
        "bubble",
        "$/Mtok",
        "kWh/Mtok",
        "removed by rule",
        "memory",
        "recommended",
        "What this rests on",
        "nearest published run",
    ):
        assert word in out


def test_the_table_is_turned_where_the_terminal_is_narrow(run, monkeypatch):
    monkeypatch.setattr("meshwright.commands.output.wide", lambda: False)
    lines = run("plan", *TRAINING_FLAGS, "--top", "2").out.splitlines()
    assert any(line.split()[:3] == ["rank", "1", "2"] for line in lines)


def test_a_proven_search_says_what_promised_too_much(run):
    question = "--model qwen3-235b-a22b --cluster dgx-b200 --gpus 256 --seq-len 4096 --global-batch 8192"
    flags = [*question.split(), "--precision", "mxfp8", "--limit", "tensor=2"]
    shown = " ".join(run("plan", "train", *flags, "--proven").out.split())
    assert "beyond" in shown and "far beyond what a run near them" in shown
    assert "leaves them out" not in run("plan", "train", *flags).out


def test_json_says_that_nothing_fits(run):
    ran = run("plan", "--model", "gpt-1t", *TRAINING_FLAGS[2:], "--json")
    assert ran.code == 1
    report = json.loads(ran.out)
    assert (report["plans"], report["scored"]) == ([], 0)
    assert report["removed"]["memory"] > 0
    assert ran.err.startswith("error: no plan fits")


SIZED = ["--cluster", "dgx-h100", "--gpus", "16", "--fix", "tensor=2", "--fix", "pipeline=1", "--json"]


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-2-7b-hf", "Llama-2-7B", "llama_2_7b", "LLAMA2-7b-chat", "meta-llama/llama2-7B"]
)
def test_models_are_found_as_people_write_them(run, name):
    rest = ["--global-batch", "16", *SIZED]
    assert run("plan", "--model", name, *rest).out == run("plan", "--model", "llama2-7b", *rest).out != ""


def test_sizes_are_read_as_people_write_them(run):
    model = ["--model", "llama2-7b", *SIZED]
    short = run("plan", *model, "--seq-len", "2k", "--batch-tokens", "128k").out
    assert short == run("plan", *model, "--seq-len", "2048", "--global-batch", "64").out != ""


@pytest.mark.slow
def test_sequences_are_as_long_as_the_model_allows_and_longer_ones_are_noticed(run):
    model = ["--model", "llama2-7b", "--global-batch", "16", *SIZED]
    assert run("plan", *model).out == run("plan", *model, "--seq-len", "4096").out != ""
    assert "longer than the 4,096 that llama2-7b was built for" in run("plan", *model, "--seq-len", "8k").err
    assert "longer" not in run("plan", *model).err


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--seq-len", "8kk"), ("--batch-tokens", "100"), ("--global-batch", "-4"), ("--seq-len", "")],
)
def test_sizes_that_are_none_are_named(refused, flag, value):
    given = {"--seq-len": "2k", "--global-batch": "16"} | {flag: value}
    if flag == "--batch-tokens":
        del given["--global-batch"]
    words = [word for pair in given.items() for word in pair]
    assert flag in refused("plan", "--model", "llama2-7b", *SIZED[:-1], *words)


SMALL = ["--model", "gpt2", "--seq-len", "1k", "--cluster", "dgx-a100-80gb", "--gpus", "8"]


@pytest.mark.parametrize(
    "given",
    [
        ["--isl", "100"],
        ["--osl", "100"],
        ["--rate", "3"],
        ["--ttft", "1"],
        ["--tpot", "1"],
        ["--engine", "vllm"],
        ["--together"],
        ["--cold-start", "3"],
        ["--watts", "900"],
        ["--batch-tokens", "16k"],
    ],
)
def test_flags_that_a_training_question_does_not_read_are_refused(refused, given):
    assert refused("plan", *SMALL, "--global-batch", "16", *given).startswith(f"error: {given[0]}: ")


@pytest.mark.parametrize(
    "given",
    [["--seq-len", "1k"], ["--global-batch", "8"], ["--precision", "fp8"], ["--price", "2"], ["--all"]],
)
@pytest.mark.parametrize("kind", [["serve"], ["day", "--rates", "1,2"], ["mix", "--types", "l4"]])
def test_flags_that_a_serving_question_does_not_read_are_refused(refused, kind, given):
    load = ["--model", "gpt2", "--isl", "100", "--osl", "10", "--ttft", "1", "--tpot", "1"]
    assert refused("plan", *kind, *load, *given).startswith(f"error: {given[0]}: ")


@pytest.mark.parametrize(
    ("short", "long"), [("tp=2", "tensor=2"), ("PP=1", "pipeline=1"), ("mbs=1", "micro_batch=1")]
)
def test_plan_fields_are_read_as_launchers_abbreviate_them(run, short, long):
    asked = ["plan", *SMALL, "--global-batch", "16", "--top", "1"]
    assert run(*asked, "--fix", short).out == run(*asked, "--fix", long).out != ""
    asked = ["simulate", *SMALL, "--global-batch", "16"]
    assert run(*asked, "--fix", short).out == run(*asked, "--fix", long).out != ""


def test_a_field_given_by_both_its_names_is_refused(refused):
    both = ["--fix", "tp=2", "--fix", "tensor=4"]
    assert "tensor is given twice" in refused("plan", *SMALL, "--global-batch", "16", *both)
    assert "tensor is given twice" in refused("simulate", *SMALL, "--global-batch", "16", *both)


@pytest.mark.parametrize("name", ["BF16", "bfloat16", "bf16"])
def test_number_formats_are_read_as_people_write_them(run, name):
    asked = ["plan", *SMALL, "--global-batch", "16", "--top", "1"]
    assert run(*asked, "--precision", name).out == run(*asked).out != ""


@pytest.mark.parametrize("tokens", ["15T", "15e12", "15000B", "15,000,000,000,000"])
def test_training_tokens_are_read_as_people_write_them(run, tokens):
    assert "15T tokens" in run("plan", "size", *SMALL, "--global-batch", "16", "--tokens", tokens).out


def test_training_tokens_that_are_none_are_named(refused):
    assert refused("plan", "size", *SMALL, "--global-batch", "16", "--tokens", "1x").startswith(
        "error: --tokens: "
    )


@pytest.mark.parametrize(
    ("instance", "cluster"),
    [
        ("p5.48xlarge", "aws-p5"),
        ("a3-megagpu-8g", "gcp-a3-mega"),
        ("Standard_ND96isr_H100_v5", "azure-nd-h100-v5"),
    ],
)
def test_cloud_instances_are_names_of_clusters(run, instance, cluster):
    rest = ["--model", "gpt2", "--seq-len", "1k", "--gpus", "8", "--global-batch", "16", "--top", "1"]
    assert run("plan", "--cluster", instance, *rest).out == run("plan", "--cluster", cluster, *rest).out != ""


@pytest.mark.slow
def test_what_a_model_leaves_out_is_said(run, tmp_path):
    mine = tmp_path / "mine.yaml"
    shape = "layers: 2, hidden: 256, heads: 4, feed_forward: 512, vocabulary: 1000, max_sequence: 4096"
    mine.write_text(f"{{name: mine, {shape}, left_out: some layers are priced as others}}")
    asked = ["--model", str(mine), "--cluster", "dgx-h100", "--gpus", "1"]
    train = [*asked, "--seq-len", "1k", "--global-batch", "4"]
    said = "note: left out of mine: some layers are priced as others"
    ran = run("plan", *train, "--top", "1")
    assert said in ran.err
    assert "left out" in ran.out
    assert said in run("simulate", *train, "--fix", "tensor=1").err
    load = ["--isl", "100", "--osl", "10", "--ttft", "9", "--tpot", "1", "--together"]
    assert said in run("plan", "serve", *asked, *load).err
    assert "note" not in run("plan", *SMALL, "--global-batch", "16").err
