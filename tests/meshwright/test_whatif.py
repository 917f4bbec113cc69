"""`meshwright whatif`: what variations change, and that they change what they say and nothing else."""

import json

import pytest

from core.errors import UnknownNameError
from hwmodels.cluster import clusters
from meshwright.questions.keys import key_paths, set_key
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion
from meshwright.variations.tables import part_changes
from simulator.scenario import make_mixed, make_scenario

BASE = """\
title: what if
model: llama2-7b
cluster: dgx-a100-80gb
gpus: 16
workload: {seq_len: 2048, global_batch: 64, precision: bf16}
plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}
variations:
"""


@pytest.fixture
def ask(tmp_path):
    """Write a scenario with variations; returns its path."""

    def ask(variations: str, base: str = BASE) -> str:
        path = tmp_path / "asked.yaml"
        path.write_text(base + variations, encoding="utf-8")
        return str(path)

    return ask


@pytest.fixture
def answer(run, ask):
    """The JSON answer to variations of the small scenario, and its variations by label."""

    def answer(variations: str, *options: str, base: str = BASE):
        ran = run("whatif", ask(variations, base), "--json", *options)
        assert ran.code == 0, ran.err
        report = json.loads(ran.out)
        return report, {each["label"]: each for each in report["variations"]}

    return answer


def test_a_change_is_what_simulate_says_of_the_changed_scenario(run, ask, answer):
    _, found = answer("  batch: {set: {workload.global_batch: 128}}\n")
    changed = ask("", BASE.replace("global_batch: 64", "global_batch: 128").replace("variations:\n", ""))
    alone = json.loads(run("simulate", changed, "--json").out)
    assert {key: found["batch"][key] for key in alone if key != "title"} == {
        key: value for key, value in alone.items() if key != "title"
    }


def test_the_base_is_the_scenario_and_what_moved_adds_up(answer):
    report, found = answer("  network: {set: {cluster.network.nic_gbps: 25}}\n  far: {set: {gpus: 32}}\n")
    base = report["base"]
    for each in found.values():
        assert sum(each["moved_s"].values()) == pytest.approx(each["step_time_s"] - base["step_time_s"])
        assert each["step_time_change"] == pytest.approx(each["step_time_s"] / base["step_time_s"] - 1)
        sizes = [abs(seconds) for seconds in each["moved_s"].values()]
        assert sizes == sorted(sizes, reverse=True)
    assert found["network"]["step_time_change"] > 0
    assert next(iter(found["network"]["moved_s"])) == "pipeline"


def test_whole_passes_are_held_against_the_kernels_of_the_other_run():
    """The engine counts the passes of a large step whole."""
    kernels = {"time_breakdown_s": {"gemm": 3.0, "attention": 1.0, "tensor": 0.5, "bubble": 0.5}}
    passes = {"time_breakdown_s": {"compute": 4.0, "pipeline": 0.25, "bubble": 1.0}}
    assert part_changes(passes, kernels) == {"compute": -0.5, "bubble": 0.5, "pipeline": 0.25}
    assert part_changes(kernels, passes) == {"compute": 0.5, "bubble": -0.5, "pipeline": -0.25}
    assert part_changes(kernels, kernels) == dict.fromkeys(kernels["time_breakdown_s"], 0.0)


def test_setting_a_key_to_what_it_is_changes_nothing(answer):
    """Written-out catalogue entries mean the same as their names."""
    cluster = clusters.get("dgx-a100-80gb")
    same = {
        "cluster.network.nic_gbps": cluster.network.nic_gbps,
        "cluster.device.memory_bandwidth": cluster.device.memory_bandwidth,
        "cluster.levels.nvlink.bandwidth": cluster.levels[0].bandwidth,
        "model.layers": 32,
        "framework.defaults.gradient_bytes": 4,
        "plan.tensor": 2,
    }
    report, found = answer("".join(f"  {key}: {{set: {{{key}: {value}}}}}\n" for key, value in same.items()))
    assert len(found) == len(same)
    for each in found.values():
        assert each["step_time_s"] == report["base"]["step_time_s"]
        assert each["memory"] == report["base"]["memory"]


def test_the_catalogue_keeps_its_definitions(answer):
    before = clusters.get("dgx-a100-80gb").model_dump()
    answer("  slow: {set: {cluster.device.memory_bandwidth: 1e11}}\n")
    assert clusters.get("dgx-a100-80gb").model_dump() == before


