"""Frameworks: what each file must say, and what its facts must do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from core.loading import build
from core.sources import USER
from simulator.frameworks import Framework, frameworks
from simulator.frameworks.default import default_rules
from simulator.models import LayerKind
from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.training import boundary_transfer, predict
from simulator.training.layer import layer
from simulator.training.step_graph import run
from simulator.training.step_graph.build import simulate, step_program


@pytest.mark.parametrize("name", frameworks.names())
def test_each_number_names_its_source(name):
    framework = frameworks.get(name)
    assert set(framework.origins) >= {
        "kernels.optimizer_bytes_per_parameter",
        "memory.context_bytes",
        "memory.fragmentation",
    }
    for key, origin in framework.origins.items():
        assert origin.source != USER, f"{key}: {origin.value} without a source"


@pytest.mark.parametrize("name", frameworks.names())
def test_a_source_that_is_another_framework_s_leads_to_the_same_number(name):
    for key, origin in frameworks.get(name).origins.items():
        seen = {name}
        while named := re.fullmatch(r"as ([a-z0-9-]+)", origin.source):
            assert named[1] not in seen, f"{key}: {named[1]} has no source of its own"
            seen.add(named[1])
            other = frameworks.get(named[1]).origins[key]
            assert (other.value, other.kind) == (origin.value, origin.kind), f"{key}: {origin.source}"
            origin = other


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"zeros": 1}, "unknown key 'zeros'; did you mean 'zero'"),
        ({"zero": 7}, "zero: .* at most 3"),
    ],
)
def test_defaults_that_no_plan_has_are_refused(defaults, message):
    data = frameworks.get("nemo").model_dump() | {"defaults": defaults}
    with pytest.raises(InputError, match=f"mine.yaml: defaults: {message}"):
        build(Framework, data, "mine.yaml")


def test_an_unknown_framework_gets_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'megatron-core'"):
        frameworks.get("megatron-cor")


@pytest.mark.parametrize(
    ("worse", "part"),
    [
        ({"attention": "flash-1"}, "attention"),
        ({"elementwise": "eager"}, "elementwise"),
        ({"reduce_bytes": 4}, "gradients"),
        ({"cross_entropy": "eager"}, "cross_entropy"),
        ({"cross_entropy": "torch"}, "cross_entropy"),
        ({"cross_entropy": "fused-32"}, "cross_entropy"),
        ({"cross_entropy": "log-probabilities"}, "cross_entropy"),
        ({"kernels": {"metric_passes": 14.0}}, "cross_entropy"),
        ({"kernels": {"norm": "casts"}}, "norm"),
        ({"gradients": {"copy_passes": 4.0}}, "elementwise"),
        ({"kernels": {"optimizer_bytes_per_parameter": 100.0}}, "optimizer"),
    ],
)
def test_each_fact_moves_its_own_part_of_the_step(make_setting, worse, part):
    better = {
        "dropout": True,
        "attention": "flash",
        "elementwise": "fused",
        "reduce_bytes": 2,
        "cross_entropy": "fused",
    }
    plan = Plans.of(Plan(tensor=8, pipeline=2, data=4, micro_batch=2, overlap_gradients=False))
    before = predict(make_setting(**better), plan)
    after = predict(make_setting(**{**better, **worse}), plan)
    assert after.seconds[part][0] > before.seconds[part][0]
    assert after.time[0] > before.time[0]


def test_row_wise_scales_slow_products_and_gather_sixteen_bits(make_setting):
    """One scale a tensor is gathered with 8-bit operands; row-wise kernels reach 0.98 of its speed."""
    plan = Plans.of(Plan(tensor=8, micro_batch=1, sequence_parallel=True))

    def predicted(name):
        facts = {
            "framework": name,
            "precision": "fp8",
            "cluster": "dgx-h100",
            "devices": 8,
            "global_batch": 1,
        }
        return predict(make_setting(model="llama3-8b", **facts), plan)

    tensor, row = predicted("torchtitan"), predicted("torchtitan-rowwise")
    assert 1.01 < row.seconds["gemm"][0] / tensor.seconds["gemm"][0] <= 1 / 0.98  # power limits some of both
    assert 1.2 < row.communication["tensor"][0] / tensor.communication["tensor"][0] < 2


def test_log_probabilities_compute_the_logits_again(make_setting):
    plan = Plans.of(Plan(data=8, micro_batch=1))

    def gemm(loss):
        setting = make_setting(model="llama2-7b", cross_entropy=loss, devices=8, global_batch=8)
        return predict(setting, plan).seconds["gemm"][0]

    # Of three products with every weight, those of the output layer become four.
    share = 32000 * 4096 / (6.74e9 - 32000 * 4096)
    assert gemm("log-probabilities") / gemm("chunked") == pytest.approx(1 + share / 3, rel=5e-3)


@pytest.mark.parametrize(("model", "slower"), [("gpt2-medium", 0.626 / 0.54), ("gpt3-13b", 1.0)])
def test_triton_s_first_flash_attention_is_slower_with_heads_of_64(make_setting, model, slower):
    plan = Plans.of(Plan(data=8, micro_batch=1))

    def attention(kernel):
        setting = make_setting(model=model, attention=kernel, devices=8, global_batch=8)
        return predict(setting, plan).seconds["attention"][0]

    assert attention("flash-1-triton") == pytest.approx(slower * attention("flash-1"))


@pytest.mark.parametrize(("cluster", "faster"), [("dgx-h100", True), ("dgx-a100-80gb", False)])
def test_flash_attention_3_has_rates_of_its_own_on_hopper(make_setting, cluster, faster):
    plan = Plans.of(Plan(data=8, micro_batch=1))

    def attention(kernel):
        facts = {"attention": kernel, "devices": 8, "global_batch": 8, "seq_len": 16384}
        setting = make_setting(model="llama2-7b", cluster=cluster, **facts)
        return predict(setting, plan).seconds["attention"][0]

    assert bool(attention("flash-3") < 0.95 * attention("flash")) is faster
    assert faster or attention("flash-3") == attention("flash")


@pytest.mark.parametrize(
    ("cluster", "cudnn"), [("dgx-b200", True), ("dgx-h100", False), ("dgx-a100-80gb", False)]
)
def test_torchtitan_runs_cudnn_s_attention_on_blackwell_alone(make_setting, cluster, cudnn):
    plan = Plans.of(Plan(data=8, micro_batch=1))

    def attention(kernel):
        facts = {"attention": kernel, "devices": 8, "global_batch": 8, "seq_len": 8192}
        setting = make_setting(model="llama2-7b", cluster=cluster, **facts)
        return predict(setting, plan).seconds["attention"][0]

    assert attention("flash") <= attention("flash-torch") <= attention("flash-2")
    assert bool(attention("flash-torch") < 0.9 * attention("flash-2")) is cudnn


def test_halves_rotate_in_more_kernels_and_passes(make_setting):
    plan = Plans.of(Plan(data=8, micro_batch=1))

    def rope(rotary):
        facts = {"elementwise": "eager", "rotary": rotary, "devices": 8, "global_batch": 8}
        return predict(make_setting(model="llama2-7b", **facts), plan).seconds["rope"][0]

    assert rope("halves") == pytest.approx(29 / 20 * rope(""), rel=0.02)


def test_only_fused_attention_reads_copies_with_the_batch_first(make_setting):
    plan = Plans.of(Plan(tensor=8, pipeline=2, data=4, micro_batch=2))

    def copied(attention, swaps):
        step = predict(make_setting(attention=attention, kernels={"swaps_batch": swaps}), plan)
        return step.seconds.get("copy", [0.0])[0]

    assert copied("flash", True) > copied("flash", False)
    assert copied("unfused", True) == copied("unfused", False)


def test_fused_softmax_takes_matrices_of_scores_by_fours(make_setting):
    setting = make_setting(
        model="gpt2-xl", attention="unfused", elementwise="fused", devices=8, global_batch=64
    )
    assert setting.model.heads == 25

    def softmax_a_sequence(micro_batch):
        step = predict(setting, Plans.of(Plan(data=8, micro_batch=micro_batch)))
        return step.seconds["softmax"][0]

    assert softmax_a_sequence(1) == pytest.approx(softmax_a_sequence(2), rel=0.1)
    assert softmax_a_sequence(2) > 2 * softmax_a_sequence(4)


def test_norms_are_repeated_only_where_nothing_else_is(make_setting):
    def repeated(recompute, **facts):
        plan = Plans.of(Plan(tensor=8, pipeline=2, data=4, recompute=recompute))
        return predict(make_setting(**facts), plan).seconds["recompute"][0]

    assert repeated("none") == 0.0 < repeated("none", kernels={"repeats_norms": True})
    assert repeated("full") == repeated("full", kernels={"repeats_norms": True})


def test_sending_parameters_rank_by_rank_grows_with_the_ranks(make_setting):
    gathered, sent = (
        [
            predict(
                make_setting(
                    devices=n, global_batch=n, gathers={"by_broadcast": by_broadcast}, model="llama2-7b"
                ),
                Plans.of(Plan(data=n, zero=1, overlap_parameters=False)),
            ).seconds["parameters"][0]
            for n in (64, 1024)
        ]
        for by_broadcast in (False, True)
    )
    assert sent[1] / sent[0] > gathered[1] / gathered[0]


def test_an_all_reduce_spans_all_copies_of_a_shard_group(make_setting):
    def reduction(scatters, shard_group):
        setting = make_setting(model="llama2-7b", devices=64, gradients={"scatter_from_zero": scatters})
        step = predict(setting, Plans.of(Plan(data=64, zero=1, shard_group=shard_group)))
        return step.communication["gradients"][0], step.seconds["gradients"][0]

    assert reduction(scatters=3, shard_group=8) == reduction(scatters=3, shard_group=0)
    assert reduction(scatters=1, shard_group=8) != reduction(scatters=1, shard_group=0)


def exposed_gradients(make_setting, parameters, per_rank=0.0):
    gradients = {"bucket_parameters": parameters, "bucket_parameters_per_rank": per_rank}
    setting = make_setting(model="llama2-7b", devices=64, gradients=gradients)
    return predict(setting, Plans.of(Plan(data=64, overlap_gradients=True))).seconds["gradients"][0]


def test_the_last_bucket_of_gradients_is_exposed(make_setting):
    assert exposed_gradients(make_setting, 5e8) < exposed_gradients(make_setting, 1e12)


def test_each_bucket_is_a_collective_with_its_own_start(make_setting):
    assert exposed_gradients(make_setting, 5e6) > exposed_gradients(make_setting, 5e8)
    grown = exposed_gradients(make_setting, 5e6, per_rank=5e8 / 64)
    assert grown == pytest.approx(exposed_gradients(make_setting, 5e8))


def test_an_activation_in_two_kernels_takes_longer_than_in_one(make_setting):
    one, two = (
        predict(
            make_setting(model="llama2-7b", kernels={"gated_activation": kernels}),
            Plans.of(Plan(tensor=8, data=8)),
        )
        for kernels in ("", "eager")
    )
    assert two.seconds["activation"] > 1.5 * one.seconds["activation"]
    assert two.seconds["elementwise"] == one.seconds["elementwise"]


def test_a_gradient_kept_as_it_comes_saves_one_addition_a_step(make_setting):
    plan = Plans.of(Plan(micro_batch=8))
    every, first_kept = (
        predict(
            make_setting(
                model="pythia-410m",
                devices=1,
                global_batch=8,
                fused_accumulation=False,
                gradients={"adds_first": adds},
                host={"seconds_per_kernel": 0.0},
            ),
            plan,
        )
        for adds in (True, False)
    )
    assert first_kept.time[0] < every.time[0]
    assert first_kept.seconds["elementwise"] == every.seconds["elementwise"]


def test_casting_a_gradient_apart_takes_more_bytes_and_launches(make_setting):
    facts = {"fused_accumulation": False, "gradient_bytes": 4, "launches_ahead": False}
    plan = Plans.of(Plan(tensor=8, pipeline=2, data=4))
    joined, apart = (predict(make_setting(gradients={"cast": cast}, **facts), plan) for cast in (False, True))
    for part in ("gemm", "launch"):
        assert apart.seconds[part][0] > joined.seconds[part][0]


def test_clearing_gradients_takes_more_bytes_and_launches_than_freeing_them(make_setting):
    facts = {
        "fused_accumulation": False,
        "gradient_bytes": 4,
        "launches_ahead": False,
    }
    plan = Plans.of(Plan(tensor=8, pipeline=2, data=4))
    freed, cleared = (
        predict(make_setting(gradients={"cast": True, "clears_working": clears}, **facts), plan)
        for clears in (False, True)
    )
    for part in ("gemm", "launch"):
        assert cleared.seconds[part][0] > freed.seconds[part][0]


@pytest.mark.parametrize("ranks", [16, 64])
def test_loops_over_the_ranks_add_to_the_step(make_setting, ranks):
    plan = Plan(data=ranks, zero=3, recompute="full", micro_batch=1)
    setting, without = (
        make_setting(framework="deepspeed-zero3-2021", devices=ranks, global_batch=2 * ranks, **changes)
        for changes in ({}, {"host": {"seconds_per_rank": 0.0}})
    )
    steps = [predict(each, Plans.of([plan])) for each in (setting, without)]
    waits = 2 * setting.model.layers * ranks * setting.framework.host.seconds_per_rank
    added = {name: steps[0].seconds[name][0] - steps[1].seconds[name][0] for name in steps[0].seconds}
    assert added.pop("launch") == pytest.approx(waits)
    assert not any(abs(seconds) > 1e-9 for seconds in added.values())
    assert simulate(setting, plan).period == pytest.approx(steps[0].time[0], rel=0.02)


def test_attention_of_eager_torch_copies_its_gradients(make_setting):
    plan = Plans.of(Plan(tensor=8, pipeline=2, data=4, micro_batch=2))
    parts = [predict(make_setting(elementwise=kind), plan).seconds for kind in ("fused", "eager")]
    assert parts[0].get("copy", 0) == 0
    assert parts[1]["copy"][0] > 0


def test_where_no_launch_time_is_given_the_device_s_own_counts(make_setting):
    setting = make_setting(host={"seconds_per_kernel": None})
    assert setting.host_seconds_per_kernel == setting.kernels.launch_seconds
    assert make_setting(host={"seconds_per_kernel": 9e-6}).host_seconds_per_kernel == 9e-6


def test_a_cpu_launches_no_kernel_ahead(make_setting):
    """On a GPU launches hide behind kernels; a CPU does one after the other."""
    setting = make_setting(devices=1, global_batch=1)
    described = setting.cluster.device.model_dump() | {"generation": "cpu"}
    cpu = replace(
        setting, cluster=build(type(setting.cluster), {**dict(setting.cluster), "device": described}, "")
    )
    plan = Plans.of(Plan())
    launches = [predict(each, plan).seconds["launch"][0] for each in (setting, cpu)]
    assert launches[0] < launches[1]


def test_blocking_launches_add_the_host_s_time_to_the_device_s(make_setting):
    """CUDA_LAUNCH_BLOCKING=1: what hides behind long kernels elsewhere is added to them."""
    plan, host = Plans.of(Plan(tensor=8)), {"devices": 8, "host": {"seconds_per_kernel": 5e-5}}
    ahead, blocking = (
        layer(make_setting(launches_ahead=value, **host), plan, LayerKind()) for value in (True, False)
    )
    waits = blocking.forward.kernels[0] - ahead.forward.kernels[0]
    assert waits == pytest.approx(5e-5 * blocking.forward.work.launches[0], rel=1e-6)


def test_the_host_launches_on_while_collectives_run(make_setting):
    """A pass takes the longer of device and host; collectives are on the device's side."""
    setting = make_setting(devices=8, host={"seconds_per_kernel": 1.0})
    forward = layer(setting, Plans.of(Plan(tensor=8)), LayerKind()).forward
    assert forward.tensor.exposed[0] > 0
    assert forward.seconds[0] == pytest.approx(forward.work.launches[0])


