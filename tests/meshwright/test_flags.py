"""Questions without a file: flags of `simulate` and `whatif`, and what `--set` and `--sweep` read."""

import json

import pytest

from core.yaml_text import yaml_text

QUESTION = ["--model", "llama2-7b", "--cluster", "dgx-a100-80gb", "--gpus", "16", "--seq-len", "2k"]
PLANNED = [
    *QUESTION,
    "--global-batch",
    "64",
    *["--fix", "tensor=2", "--fix", "pipeline=2", "--fix", "zero=1"],
]


def asked(run, *arguments: str) -> dict:
    ran = run(*arguments, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_flags_simulate_what_a_scenario_does(run, scenario):
    from_file, from_flags = asked(run, "simulate", str(scenario())), asked(run, "simulate", *PLANNED)
    assert from_flags == from_file


def test_flags_change_a_scenario_and_replicas_follow_its_degrees(run, scenario):
    path = str(scenario(("zero: 1", "zero: 1, data: 4")))
    changed = asked(
        run, "simulate", path, "--fix", "tensor=4", "--batch-tokens", "256k", "--precision", "fp16"
    )
    assert (changed["plan"]["tensor"], changed["plan"]["data"]) == (4, 2)
    assert (changed["global_batch"], changed["precision"]) == (128, "fp16")


def test_a_title_does_not_outlive_the_question_that_it_names(run, scenario):
    path = str(scenario(("model: llama2-7b", "title: A small one\nmodel: llama2-7b")))
    assert "A small one" in run("simulate", path).out
    out = run("simulate", path, "--gpus", "32").out
    assert "A small one" not in out
    assert "llama2-7b on 32 a100-sxm-80gb" in out


def test_simulate_without_a_plan_says_how_to_give_one(refused):
    assert "--fix tensor=8" in refused("simulate", *QUESTION, "--global-batch", "64")
    assert "--model" in refused("simulate")


def test_a_variation_from_flags_is_one_from_a_file(run, scenario):
    file = scenario()
    changes = {
        "set": {"cluster.device.memory_bandwidth": 4e12, "plan.recompute": "full"},
        "sweep": {"workload.seq_len": [2048, 4096], "gpus": [16, 32]},
    }
    name = "memory_bandwidth 4e+12, recompute full"
    text = file.read_text(encoding="utf-8") + yaml_text({"variations": {name: changes}})
    file.write_text(text, encoding="utf-8")
    flags = ["--set", "cluster.device.memory_bandwidth=4e12,plan.recompute=full"]
    flags += ["--sweep", "workload.seq_len=2k,4k", "--sweep", "gpus=16, 32"]
    expected = asked(run, "whatif", str(file))
    assert len(expected["variations"]) == 4
    assert asked(run, "whatif", str(file), *flags) == expected
    plan = [flag for field in ("micro_batch=1",) for flag in ("--fix", field)]
    assert (
        asked(run, "whatif", *PLANNED, *plan, *flags)["variations"][0]["changed"]
        == (expected["variations"][0]["changed"])
    )


def test_without_a_plan_the_base_is_planned_and_fixed_fields_hold(run):
    report = asked(run, "whatif", *PLANNED, "--set", "cluster.network.nic_gbps=400", "--replan")
    (changed,) = report["variations"]
    for entry in (report["base"], changed):
        assert (entry["plan"]["tensor"], entry["plan"]["pipeline"], entry["plan"]["zero"]) == (2, 2, 1)
    assert changed["replanned"]
    assert changed["name"] == "nic_gbps 400, re-planned"


def test_serving_scenarios_take_changes_too(run):
    report = asked(run, "whatif", "serve-llama3-70b", "--set", "workload.requests=40", "--sweep", "seed=1,2")
    assert [entry["changed"] for entry in report["variations"]] == [
        {"workload.requests": 40, "seed": 1},
        {"workload.requests": 40, "seed": 2},
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "nic_gbps"], "--set: must be key=value"),
        (["--set", "cluster.network.nic_gbsp=1"], "nic_gbps"),
        (["--set", "gpus=[1"], "--set gpus"),
        (["--set", "gpus=8", "--sweep", "gpus=8,16"], "gpus is set and swept"),
        (["--sweep", "gpus=8", "--sweep", "gpus=16"], "given twice"),
        (["--sweep", "gpus="], "--sweep: must be key=value"),
        ([], "--set and --sweep"),
        (["--fix", "tensors=2", "--sweep", "gpus=16"], "tensor"),
    ],
)
def test_changes_that_cannot_be_read_are_named(refused, flags, message):
    assert message in refused("whatif", *PLANNED, *flags)


def test_a_price_replaces_the_list_price(run):
    listed, given = (asked(run, "simulate", *PLANNED, *more) for more in ((), ("--price", "1.25")))
    assert given["step_time_s"] == listed["step_time_s"]
    dollars = 16 * 1.25 / 3600 * given["step_time_s"] / (2048 * 64) * 1e6
    assert given["usd_per_million_tokens"] == pytest.approx(dollars)
    question = ["plan", *QUESTION, "--global-batch", "64", "--limit", "pipeline=1"]
    assert "1.25 $ an hour and device: as given" in run(*question, "--price", "1.25").out
    assert "list" in run(*question).out or "on demand" in run(*question).out


def test_each_set_is_a_variation_and_commas_join_keys(run):
    flags = ("--set", "micro_batch=1,recompute=full", "--set", "micro_batch=2", "--sweep", "gpus=16,32")
    labels = [each["label"] for each in asked(run, "whatif", *PLANNED, *flags)["variations"]]
    assert [label.partition(":")[0] for label in labels] == [
        *["micro_batch 1, recompute full"] * 2,
        *["micro_batch 2"] * 2,
    ]
    twice = run("whatif", *PLANNED, "--set", "micro_batch=2", "--set", "micro_batch=2")
    assert twice.code == 2
    assert "micro_batch 2 is given twice" in twice.err
