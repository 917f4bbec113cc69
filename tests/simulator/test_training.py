"""The analytic step: conservation, limits, and layers and steps that others measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwmodels.cluster import Cluster
from simulator.frameworks import frameworks
from simulator.models import LayerKind
from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.training import predict, step_time
from simulator.training.layer import layer

PLAN = Plan(tensor=8, pipeline=4, data=2, micro_batch=1, sequence_parallel=True, zero=1)
VARIED = [
    PLAN,
    Plan(tensor=4, pipeline=1, data=16, zero=3, sequence_parallel=True),
    Plan(tensor=2, pipeline=8, virtual_pipeline=2, data=4, schedule="interleaved", recompute="full"),
    Plan(tensor=1, pipeline=8, data=8, recompute="selective", micro_batch=2, overlap_gradients=False),
    Plan(tensor=2, context=4, pipeline=2, data=4, context_algorithm="all_gather"),
    Plan(tensor=2, context=2, pipeline=2, data=8, context_algorithm="ulysses"),
    Plan(tensor=1, pipeline=1, data=64, zero=3, shard_group=8),
    Plan(tensor=4, context=2, pipeline=1, data=8, sequence_parallel=True, overlap_tensor="full"),
]


def time(setting, plan):
    return float(predict(setting, Plans.of(plan)).time[0])


def test_the_breakdown_sums_to_the_step(make_setting):
    step = predict(make_setting(), Plans.of(VARIED))
    assert np.allclose(sum(step.seconds.values()), step.time)
    for name, seconds in step.seconds.items():
        assert np.all(seconds >= -1e-9 * step.time), name


def test_many_plans_at_once_are_each_plan_alone(make_setting):
    setting = make_setting()
    together = predict(setting, Plans.of(VARIED)).time
    alone = [time(setting, plan) for plan in VARIED]
    assert np.allclose(together, alone, rtol=1e-6)


@pytest.mark.parametrize("model", ["gpt-22b-test", "mixtral-8x7b"])
@pytest.mark.parametrize("framework", frameworks.names())
def test_a_search_scores_the_step_time_that_is_reported(make_setting, framework, model):
    setting, plans = make_setting(model, framework=framework), Plans.of(VARIED)
    assert step_time(setting, plans) == pytest.approx(predict(setting, plans).time, rel=1e-12)


@pytest.mark.parametrize("model", ["gpt-22b-test", "mixtral-8x7b"])
@pytest.mark.parametrize("framework", frameworks.names())
def test_exposed_communication_is_at_most_all_of_it(make_setting, framework, model):
    step = predict(make_setting(model, framework=framework), Plans.of(VARIED))
    for kind in step.communication:
        assert np.all(step.seconds[kind] <= step.communication[kind] * (1 + 1e-9)), kind


def test_a_faster_network_never_slows_a_step(make_setting):
    setting = make_setting()
    slow = replace(setting, cluster=setting.cluster.with_network(200).resized(64))
    fast = replace(setting, cluster=setting.cluster.with_network(3200).resized(64))
    assert np.all(predict(fast, Plans.of(VARIED)).time <= predict(slow, Plans.of(VARIED)).time * (1 + 1e-9))


def test_no_step_jumps_where_faster_links_change_which_stage_is_the_slowest():
    """Gemma 2 9B in 9, 12, 12 and 9 layers: from twice the rate of links on, the last one, with the loss."""
    data = {"model": "gemma2-9b", "cluster": "frontier", "gpus": 128, "framework": "megatron-core"}
    shape = {"tensor": 2, "sequence_parallel": True, "context": 2, "data": 8, "micro_batch": 4, "zero": 2}
    stages = {"pipeline": 4, "virtual_pipeline": 3, "schedule": "interleaved", "recompute": "full"}
    plan = {**shape, **stages, "first_stage_layers": 9, "last_stage_layers": 9, "overlap_gradients": True}
    workload = {"seq_len": 4096, "global_batch": 512, "precision": "bf16"}
    made = make_scenario({**data, "workload": workload, "plan": plan}, "test", Path())
    cluster, times = made.setting.cluster, []
    for factor in (1, 1.5, 1.75, 2, 4):
        levels = [
            level.model_copy(update={"bandwidth": factor * level.bandwidth}) for level in cluster.levels
        ]
        faster = Cluster.model_validate({**dict(cluster), "levels": levels})
        times.append(predict(replace(made.setting, cluster=faster), Plans.of(made.plan)).time[0])
    assert times == sorted(times, reverse=True)


def test_a_faster_device_shortens_a_step(make_setting):
    setting = make_setting()
    hopper = replace(setting, cluster=setting.cluster.with_device("h100-sxm"))
    assert np.all(predict(hopper, Plans.of(VARIED)).time < predict(setting, Plans.of(VARIED)).time)


def test_recomputation_costs_time_and_full_costs_more(make_setting):
    setting = make_setting()
    none, selective, full = (
        time(setting, PLAN.model_copy(update={"recompute": r})) for r in ("none", "selective", "full")
    )
    assert none < selective < full < 1.5 * none


def test_the_bubble_follows_the_stages_and_micro_batches(make_setting):
    """(p-1)/m of the ideal time without virtual stages (Narayanan et al. 2021, section 2.2)."""
    setting = make_setting(devices=8, global_batch=64)
    step = predict(setting, Plans.of(Plan(tensor=1, pipeline=8, overlap_pipeline=True)))
    busy = sum(
        v for k, v in step.seconds.items() if k not in ("bubble", "pipeline", "gradients", "optimizer")
    )
    assert float((step.seconds["bubble"] / busy)[0]) == pytest.approx(7 / 64, rel=0.25)


def test_interleaving_shrinks_the_bubble(make_setting):
    setting = make_setting(devices=64, global_batch=16)
    plain = Plan(tensor=8, pipeline=8, sequence_parallel=True)
    chunked = plain.model_copy(update={"schedule": "interleaved", "virtual_pipeline": 6})
    step = predict(setting, Plans.of([plain, chunked]))
    assert step.seconds["bubble"][1] < 0.4 * step.seconds["bubble"][0]


def test_overlap_hides_gradients(make_setting):
    setting = make_setting(devices=64)
    plan = Plan(tensor=8, data=8, micro_batch=8, sequence_parallel=True)
    shown, hidden = (
        predict(setting, Plans.of(plan.model_copy(update={"overlap_gradients": overlap}))).seconds[
            "gradients"
        ][0]
        for overlap in (False, True)
    )
    assert hidden < 0.5 * shown


@pytest.mark.parametrize(
    ("changes", "forward_ms", "backward_ms"),
    [
        ({}, 7.7, 11.9),
        ({"sequence_parallel": True}, 7.2, 11.8),
        ({"recompute": "full"}, 7.7, 19.5),
        ({"recompute": "selective"}, 7.7, 13.2),
        ({"recompute": "selective", "sequence_parallel": True}, 7.2, 13.1),
    ],
)
def test_one_layer_takes_what_korthikanti_et_al_measured(make_setting, changes, forward_ms, backward_ms):
    """Table 4 of arXiv 2205.05198: one layer of the 22B model on eight A100, micro batch 4."""
    setting = make_setting(devices=8, framework="megatron-lm-2022", precision="fp16")
    plan = Plans.of(Plan(tensor=8, micro_batch=4, overlap_tensor="backward", **changes))
    one = layer(setting, plan, LayerKind())
    backward = one.backward_input.seconds + one.backward_weight.seconds + one.recompute.seconds
    assert float(one.forward.seconds[0]) * 1e3 == pytest.approx(forward_ms, rel=0.08)
    assert float(backward[0]) * 1e3 == pytest.approx(backward_ms, rel=0.08)


@pytest.mark.parametrize(
    ("model", "devices", "batch", "plan", "seconds"),
    [
        ("gpt-1.7b", 32, 512, Plan(data=32, micro_batch=16, recompute="full"), 3.528),
        ("gpt-18.4b", 256, 1024, Plan(tensor=8, data=32, micro_batch=8, recompute="full"), 9.399),
        ("gpt-1t", 3072, 3072, Plan(tensor=8, pipeline=64, data=6, recompute="full"), 102.63),
    ],
)
def test_steps_that_narayanan_et_al_measured(make_setting, model, devices, batch, plan, seconds):
    """Table 1 of arXiv 2104.04473, step time from the printed TFLOP/s."""
    setting = make_setting(
        model=model, devices=devices, global_batch=batch, precision="fp16", framework="megatron-lm-2021"
    )
    defaults = {"overlap_gradients": False, "overlap_parameters": False, "overlap_tensor": "none"}
    assert time(setting, plan.model_copy(update=defaults)) == pytest.approx(seconds, rel=0.08)


def test_experts_cost_more_than_a_dense_layer_of_one_expert_and_less_than_all(make_setting):
    setting = make_setting(model="mixtral-8x7b", cluster="dgx-h100", devices=8, seq_len=4096)
    plan = Plans.of(Plan(tensor=1, data=8, expert=8))
    dense, experts = (
        layer(setting, plan, LayerKind(experts=e)).forward.work.device[0] for e in (False, True)
    )
    assert dense < experts < 8 * dense


def test_launching_bounds_a_tiny_step(make_setting):
    setting = make_setting(model="pythia-70m", devices=1, seq_len=128, global_batch=1)
    quick = replace(setting, framework=setting.framework.changed({"host": {"seconds_per_kernel": 0.0}}))
    plan = Plans.of(Plan())
    assert predict(setting, plan).seconds["launch"][0] > 0
    assert predict(quick, plan).time[0] < predict(setting, plan).time[0]


NVLINK = {"cluster": "dgx-h100", "devices": 8, "model": "llama3-8b", "seq_len": 8192}


def scalar(values):
    return float(np.asarray(values).reshape(-1)[0])


def one_layer(setting, **plan):
    return layer(setting, Plans.of(Plan(sequence_parallel=plan.get("tensor", 1) > 1, **plan)), LayerKind())


def test_cutting_products_for_tensor_parallel_traffic_costs_tiles_and_hides_traffic(make_setting):
    setting = make_setting(**NVLINK)
    whole, cut = (one_layer(setting, tensor=8, overlap_tensor=overlap) for overlap in ("backward", "full"))
    assert scalar(cut.forward.work.seconds["gemm"]) > scalar(whole.forward.work.seconds["gemm"])
    assert scalar(cut.forward.tensor.exposed) < scalar(whole.forward.tensor.exposed)
    assert scalar(cut.backward_weight.work.device) == scalar(whole.backward_weight.work.device)


def test_attention_cannot_hide_its_traffic_behind_the_mlp(make_setting):
    """The output projection is a seventh of the MLP's: what it cannot hide shows though the MLP could."""
    setting = make_setting(**NVLINK, precision="fp8")
    forward = one_layer(setting, tensor=4, overlap_tensor="full").forward
    rest = 0.75 * (1 - 16 / 132)
    assert scalar(forward.tensor.exposed) > (1 - rest) * scalar(forward.tensor.total) / 2