@pytest.mark.parametrize(
    ("changes", "grows"),
    [
        ("cluster.device.memory_bandwidth: 1e12", "elementwise"),
        ("cluster.levels.nvlink.bandwidth: 30e9", "tensor"),
        ("cluster.levels.0.bandwidth: 30e9", "tensor"),
        ("framework.host.seconds_per_kernel: 1e-3", "launch"),
        ("model.layers: 64", "gemm"),
        ("plan.recompute: full", "recompute"),
        ("plan: {pipeline: 4, zero: 1}", "bubble"),
    ],
)
def test_a_key_path_reaches_through_names_of_the_catalogue(answer, changes, grows):
    _, found = answer(f"  it: {{set: {{{changes}}}}}\n")
    assert found["it"]["moved_s"][grows] > 0


def test_lists_combine_other_variations_in_order(answer):
    _, found = answer(
        "  batch: {set: {workload.global_batch: 128}}\n"
        "  slow: {set: {cluster.network.nic_gbps: 50}}\n"
        "  both: [batch, slow]\n"
        "  all: [both, {plan.recompute: full}, {workload.global_batch: 256}]\n"
        "  by hand: {set: {cluster.network.nic_gbps: 50, plan.recompute: full, workload.global_batch: 256}}\n"
    )
    assert found["both"]["changed"] == {"workload.global_batch": 128, "cluster.network.nic_gbps": 50}
    assert found["all"]["step_time_s"] == found["by hand"]["step_time_s"]


def test_a_later_change_reaches_into_an_earlier_one(answer):
    _, found = answer(
        "  it: [{cluster.network.nic_gbps: 1}, {cluster: dgx-h100}, {cluster.network.nic_gbps: 200}]\n"
        "  other: [{cluster: dgx-h100}]\n"
    )
    assert found["it"]["cluster"] == "dgx-h100"
    assert 1 < found["it"]["step_time_s"] / found["other"]["step_time_s"] < 1.5


def test_sweeps_and_grids_try_every_value_in_order(answer):
    _, found = answer(
        "  grid: {set: {plan.zero: 0}, "
        "sweep: {workload.global_batch: [32, 64], plan.recompute: [none, full]}}\n"
    )
    assert list(found) == [
        "grid: global_batch 32, recompute none",
        "grid: global_batch 32, recompute full",
        "grid: global_batch 64, recompute none",
        "grid: global_batch 64, recompute full",
    ]
    for each in found.values():
        assert set(each["changed"]) == {"plan.zero", "workload.global_batch", "plan.recompute"}
        assert each["plan"]["zero"] == 0


def test_a_new_plan_is_the_one_that_plan_finds(run, ask, answer):
    report, found = answer("  batch: {set: {workload.global_batch: 128}, replan: true}\n")
    assert report["variations"][0]["label"] == "base, re-planned"
    flags = "--model llama2-7b --cluster dgx-a100-80gb --gpus 16 --seq-len 2048 --global-batch 128"
    best = json.loads(run("plan", *flags.split(), "--precision", "bf16", "--json").out)["plans"][0]
    assert found["batch"]["plan"] == best["plan"]
    assert found["batch"]["step_time_s"] == pytest.approx(best["step_time_s"])
    assert found["batch"]["replanned"]