@pytest.mark.parametrize(("heads", "unaligned"), [(64, False), (128, True), (96, False)])
def test_heads_that_start_off_16_bytes_leave_the_tensor_cores(make_setting, heads, unaligned):
    """13824 wide: heads of 216 and 144 elements are whole multiples of 16 bytes, those of 108 are not."""
    setting = make_setting(devices=8, framework="megatron-lm-2021", precision="fp16")
    model = setting.model.model_copy(
        update={"hidden": 13824, "heads": heads, "kv_heads": heads, "head_dim": 13824 // heads}
    )
    forward = layer(replace(setting, model=model), Plans.of(Plan(tensor=8)), LayerKind()).forward
    flops = 4 * heads / 8 * setting.training.seq_len**2 * (13824 // heads)
    rate = flops / forward.work.seconds["attention"][0]
    peak = setting.cluster.device.peak("fp32")
    assert bool(rate < peak) is unaligned


@pytest.mark.parametrize("chunks", [1, 2])
def test_fetching_a_micro_batch_lengthens_its_pass_once_a_rank(make_setting, chunks):
    schedule = "interleaved" if chunks > 1 else "1f1b"
    plan = Plan(tensor=8, pipeline=2, micro_batch=2, virtual_pipeline=chunks, schedule=schedule)
    without, fetching = (
        make_setting(devices=16, global_batch=64, host={"fetch_seconds": seconds}) for seconds in (0.0, 0.02)
    )
    analytic = predict(fetching, Plans.of(plan)).time[0] - predict(without, Plans.of(plan)).time[0]
    engine, before = (run(step_program(setting, plan)).period for setting in (fetching, without))
    # 32 micro batches, and one more fetch (or half of one) that fills the pipeline.
    assert analytic == pytest.approx(33 * 0.02 if chunks == 1 else 32.5 * 0.02, rel=0.02)
    assert engine - before == pytest.approx(analytic, rel=0.03)


@pytest.mark.parametrize("stages", [1, 4])
def test_tokens_that_are_read_one_by_one_lengthen_the_last_stage(make_setting, stages):
    plan = Plan(tensor=4, pipeline=stages, data=4 // stages, micro_batch=2)
    without, reading = (
        make_setting(devices=16, global_batch=64, host={"seconds_per_token": seconds / 4096})
        for seconds in (0.0, 0.02)
    )
    before, after = (predict(setting, Plans.of(plan)) for setting in (without, reading))
    count = 64 // (2 * plan.data)
    assert after.time[0] - before.time[0] == pytest.approx(count * 0.02, rel=0.02)
    assert after.seconds["launch"][0] - before.seconds["launch"][0] == pytest.approx(count * 0.02)
    engine = [run(step_program(setting, plan)).period for setting in (without, reading)]
    assert engine[1] - engine[0] == pytest.approx(count * 0.02, rel=0.03)


def test_masks_lengthen_the_passes_of_a_pipelines_ends(make_setting):
    plan = Plan(tensor=4, pipeline=4, micro_batch=2)
    without, building = (
        make_setting(devices=16, global_batch=64, host={"mask_seconds": seconds / 2048**2})
        for seconds in (0.0, 0.02)
    )
    before, after = (predict(setting, Plans.of(plan)) for setting in (without, building))
    # 32 micro batches on the slowest stage, the last, and the first stage's pass that fills the pipeline.
    assert after.time[0] - before.time[0] == pytest.approx(33 * 0.02, rel=0.02)
    assert after.seconds["launch"][0] - before.seconds["launch"][0] == pytest.approx(32 * 0.02)
    engine = [run(step_program(setting, plan)).period for setting in (without, building)]
    assert engine[1] - engine[0] == pytest.approx(33 * 0.02, rel=0.03)
    single = Plans.of(Plan(tensor=8, data=2, micro_batch=2))
    alone = [predict(setting, single).time[0] for setting in (without, building)]
    assert alone[1] == alone[0]
    # A mask has as many elements as the sequence squared.
    longer = make_setting(seq_len=4096, host={"mask_seconds": building.framework.host.mask_seconds})
    assert longer.mask_seconds(Plans.of(plan)) == pytest.approx(4 * 0.02)


def test_an_exchange_that_the_host_waits_for_is_part_of_each_transfer(make_setting):
    plans = Plans.of(Plan(tensor=8, pipeline=2))
    plain, waiting = (
        boundary_transfer(make_setting(devices=16, host={"exchange_seconds": s}), plans).seconds[0]
        for s in (0.0, 4e-4)
    )
    assert waiting - plain == pytest.approx(4e-4)


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("dgx-h100", "megatron-bridge"),
        ("gb200-nvl72", "megatron-bridge"),
        ("dgx-a100-80gb", "megatron-core"),
        ("mi300x-8", "megatron-core"),
        ("frontier", "megatron-deepspeed"),
        ("dgx-2", "megatron-lm-2021"),
    ],
)
def test_the_default_framework_follows_the_device(cluster, name):
    data = {"model": "gpt2", "cluster": cluster, "gpus": 8, "workload": {"seq_len": 1024, "global_batch": 8}}
    data["workload"]["precision"] = "fp16"
    assert make_scenario(data, "question", Path()).setting.framework.name == name
    named = make_scenario({**data, "framework": "torch-fsdp"}, "question", Path())
    assert named.setting.framework.name == "torch-fsdp"
    with_recipe = make_scenario({**data, "recipe": "nemo-gpt3"}, "question", Path())
    assert with_recipe.setting.framework.name == "nemo"


def test_rules_name_frameworks():
    assert {rule.framework for rule in default_rules()} <= set(frameworks.names())


def test_the_page_states_the_rules():
    page = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for rule in default_rules():
        assert f"| `{rule.framework}` | {rule.why} |" in page


def test_gpt_neox_launches_as_slowly_as_the_engine_that_it_shares():
    shared, own = frameworks.get("megatron-deepspeed"), frameworks.get("gpt-neox")
    assert own.host.seconds_per_kernel == shared.host.seconds_per_kernel
    assert own.host.exchange_seconds == shared.host.exchange_seconds > 0


def test_a_default_of_tensor_parallelism_does_not_reach_a_plan_without_it():
    data = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 8, "framework": "torchtitan"}
    data |= {"workload": {"seq_len": 8192, "global_batch": 64}, "plan": {"zero": 3, "recompute": "full"}}
    assert not make_scenario(data, "question", Path()).plan.sequence_parallel
    split = make_scenario({**data, "plan": {"zero": 3, "recompute": "full", "tensor": 2}}, "question", Path())
    assert split.plan.sequence_parallel