def test_8_bit_operands_travel_in_8_bits(make_setting):
    wide, narrow = (
        one_layer(make_setting(**NVLINK, precision=precision), tensor=8, overlap_tensor="none")
        for precision in ("bf16", "fp8")
    )
    assert scalar(narrow.forward.tensor.total) < 0.8 * scalar(wide.forward.tensor.total)


def test_ring_attention_pays_for_merging_its_blocks(make_setting):
    setting = make_setting(**NVLINK)
    alone, ring, gathered = (
        one_layer(setting, context=context, micro_batch=context, context_algorithm=algorithm)
        for context, algorithm in ((1, "ring"), (4, "ring"), (4, "all_gather"))
    )
    copies = [scalar(each.forward.work.seconds["copy"]) for each in (alone, ring, gathered)]
    # Query, key and value come out of one projection in all three; only the ring merges.
    assert copies[1] > 2 * copies[0] == pytest.approx(2 * copies[2])


def test_recomputing_every_other_product_lies_between_the_core_and_everything(make_setting):
    def repeated(**framework):
        setting = make_setting(**NVLINK, framework="torch-fsdp", **framework)
        return scalar(one_layer(setting, recompute="selective").recompute.work.device)

    setting = make_setting(**NVLINK, framework="torch-fsdp")
    everything = scalar(one_layer(setting, recompute="full").recompute.work.device)
    half = repeated(selective="every-other-product")
    assert 0.25 * everything < half < 0.5 * everything


