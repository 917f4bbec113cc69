"""The Python API answers as the command line does, and its documented examples run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import meshwright as mw

QUESTION = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 16,
    "seq_len": 4096,
    "global_batch": 64,
}
EXAMPLES = re.findall(r"```python\n(.*?)```", Path("docs/api.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_page_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/api.md", "exec"), {})


def test_plan_gives_what_the_command_prints(run):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in QUESTION.items()]
    printed = json.loads(run("plan", *flags, "--json").out)
    assert mw.plan(**QUESTION).to_dict() == printed


def test_simulate_gives_what_the_command_prints(run):
    printed = json.loads(run("simulate", "llama3-8b-64-h100", "--json").out)
    assert mw.simulate("llama3-8b-64-h100").to_dict() == printed


def test_an_object_and_its_name_mean_the_same():
    named = mw.plan(**QUESTION, top=2).to_dict()
    objects = {
        "model": mw.catalogue.models.get("llama3.1-8b"),
        "cluster": mw.catalogue.clusters.get("dgx-h100"),
    }
    assert mw.plan(**(QUESTION | objects), top=2).to_dict() == named


def test_an_object_of_another_kind_is_refused():
    with pytest.raises(mw.InputError, match="a Model is needed, found a Cluster"):
        mw.plan(**(QUESTION | {"model": mw.catalogue.clusters.get("dgx-h100")}))


def test_arguments_replace_keys_of_a_scenario():
    found = mw.plan("llama3-8b-64-h100", seq_len=4096, fix={"tensor": 1}, top=2)
    assert found.to_dict()["question"]["seq_len"] == 4096
    assert {report.plan.tensor for report in found.plans} == {1}


def test_columns_have_one_entry_a_plan():
    found = mw.plan(**QUESTION, top=3)
    columns = found.columns()
    assert {len(values) for values in columns.values()} == {len(found.plans)}
    assert columns["step_time_s"] == [report.step_time_s for report in found.plans]


def test_variations_without_a_file():
    plan = {"tensor": 2, "micro_batch": 1, "zero": 1}
    swept = {"nics": {"sweep": {"cluster.network.nic_gbps": [100, 400]}}}
    columns = mw.whatif(**QUESTION, plan=plan, variations=swept).columns()
    assert columns["label"] == ["base", "nics: nic_gbps 100", "nics: nic_gbps 400"]
    assert columns["step_time_s"][1] > columns["step_time_s"][2]


def test_no_plan_fits_is_an_answer_with_a_reason():
    found = mw.plan(model="gpt3-175b", cluster="dgx-h100", gpus=8, seq_len=2048, global_batch=64)
    assert found.plans == ()
    with pytest.raises(mw.InfeasibleError):
        _ = found.best


def test_a_missing_argument_is_named():
    with pytest.raises(mw.InputError, match="--gpus missing"):
        mw.plan(model="llama3.1-8b", cluster="dgx-h100", seq_len=4096, global_batch=64)


def test_importing_the_package_imports_no_numpy():
    code = "import meshwright, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_export_writes_what_the_command_writes(run, tmp_path):
    ran = run("export", "llama3-8b-64-h100", "--to", "torchtitan", "-o", str(tmp_path / "by command"))
    assert ran.code == 0, ran.err
    command = f"meshwright export llama3-8b-64-h100 --to torchtitan -o '{tmp_path}/by command'"
    made = mw.export("llama3-8b-64-h100", "torchtitan", tmp_path / "by api", command=command)
    for name, text in made.files.items():
        assert (tmp_path / "by api" / name).read_text() == text
        assert (tmp_path / "by command" / name).read_text() == text


@pytest.mark.slow
def test_searches_are_exported_by_rank():
    found = mw.plan(**QUESTION, top=2)
    first, second = (mw.export(found, "megatron-lm", rank=rank).files["train.sh"] for rank in (1, 2))
    assert first == mw.export(found.scenario(0), "megatron-lm").files["train.sh"] != second
    with pytest.raises(mw.InputError, match="rank"):
        mw.export(found, "megatron-lm", rank=9)
    with pytest.raises(mw.InputError, match="only a search has ranks"):
        mw.export(found.scenario(0), "megatron-lm", rank=2)
    served = mw.deploy(model="llama3.1-8b", cluster="dgx-h100", gpus=8, isl=500, osl=100, ttft=1.0)
    assert "--max-num-seqs" in mw.export(served, "vllm").files["serve.sh"]


def test_sweep_gives_what_the_command_prints(run, tmp_path):
    definition = {"ask": "simulate", "scenario": "llama3-8b-64-h100", "grid": {"gpus": [32, 64]}}
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps(definition))
    printed = json.loads(run("sweep", str(path), "--json").out)
    alone = mw.Execution(workers=1)
    found = mw.sweep(definition, execution=alone)
    assert found.to_dict() == printed
    assert found.points == mw.sweep(**definition, execution=alone).points
    assert found.columns()["gpus"] == [32, 64]
    found.write(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().count("\n") == 3


QUESTIONS = [mw.plan, mw.simulate, mw.whatif, mw.size, mw.deploy, mw.mix, mw.day, mw.serving_front]


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_a_mistyped_argument_is_answered_with_the_nearest(ask):
    needed = {mw.size: {"tokens": 1e12}, mw.mix: {"types": ["l4"]}, mw.day: {"rates": [1.0]}}
    with pytest.raises(mw.InputError, match="unknown argument 'modl'; did you mean 'model'"):
        ask(**needed.get(ask, {}), modl="llama3.1-8b")


def test_sizes_are_written_as_on_the_command_line():
    written = {"cluster": "dgx-h100", "global_batch": 64, "plan": {"tensor": 8}, "model": "llama3.1-8b"}
    typed = mw.simulate(gpus="8", seq_len="8k", **written)
    assert typed.to_dict() == mw.simulate(gpus=8, seq_len=8192, **written).to_dict()


def test_rows_of_a_step_of_tokens_hold_the_longest_document():
    """They held the model's longest sequence, and cut documents without a word (0.25.0)."""
    lengths = {"kind": "lognormal", "median": 6000, "sigma": 1.6, "most": 65536}
    work = {"lengths": lengths, "tokens": 1048576, "packing": "pack"}
    question = {"model": "nemotron-h-8b", "cluster": "dgx-h100", "gpus": 8, "plan": {"tensor": 8}}
    steps = [mw.simulate({**question, "workload": work | seq}) for seq in ({}, {"seq_len": 65536})]
    assert steps[0].to_dict() == steps[1].to_dict()
    assert steps[0].scenario.setting.training.seq_len == 65536