def test_a_number_format_changes_keys_that_exist():
    own = {"name": "mine", "title": "t", "based_on": "torchtitan", "source": {}}
    wrong = {**own, "by_precision": {"bf16": {"memory": {"fragmentatoin": 1.0}}}}
    with pytest.raises(InputError, match="bf16: memory: unknown key 'fragmentatoin'; did you mean 'fragment"):
        build(Framework, wrong, "mine.yaml")
    mine = build(
        Framework, {**own, "by_precision": {"bf16": {"memory": {"fragmentation": 1.3}}}}, "mine.yaml"
    )
    assert mine.under("bf16").memory.fragmentation == 1.3
    assert mine.under("fp16").memory == mine.memory


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ({"graphs": ["none", ["router"]]}, "graphs"),
        ({"recompute_modules": ["mpl"]}, "recompute_modules"),
        ({"graph": ["none"]}, "unknown plan field 'graph'; did you mean 'graphs'"),
    ],
)
def test_a_release_offers_values_of_plan_fields(offers, message):
    own = {"name": "mine", "title": "t", "based_on": "megatron-core", "source": {}, "offers": offers}
    with pytest.raises(InputError, match=message):
        build(Framework, own, "mine.yaml")


@pytest.mark.parametrize(("name", "own"), [("megatron-bridge", "current"), ("megatron-core", "delayed")])
def test_current_scaling_takes_longer_than_delayed_whatever_the_release_does(name, own):
    question = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "framework": name}
    question["workload"] = {"seq_len": 8192, "global_batch": 8, "precision": "fp8"}

    def time(scaling: str | None, precision: str = "fp8") -> float:
        question["workload"]["precision"] = precision
        scenario = make_scenario(question | {"plan": {"zero": 1, "scaling": scaling}}, "test", Path())
        assert scenario.plan is not None
        return float(predict(scenario.setting, Plans.of(scenario.plan)).time[0])

    assert time(None) == time(own)
    assert 1.0 < time("current") / time("delayed") < 1.1
    assert time("current", "bf16") == time("delayed", "bf16")


@pytest.mark.parametrize(
    "changed",
    [
        *(
            {name: value}
            for name in ("memory", "source", "offers", "defaults", "kernels")
            for value in (7, None, [])
        ),
        {"by_precision": {"fp8": {"memory": 7}}},
        {"memory": 7, "fragmentation": 1.1},
        {"defaults": 7, "graphs": "none"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::core.errors.Notice")
def test_a_part_that_is_no_mapping_is_refused(changed):
    definition = {"name": "mine", "based_on": "megatron-core", **changed}
    with pytest.raises(InputError, match=r"mapping|dictionary|must be a"):
        build(Framework, definition, "mine.yaml")