def test_without_a_plan_the_one_found_for_the_base_is_kept(answer):
    base = BASE.replace("plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}\n", "")
    report, found = answer("  fewer: {set: {gpus: 8}}\n", base=base)
    kept = {**report["base"]["plan"], "data": report["base"]["plan"]["data"] // 2}
    assert found["fewer"]["plan"] == kept


def test_what_cannot_be_run_says_why_and_the_rest_is_answered(run, ask):
    path = ask(
        "  tensor: {sweep: {plan.tensor: [2, 3, 4]}}\n  many: {set: {gpus: 100000}}\n"
        "  format: {set: {workload.precision: fp8}}\n"
        "  tiny: {set: {cluster.device.memory_bytes: 1e9}, replan: true}\n"
    )
    ran = run("whatif", path, "--json")
    assert ran.code == 0
    found = {each["label"]: each for each in json.loads(ran.out)["variations"]}
    assert "32 attention heads" in found["tensor: tensor 3"]["problem"]
    assert "asked for 100000" in found["many"]["problem"]
    assert "a100-sxm-80gb has no 'fp8'" in found["format"]["problem"]
    assert "more devices" in found["tiny"]["problem"]
    assert found["tensor: tensor 4"]["step_time_s"] > 0
    table = run("whatif", path).out
    assert "cannot be run" in table
    assert "32 attention heads" in table


def test_the_engine_answers_too_and_for_all_where_one_schedule_needs_it(answer):
    analytic, _ = answer("  batch: {set: {workload.global_batch: 128}}\n")
    asked, _ = answer("  batch: {set: {workload.global_batch: 128}}\n", "--engine")
    needed, found = answer("  zero bubble: {set: {plan.schedule: zb-h1}}\n")
    assert (analytic["engine"], asked["engine"], needed["engine"]) == (False, True, True)
    assert asked["base"] == needed["base"]
    assert asked["base"]["step_time_s"] == pytest.approx(analytic["base"]["step_time_s"], rel=0.02)
    assert found["zero bubble"]["moved_s"]["bubble"] < 0


def test_the_table_shows_each_variation_and_markup_stays_text(run, ask):
    path = ask("  '[red]slow[/red]': {set: {cluster.network.nic_gbps: 10}}\n")
    ran = run("whatif", path)
    assert "[red]slow[/red]" in ran.out
    assert "pipeline +" in ran.out
    assert "1 run (1 with the same plan)" in ran.err


@pytest.mark.slow
def test_the_same_question_gives_the_same_bytes_on_several_cores(run, ask, monkeypatch):
    path = ask("  batch: {sweep: {workload.global_batch: [32, 64, 128], plan.tensor: [1, 2]}}\n")
    alone = run("whatif", path, "--json").out
    monkeypatch.setattr("planner.execution.WORTH_SHARING_S", 0.0)
    assert run("whatif", path, "--json").out == alone


@pytest.mark.parametrize(
    ("variations", "words"),
    [
        ("  a: {set: {cluster.network.nic_gbp: 1}}\n", ["variations.a", "'cluster.network.nic_gbps'"]),
        ("  a: {set: {nic_gbps: 1}}\n", ["'nic_gbps'", "'cluster.network.nic_gbps'"]),
        ("  a: {set: {workload.batch: 1}}\n", ["'workload.global_batch'"]),
        ("  a: {sweep: {plan.tensr: [1]}}\n", ["variations.a", "'plan.tensor'"]),
        ("  a: {set: {plan.tensor.x: 1}}\n", ["'plan.tensor'"]),
        ("  a: {set: {cluster.levels.nvlnk.bandwidth: 1}}\n", ["'cluster.levels.nvlink.bandwidth'"]),
        ("  a: {set: {model.moe.experts: 8}}\n", ["unknown key 'model.moe.experts'"]),
        ("  a: {set: {variations: {}}}\n", ["unknown key 'variations'"]),
        ("  a: {set: {cluster.devices: 8}}\n", ["unknown key 'cluster.devices'"]),
        ("  a: {set: {cluster.network.nic_gbps: -1}}\n", ["variations.a: cluster", "network.nic_gbps", "-1"]),
        ("  a: {set: {cluster: dgx-h10}}\n", ["variations.a: cluster", "'dgx-h100'"]),
        ("  a: {sweep: {workload.seq_len: [2048, long]}}\n", ["variations.a: workload.seq_len", "'long'"]),
        ("  a: {sweep: {plan.recompute: [none, sme]}}\n", ["variations.a: plan: recompute", "'sme'"]),
        ("  a: {sweep: {plan.schedule: [1f1b, zb-h]}}\n", ["variations.a: plan.schedule", "'zb-h1'"]),
        (
            "  a: {set: {search.fix.tensor: many}, replan: true}\n",
            ["variations.a: search", "tensor", "'many'"],
        ),
        ("  a: {set: {plan.tensor: 4}, replan: true}\n", ["plan.tensor has no effect", "search.fix.tensor"]),
        ("  a: [b]\n  c: {set: {gpus: 8}}\n", ["variations.a.set", "unknown variation 'b'"]),
        ("  a: [b]\n  b: [a]\n", ["names itself", "a and b"]),
        ("  a: [b]\n  b: {sweep: {gpus: [8]}}\n", ["variations.a.set", "'b' sweeps"]),
        ("  a: {}\n", ["variations.a", "changes nothing"]),
        ("  a: {sweep: {gpus: []}}\n", ["variations.a.sweep.gpus", "at least 1 item"]),
        ("  a: {swep: {gpus: [8]}}\n", ["variations.a", "'swep'", "'sweep'"]),
        ("  a: faster\n", ["variations.a", "'faster'"]),
        ("  a: {set: faster}\n", ["variations.a.set", "key paths with their values"]),
        ("  {}\n", ["'variations' is missing"]),
    ],
)
def test_a_wrong_variation_names_file_and_key_before_anything_runs(refused, ask, variations, words):
    path = ask(variations)
    message = refused("whatif", path)
    for word in [path, *words]:
        assert word in message


@pytest.mark.slow
def test_a_long_sweep_is_refused_until_the_user_says_yes(refused, ask):
    values = list(range(1, 1001))
    path = ask(
        f"  all: {{sweep: {{workload.global_batch: {values}, gpus: {values}, plan.tensor: {values}}}}}\n"
    )
    message = refused("whatif", path)
    assert "1,000,000,000 runs" in message
    assert "days" in message
    assert "--yes" in message


def test_an_interrupt_keeps_what_is_finished(run, ask, monkeypatch):
    from meshwright.variations import answer

    asked = []

    def interrupted(run, engine):
        asked.append(run)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return true_answer(run, engine)

    true_answer = answer.answer
    monkeypatch.setattr(answer, "answer", interrupted)
    ran = run("whatif", ask("  batch: {sweep: {workload.global_batch: [32, 64, 96, 128]}}\n"), "--json")
    assert ran.code == 130
    report = json.loads(ran.out)
    assert report["interrupted"]
    assert [each["global_batch"] for each in report["variations"]] == [32, 64]
    assert "2 of 4 runs finished" in ran.err


def test_an_interrupt_leaves_a_finished_page_as_it_was(run, ask, monkeypatch, tmp_path):
    from meshwright.variations import answer

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(answer, "answer", interrupted)
    page = tmp_path / "page.html"
    page.write_text("finished")
    ran = run("whatif", ask("  batch: {sweep: {workload.global_batch: [32, 64]}}\n"), "--html", str(page))
    assert ran.code == 130
    assert page.read_text() == "finished"
    assert "left as it was" in ran.err


WITH_VARIATIONS = [
    name
    for name, path in shipped_scenarios().items()
    if "\nvariations:" in (text := path.read_text(encoding="utf-8"))
    and not any(
        f"kind: {kind}" in text for kind in ("serving", "rl", "diffusion", "tables", "graph", "frames")
    )
]


@pytest.mark.parametrize("name", WITH_VARIATIONS)
def test_shipped_variations_can_be_asked(name):
    question = WhatIfQuestion.read(shipped_scenarios()[name])
    runs = list(question.runs())
    assert len(runs) == question.count(replan=False) + question.count(replan=True) > 0
    assert len({run.label for run in runs}) == len(runs)
    for each in (question.base, runs[0], runs[-1]):
        mixed = make_mixed(each.data, each.where, each.folder)
        assert (mixed or each.scenario()).setting.cluster.devices > 0


def test_every_key_path_can_be_set(tmp_path):
    data = {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 128, "workload": {"seq_len": 4096}}
    paths = key_paths(data, tmp_path, "here")
    assert {"cluster.device.peak_flops.bf16", "model.moe.top_k", "search.fix.tensor"} <= set(paths)
    for key in paths:
        changed = set_key(data, key, "new", tmp_path, "here")
        assert value_at(changed, key) == "new", key


def value_at(held, key: str):
    """What a key path holds; an entry of a list goes by number or name."""
    for part in key.split("."):
        if isinstance(held, list):
            held = held[int(part)] if part.isdigit() else next(each for each in held if named(each, part))
        else:
            held = held[part]
    return held


def named(entry, name: str) -> bool:
    return entry == "new" or entry["name"] in (name, "new")


def test_a_variation_of_the_framework_goes_before_its_recipe(tmp_path):
    data = {
        "model": "gpt-oss-120b",
        "cluster": "gb200-nvl72",
        "gpus": 64,
        "workload": {"seq_len": 4096, "global_batch": 1280},
        "recipe": "megatron-bridge-gpt-oss",
    }
    for key, value, expected in (
        ("framework.defaults.dispatcher", "flex", ("flex", "slow-hosts")),
        ("framework.defaults.graphs", "step", ("all-to-all", "step")),
    ):
        changed = set_key(data, key, value, tmp_path, "mine.yaml")
        choices = make_scenario(changed, "mine.yaml", tmp_path).setting.choices
        assert (choices.dispatcher, choices.graphs) == expected


def test_a_choice_that_was_a_key_of_the_framework_is_refused_by_its_present_name(tmp_path):
    data = {
        "model": "llama3-8b",
        "cluster": "dgx-h100",
        "gpus": 8,
        "workload": {"seq_len": 8192, "global_batch": 8},
    }
    with pytest.raises(UnknownNameError, match=r"'framework\.graphs'; did you mean 'plan\.graphs'"):
        set_key(data, "framework.graphs", "step", tmp_path, "mine.yaml")


def test_a_key_inside_an_unset_part_of_a_pool_gets_the_part(tmp_path):
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {"kind": "serving", "arrivals": {"kind": "burst"}, "input": 100, "output": 10},
        "deployment": {"pools": [{"role": "mixed"}]},
    }
    with pytest.raises(UnknownNameError, match=r"deployment\.pools\.0\.state"):
        set_key(data, "deployment.pools.0.state.kind", "evicted", tmp_path, "test")
    changed = set_key(data, "deployment.pools.0.state", {"kind": "evicted"}, tmp_path, "test")
    assert changed["deployment"]["pools"][0]["state"] == {"kind": "evicted"}