def test_a_stack_of_activations_costs_copies_of_what_is_kept(make_setting):
    setting = make_setting(**NVLINK, framework="maxtext")
    copies = [
        scalar(one_layer(setting, recompute=recompute).forward.work.seconds["copy"])
        for recompute in ("none", "selective", "full")
    ]
    assert copies == sorted(copies, reverse=True)
    assert copies[0] > 2 * copies[1] > 4 * copies[2] > 0


def test_newer_attention_meets_the_power_limit_of_hopper(make_setting):
    kernels = make_setting(**NVLINK).cluster.device.kernels.uncorrected()
    shape = {"batch": 1, "seq_q": 8192, "seq_kv": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128}
    for library, slower in (("", 1.068), ("flash-attention-2", 1.0)):
        own = kernels.using(library)
        burst, steady = (float(each.attention(**shape)) for each in (own, own.sustained()))
        assert 1.0 <= steady / burst <= slower
    assert float(kernels.sustained().attention(**shape)) > 1.03 * float(kernels.attention(**shape))


def test_context_parallel_ranks_exchange_values_of_their_own_width(make_setting):
    """DeepSeek-V3's keys are 192 wide, its values 128."""
    setting = make_setting("deepseek-v3", cluster="dgx-h100")
    plans = Plans.of(Plan(context=2, data=32))
    narrow, wide = (
        layer(replace(setting, model=setting.model.model_copy(update={"mla": mla})), plans, LayerKind())
        for mla in (setting.model.mla, setting.model.mla.model_copy(update={"v_head_dim": 192}))
    )
    assert wide.forward.context.total == pytest.approx(narrow.forward.context.total * 384 / 320, rel=0.03)
