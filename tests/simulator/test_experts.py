"""Layers with experts: products, casts, dispatch, and the host that launches them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodels.collectives.cost import Cost
from simulator.layout.model_ops import ModelOps
from simulator.layout.parameters import parameters
from simulator.layout.stages import FIRST, LAST, Stages
from simulator.models import LayerKind
from simulator.ops.experts import arrivals
from simulator.ops.op import MemoryBound
from simulator.plan import Plan, Plans
from simulator.pricing import price
from simulator.training import predict
from simulator.training.activations import kept_by_layers
from simulator.training.ends import head
from simulator.training.layer import _alternate, layer, layer_ops
from simulator.training.memory import memory
from simulator.training.overlap import NO_TRANSFER, Transfer, contention, multiprocessors_taken
from simulator.training.pass_costs import PassCosts
from simulator.training.work import KernelTimes, price_passes

EXPERTS = LayerKind(experts=True)
EIGHT = Plans.of(Plan(data=8, expert=8, micro_batch=4))


def experts(make_setting, model="mixtral-8x7b", devices=8, **changes):
    chosen = {"cluster": "dgx-h100", "seq_len": 4096, "global_batch": 256, "framework": "nemo"} | changes
    return make_setting(model, devices=devices, **chosen)


def work_of_mlp(setting, plans, gradient="", products=None):
    """Kernels of the MLP with experts; its products and their casts only, or all but those."""
    priced = price_passes(setting, layer_ops(setting, plans, EXPERTS))[0]
    chosen = [each for each in priced if each.op.part in ("mlp", "routed") and each.op.gradient == gradient]
    linear = [bool(each.op.role) or each.op.name.endswith(".cast") for each in chosen]
    return KernelTimes.of(
        each for each, is_linear in zip(chosen, linear, strict=True) if products in (None, is_linear)
    )


def copies_of_a_token(setting, plans):
    return arrivals(setting.rank(plans), setting.model.moe)


def exchange(setting, plans):
    return layer(setting, plans, EXPERTS).forward.expert.total


def test_one_expert_a_device_costs_the_dense_product_of_its_tokens(make_setting):
    setting = experts(make_setting)
    kernels = setting.kernels
    tokens = 4 * 4096 * 2
    dense = sum(
        max(float(kernels.gemm(tokens, n, k)), float(kernels.settled_seconds(2 * tokens * n * k, "bf16")))
        for n, k in ((2 * 14336, 4096), (4096, 14336))
    )
    grouped = work_of_mlp(setting, EIGHT).seconds["grouped_gemm"][0]
    assert grouped == pytest.approx(dense, rel=0.03)


@pytest.mark.parametrize("device", ["b200", "h100-sxm"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_a_training_step_asks_no_more_of_experts_than_dense_products_reach(make_setting, device, dtype):
    """Serving's grouped tables, extrapolated, promised 3,600 TFLOP/s where B200 sustains 2,800."""
    setting = experts(make_setting, precision=dtype)
    setting = replace(setting, cluster=setting.cluster.with_device(device))
    kernels = setting.kernels
    grouped = work_of_mlp(setting, EIGHT).seconds["grouped_gemm"][0]
    rate = 2 * 4 * 4096 * 2 * 3 * 14336 * 4096 / grouped
    best = 2 * 16384**3 / float(kernels.gemm(16384, 16384, 16384, dtype))
    assert 0.7 * best < rate < 1.03 * best


def test_eight_bits_cast_what_experts_read(make_setting):
    wide, narrow = (
        work_of_mlp(experts(make_setting, precision=p), EIGHT, products=True) for p in ("bf16", "fp8")
    )
    routed = 4 * 4096 * 2
    cast = narrow.seconds["elementwise"][0]
    assert "elementwise" not in wide.seconds
    assert cast > 4 * routed * (4096 + 14336) / 3.35e12


def test_flex_sends_one_copy_to_a_rank_and_between_nodes_one_to_a_node(make_setting):
    plans = Plans.of([Plan(data=64, expert=e) for e in (8, 16, 64)])
    setting = experts(make_setting, "deepseek-v3", 64, dispatcher="flex")
    inside, two, eight = copies_of_a_token(setting, plans)
    # DeepSeek-V3 chooses a token's 8 experts in 4 of 8 groups.
    assert inside == pytest.approx(4)
    assert two == pytest.approx(2 * (1 - 0.5**4))
    assert eight == pytest.approx(4)
    anywhere = experts(make_setting, "qwen3-235b-a22b", 64, dispatcher="flex")
    assert copies_of_a_token(anywhere, plans) == pytest.approx(
        [8 * (1 - (7 / 8) ** 8), 2 * (1 - 0.5**8), 8 * (1 - (7 / 8) ** 8)]
    )
    plain = experts(make_setting, "deepseek-v3", 64)
    assert np.all(copies_of_a_token(plain, plans) == 8)


def test_flex_between_nodes_leaves_a_node_to_the_all_to_all(make_setting):
    plans = Plans.of([Plan(data=64, expert=8), Plan(data=64, expert=16)])
    words = ("all-to-all", "flex-between-nodes", "flex")
    settings = [experts(make_setting, "deepseek-v3", 64, dispatcher=word) for word in words]
    plain, mixed, flex = (exchange(setting, plans) for setting in settings)
    assert mixed == pytest.approx([plain[0], flex[1]])
    copies = [work_of_mlp(setting, plans).seconds["copy"] for setting in settings]
    assert copies[1] == pytest.approx([copies[0][0], copies[2][1]])


def test_flex_takes_less_time_between_nodes(make_setting):
    plans = Plans.of(Plan(data=64, expert=64))
    slow, fast = (
        exchange(experts(make_setting, "deepseek-v3", 64, dispatcher=d), plans)[0]
        for d in ("all-to-all", "flex")
    )
    assert 0.4 * slow < fast < 0.7 * slow


def test_an_all_to_all_sorts_again_where_a_rank_has_several_experts(make_setting):
    one, several = (
        work_of_mlp(experts(make_setting, devices=8), Plans.of(Plan(data=8, expert=e, micro_batch=32)))
        for e in (8, 4)
    )
    copies = [mlp.seconds["copy"][0] for mlp in (one, several)]
    assert copies[1] / copies[0] == pytest.approx((2 * 3 + 4 * 2) / (2 * 3), rel=0.02)


def test_biases_of_experts_are_kernels_of_their_own(make_setting):
    setting = experts(make_setting, "gpt-oss-120b")
    without = replace(setting, model=setting.model.model_copy(update={"bias": False}))
    local = 128 / 8
    with_bias, plain = (work_of_mlp(s, EIGHT, products=False) for s in (setting, without))
    assert with_bias.launches == plain.launches + 2 * local
    with_bias, plain = (work_of_mlp(s, EIGHT, "input", products=False) for s in (setting, without))
    assert with_bias.device[0] > plain.device[0]


def test_normalised_heads_cost_norms(make_setting):
    setting = experts(make_setting, "qwen3-30b-a3b")
    without = replace(setting, model=setting.model.model_copy(update={"qk_norm": False}))
    norms = [layer(s, EIGHT, EXPERTS).forward.work.seconds["norm"][0] for s in (setting, without)]
    tokens = 4 * 4096
    assert norms[0] - norms[1] > 2 * 2 * tokens * 36 * 128 / 3.35e12


def test_a_slow_host_slows_small_micro_batches_and_graphs_help(make_setting):
    setting = make_setting(
        "qwen3-30b-a3b", "gb200-nvl72", 8, "megatron-bridge", seq_len=4096, global_batch=64, precision="mxfp8"
    )
    plans = Plans.of(Plan(data=8, expert=8, zero=1))
    quick = replace(setting, cluster=setting.cluster.model_copy(update={"host_slowdown": 1.0}))
    bare = setting.with_choices(graphs="none")
    graphs, fast, slow = (float(predict(s, plans).time[0]) for s in (setting, quick, bare))
    assert slow > 1.5 * fast
    assert fast < graphs < 0.8 * slow


def test_processes_that_are_not_bound_launch_more_slowly(make_setting):
    """By the hosts' own figures: two sockets of x86 lose less than the Grace of a tray."""
    plans = Plans.of(Plan(data=8, expert=8, zero=1))
    for cluster, slowdown in (("dgx-h100", 1.2), ("gb200-nvl72", 1.5)):
        setting = make_setting("qwen3-30b-a3b", cluster, 8, "megatron-core", seq_len=1024, global_batch=64)
        bound, loose = (setting.with_choices(graphs="none", binds_processes=binds) for binds in (True, False))
        assert loose.host_seconds_per_kernel == pytest.approx(slowdown * bound.host_seconds_per_kernel)
        assert 1.1 < float(predict(loose, plans).time[0] / predict(bound, plans).time[0]) < slowdown + 1e-6


def test_both_backward_products_share_the_host(make_setting):
    setting = make_setting()
    inputs, weights = (
        PassCosts(KernelTimes(), NO_TRANSFER, NO_TRANSFER, NO_TRANSFER, setting) for _ in range(2)
    )
    inputs.work.add("gemm", np.array([1e-3, 0.0]), 90)
    weights.work.add("gemm", np.array([3e-3, 0.0]), 10)
    _alternate(inputs, weights)
    assert inputs.work.launches == pytest.approx([25, 50])
    assert weights.work.launches == pytest.approx([75, 50])


def test_the_host_launches_weight_gradients_while_others_wait_for_links(make_setting):
    """A backward pass takes what the device needs, or all launches: not the longer of each part."""
    setting = make_setting()
    sends = Transfer(Cost(np.array([3e-3]), Cost.none((1,)).links))
    inputs = PassCosts(KernelTimes(), sends, NO_TRANSFER, NO_TRANSFER, setting)
    weights = PassCosts(KernelTimes(), NO_TRANSFER, NO_TRANSFER, NO_TRANSFER, setting)
    launched = 3.5e-3 / setting.host_seconds_per_kernel
    inputs.work.add("gemm", np.array([0.5e-3]), launched / 2)
    weights.work.add("gemm", np.array([0.5e-3]), launched / 2)
    _alternate(inputs, weights)
    kernels = 1e-3 * setting.pace
    assert inputs.seconds + weights.seconds == pytest.approx(max(kernels + 3e-3, 3.5e-3))


def test_multi_token_prediction_sits_on_a_last_stage_that_makes_room_for_it(make_setting):
    """Megatron Bridge's layouts of DeepSeek-V3: 4 layers a chunk, the last chunk has 1 and the prediction."""
    setting = experts(make_setting, "deepseek-v3", 256, framework="megatron-bridge")
    plans = Plans.of(
        [
            Plan(pipeline=16, data=16, expert=8),
            Plan(pipeline=4, virtual_pipeline=4, data=64, expert=64, schedule="interleaved"),
            Plan(pipeline=8, virtual_pipeline=4, data=32, expert=32, schedule="interleaved"),
        ]
    )
    stages = Stages.of(setting, plans)
    assert stages.total[FIRST].tolist() == [4, 16, 7]
    assert stages.total[1:LAST].max(axis=0).tolist() == [4, 16, 8]
    assert stages.total[LAST].tolist() == [1 + 1, 13 + 1, 6 + 1]
    without = setting.with_choices(trains_mtp=False)
    assert Stages.of(without, plans).total[LAST].max() < 16


def test_multi_token_prediction_passes_the_output_layer_again(make_setting):
    setting = experts(make_setting, "deepseek-v3", 256, framework="megatron-bridge")
    without = setting.with_choices(trains_mtp=False)
    twice, once = (head(s, Plans.of(Plan(data=256, expert=64))).forward.work for s in (setting, without))
    assert twice.seconds["cross_entropy"] == pytest.approx(2 * once.seconds["cross_entropy"])
    assert twice.seconds["gemm"][0] > 2 * once.seconds["gemm"][0]


def test_further_predictions_of_a_block_pass_its_layers_and_the_output_layer(make_setting):
    setting = experts(make_setting, "nemotron-3-super-120b-a12b", 64, framework="megatron-bridge")
    without = setting.with_choices(trains_mtp=False)
    plans = Plans.of(Plan(data=64, expert=64))
    times, once = (head(s, plans).forward.work.seconds["cross_entropy"] for s in (setting, without))
    assert times == pytest.approx(3 * once)
    layers, own = (Stages.of(s, plans).total.sum() for s in (setting, without))
    assert layers == own + 4
    kinds = [(kind.mixer, kind.experts) for kind in setting.model.layer_groups]
    added = Stages.of(setting, plans).layers - Stages.of(without, plans).layers
    by_kind = dict(zip(kinds, added[FIRST, :, 0], strict=True))
    assert by_kind == {("linear", False): 0, ("none", True): 2, ("full", False): 2}


@pytest.mark.parametrize(("expert", "dispatcher"), [(8, "flex"), (64, "all-to-all")])
def test_an_exchange_beside_kernels_hides_no_more_than_they_last(make_setting, expert, dispatcher):
    setting = experts(make_setting, "qwen3-30b-a3b", 64, dispatcher=dispatcher)
    apart, beside = (
        layer(setting, Plans.of(Plan(data=64, expert=expert, overlap_expert=overlap)), EXPERTS)
        for overlap in (False, True)
    )
    for one, other in ((apart.forward, beside.forward), (apart.backward_input, beside.backward_input)):
        assert other.expert.total[0] == one.expert.total[0] == one.expert.exposed[0]
        assert 0 < other.expert.beside[0] <= other.expert.total[0]
        assert other.expert.paired[0] < other.expert.exposed[0] < other.expert.total[0]
    passes = beside.forward, beside.backward_input, beside.backward_weight
    kernels = sum(costs.work.device[0] for costs in passes)
    gained = beside.forward.expert.gained[0] + beside.backward_input.expert.gained[0]
    total = beside.forward.expert.total[0] + beside.backward_input.expert.total[0]
    assert 0.39 * min(total, kernels) < gained <= min(total, kernels) * (1 + 1e-9)


@pytest.mark.parametrize("cluster", ["dgx-b200", "dgx-h100"])
def test_an_exchange_with_experts_slows_kernels_as_other_collectives_do_inside_a_node(make_setting, cluster):
    """Between nodes its kernels hold multiprocessors until the network has delivered."""
    plans = Plans.of(Plan(data=64, expert=expert, overlap_expert=True) for expert in (8, 64))
    setting = experts(make_setting, "qwen3-30b-a3b", 64, cluster=cluster)
    exchange = layer(setting, plans, EXPERTS).forward.expert
    sent = exchange.cost.bytes.sum(axis=0)
    inside, between = contention(setting, plans.expert, 1, exchange.cost.seconds, lambda: sent)
    least = setting.cluster.device.generation.exchange_slowdown
    assert exchange.slows == pytest.approx([inside, max(between, least)])
    assert inside > multiprocessors_taken(setting)


def test_full_recomputation_repeats_the_exchange_in_the_open(make_setting):
    setting = experts(make_setting)
    plan = Plan(data=8, expert=8, micro_batch=4, recompute="full", overlap_expert=True)
    again = layer(setting, Plans.of(plan), EXPERTS).recompute
    assert again.expert.exposed[0] == again.expert.total[0] > 0


def test_casts_are_slower_on_blackwell_than_other_elementwise_kernels(make_setting):
    kernels = experts(make_setting, cluster="dgx-b200").kernels
    # Transformer Engine casts 8192 x 8192 values by rows and columns in 52.3 us (ROCm/TransformerEngine 598).
    assert float(kernels.memory_bound(4 * 8192**2, "quantize_fp8")) == pytest.approx(52.3e-6, rel=0.02)


@pytest.mark.parametrize(
    ("selective", "context", "expert"),
    [("core", 1, 0), ("all-but-projections", 1, 1), ("every-other-product", 0, 0)],
)
def test_selective_recomputation_repeats_the_exchanges_of_what_it_repeats(
    make_setting, selective, context, expert
):
    setting = experts(make_setting, selective=selective)
    plans = Plans.of(Plan(context=2, data=4, expert=8, context_algorithm="ulysses", recompute="selective"))
    once = layer(setting, plans, EXPERTS)
    assert once.recompute.context.total == pytest.approx(context * once.forward.context.total)
    assert once.recompute.expert.total == pytest.approx(expert * once.forward.expert.total)


def test_a_graph_of_the_backward_pass_repeats_the_core_too(make_setting):
    chosen = {"framework": "megatron-bridge", "global_batch": 64}
    plans = Plans.of(Plan(data=8, expert=8, recompute="selective"))
    repeated = [
        layer(experts(make_setting, "qwen3-30b-a3b", cluster=cluster, **chosen), plans, EXPERTS).recompute
        for cluster in ("dgx-h100", "gb200-nvl72")
    ]
    assert repeated[0].work.launches[0] > 0
    assert repeated[1].work.launches[0] == 0


@pytest.mark.parametrize(
    ("model", "has_experts", "collectives"),
    [("llama3-8b", False, 4), ("mixtral-8x7b", True, 2), ("deepseek-v3", True, 4), ("falcon-40b", False, 2)],
)
def test_collectives_are_launched_once_a_block_that_is_sharded(make_setting, model, has_experts, collectives):
    """Falcon's attention and MLP share theirs; of Mixtral's experts none is sharded over tensor ranks."""
    setting = experts(make_setting, model)
    alone, sharded = (
        layer(setting, Plans.of(plan), LayerKind(experts=has_experts)).forward.work.launches
        for plan in (Plan(data=8), Plan(tensor=2, data=4, sequence_parallel=True))
    )
    assert sharded - alone == collectives


def casts(make_setting, **changes):
    setting = experts(make_setting, "qwen3-30b-a3b", precision="mxfp8", cluster="dgx-b200", **changes)
    ops = layer_ops(setting, EIGHT, EXPERTS)
    return {op.name: op for op in ops if op.name.startswith("expert_")}


def test_casts_are_one_kernel_an_expert_unless_a_format_shares_them(make_setting):
    local = 128 / 8
    each = casts(make_setting, framework="megatron-bridge")["expert_up.cast"]
    shared = casts(make_setting, framework="megatron-bridge", casts={"shared": ["mxfp8"]})["expert_up.cast"]
    assert (each.launches + each.looped, shared.launches + shared.looped) == (local, 1)
    assert each.bytes == shared.bytes


def test_every_start_of_a_kernel_takes_the_device_time(make_setting):
    setting = experts(make_setting)
    once = MemoryBound(name="once", kind="elementwise", bytes=1e8)
    often = replace(once, starts=11.0)
    seconds = price([once, often], setting.prices)
    assert seconds[1] - seconds[0] == pytest.approx(10 * float(setting.kernels.memory_bound(0.0)))


def test_a_fused_mlp_activates_and_casts_inside_its_products(make_setting):
    plain = casts(make_setting, framework="megatron-bridge")
    fused = casts(make_setting, framework="megatron-bridge", grouped_launches="fused-mlp")
    assert "expert_up.swizzle" in plain and "expert_up.swizzle" not in fused
    assert not np.any(fused["expert_activation"].bytes) and np.all(fused["expert_activation"].saved > 0)
    assert not np.any(fused["expert_down.cast"].bytes) and np.all(fused["expert_up.cast"].bytes > 0)


def test_the_host_of_a_fused_mlp_works_on_each_expert(make_setting):
    """Transformer Engine, issue 2897: 64 experts on GB200; only the MLP's own kernels count."""
    chosen = {"cluster": "gb200-nvl72", "framework": "megatron-bridge", "precision": "mxfp8"}
    setting = experts(make_setting, "qwen3-30b-a3b", **chosen, grouped_launches="fused-mlp")
    plans = Plans.of(Plan(data=8, expert=2))
    ops = [op for op in layer_ops(setting, plans, EXPERTS) if op.module.startswith("expert_")]
    forward = sum(float(op.launches[0] if np.ndim(op.launches) else op.launches) for op in ops)
    backward = sum(float(np.ravel(back.launches)[0]) for op in ops for back in op.backward())
    assert forward * setting.host_seconds_per_kernel == pytest.approx(1.2e-3, rel=0.1)
    assert backward * setting.host_seconds_per_kernel == pytest.approx(2.1e-3, rel=0.1)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_host_that_reads_token_counts_cannot_make_up_for_late_launches(make_setting, overlap):
    """Kernels that wait in the queue hide launches, but for those of experts after the read."""
    chosen = {"framework": "megatron-bridge", "global_batch": 64, "graphs": "attention"}
    plans = Plans.of(Plan(data=8, expert=8, overlap_expert=overlap))
    reading, capacity = (
        layer(
            experts(make_setting, "qwen3-30b-a3b", host={"reads_token_counts": reads}, **chosen),
            plans,
            EXPERTS,
        )
        for reads in (True, False)
    )
    assert (reading.forward.seconds[0] > capacity.forward.seconds[0]) is not overlap
    assert reading.backward_input.seconds[0] == capacity.backward_input.seconds[0]


def test_a_fixed_capacity_takes_more_launches_and_no_read(make_setting):
    plans = Plans.of(Plan(data=64, expert=64))
    open_, fixed = (
        layer(experts(make_setting, "qwen3-30b-a3b", 64, fixed_capacity=fixed), plans, EXPERTS).forward
        for fixed in (False, True)
    )
    assert float(np.ravel(fixed.work.launches - open_.work.launches)[0]) == 20.0
    assert np.all(open_.reads) and not np.any(fixed.reads)


def test_latent_heads_rotated_in_torch_take_many_launches(make_setting):
    plans = Plans.of(Plan(data=64, expert=64))
    fused, chain = (
        layer(experts(make_setting, "deepseek-v3", 64, fused_latent_rope=fused), plans, EXPERTS)
        for fused in (True, False)
    )
    assert float(np.ravel(chain.forward.work.launches - fused.forward.work.launches)[0]) == 27.0
    assert chain.forward.work.seconds["rope"][0] > 2 * fused.forward.work.seconds["rope"][0]
    assert chain.forward.work.seconds["attention"] == fused.forward.work.seconds["attention"]
    dense = [
        layer(experts(make_setting, "mixtral-8x7b", fused_latent_rope=fused), EIGHT, EXPERTS).forward.seconds
        for fused in (True, False)
    ]
    assert dense[0] == dense[1]


def test_graphs_of_more_modules_leave_fewer_launches(make_setting):
    launches = []
    for graphs in ("none", "router", "attention", "layer", "step"):
        setting = experts(make_setting, "deepseek-v3", 64, framework="megatron-bridge", graphs=graphs)
        plan = Plans.of(Plan(data=64, expert=64))
        made = [layer(setting, plan, LayerKind(experts=each)).forward.work.launches for each in (True, False)]
        launches.append([float(np.ravel(each)[0]) for each in made])
    with_experts, dense = zip(*launches, strict=True)
    assert list(with_experts[:3]) == sorted(set(with_experts[:3]), reverse=True)
    assert with_experts[2] == with_experts[3] > with_experts[4] == 1
    assert dense[0] > dense[2] > dense[3] == dense[4] == 1


def test_a_library_on_a_fabric_has_its_own_rate(make_setting):
    plans = Plans.of(Plan(data=64, expert=64))
    times = [
        exchange(
            experts(make_setting, "qwen3-30b-a3b", 64, cluster="aws-p5", dispatcher="flex", **library), plans
        )[0]
        for library in ({}, {"dispatcher_library": "nvshmem"}, {"dispatcher_library": "uccl"})
    ]
    assert times == sorted(times) and times[2] > 5 * times[0]


def test_an_all_to_all_over_efa_is_slower_in_steps_than_in_benchmarks_among_more_than_two_nodes(make_setting):
    setting = experts(make_setting, "qwen3-30b-a3b", 64, cluster="aws-p5", dispatcher="all-to-all")
    for nodes, share in ((1, 1.0), (2, 1.0), (4, 0.41)):
        plans = Plans.of(Plan(data=64, expert=8 * nodes))
        sent = next(
            op for op in layer_ops(setting, plans, EXPERTS) if op.name == "expert.dispatch_and_combine"
        )
        assert sent.speedup == pytest.approx(share)
    elsewhere = experts(make_setting, "qwen3-30b-a3b", 64, cluster="dgx-h100", dispatcher="all-to-all")
    assert elsewhere.implementation.exchange_share == 1.0


def test_gradients_of_an_input_with_several_readers_are_added_up(make_setting):
    """Router, routed and shared experts read the layer's input; latent attention has two down projections."""
    sums = {"mixtral-8x7b": 1, "deepseek-v3": 2}
    for model, number in sums.items():
        setting = experts(make_setting, model, framework="megatron-bridge")
        ops = {op.name: op for op in layer_ops(setting, EIGHT, EXPERTS)}
        added = ops["experts_input_sum"]
        assert added.repeats == number and added.bytes == 0
        assert added.backward_bytes == pytest.approx(3 * 2 * 4 * 4096 * setting.model.hidden)
        assert ("experts_output_sum" in ops) == ("projections_sum" in ops) == (model == "deepseek-v3")


def test_a_compiler_joins_sums_to_their_neighbours(make_setting):
    moved, launched = [], []
    for framework in ("torchtitan", "torchtitan-eager"):
        setting = experts(make_setting, "deepseek-v3", framework=framework)
        ops = [op for op in layer_ops(setting, EIGHT, EXPERTS) if op.name.endswith("_sum")]
        moved.append(sum(float(op.repeats * (op.bytes + op.backward_bytes).item()) for op in ops))
        launched.append(sum(float(op.launches + op.backward_launches) for op in ops))
    assert moved[1] == pytest.approx(3 * moved[0])
    assert launched[0] == 0 and launched[1] > 0


def test_limits_of_an_activation_are_kernels_of_their_own_where_a_framework_does_so(make_setting):
    apart, fused = (
        experts(make_setting, "gpt-oss-120b", framework="megatron-bridge", kernels={"clamps_apart": apart})
        for apart in (True, False)
    )
    names = [{op.name for op in layer_ops(setting, EIGHT, EXPERTS)} for setting in (apart, fused)]
    assert names[0] - names[1] == {"expert_clamp"}


def test_kernels_that_cast_element_by_element_wait_on_a_fast_memory(make_setting):
    longer = []
    for cluster in ("dgx-h100", "dgx-b200"):
        setting = experts(make_setting, "gpt-oss-120b", framework="megatron-bridge", cluster=cluster)
        bias = next(op for op in layer_ops(setting, EIGHT, EXPERTS) if op.name == "expert_bias")
        casting, plain = price([bias, bias.changed(casts=0.0)], setting.prices)
        longer.append(float((casting / plain).item()))
    assert 1 < longer[0] < longer[1] / 1.2


def test_a_rotation_that_scales_heads_is_not_fused(make_setting):
    rotary = [
        next(
            op
            for op in layer_ops(experts(make_setting, model, framework="megatron-bridge"), EIGHT, EXPERTS)
            if op.name == "rope"
        )
        for model in ("gpt-oss-120b", "qwen3-30b-a3b")
    ]
    assert rotary[0].launches > 10 * rotary[1].launches


def test_a_window_with_sinks_computes_masked_blocks_where_the_release_does(make_setting):
    sliding = LayerKind("sliding", True)
    masked, skipped = (
        layer(
            experts(
                make_setting,
                "gpt-oss-120b",
                framework="megatron-bridge",
                kernels={"sinks_skip_blocks": skips},
            ),
            EIGHT,
            sliding,
        ).forward.work.seconds["attention"][0]
        for skips in (False, True)
    )
    assert skipped < masked


def test_a_kernel_that_skips_no_blocks_attends_to_whole_sequences(make_setting):
    kinds = LayerKind("sliding", True), LayerKind("full", True)
    times = [
        [
            layer(
                experts(make_setting, "gpt-oss-120b", skips_blocks=skips), EIGHT, kind
            ).forward.work.seconds["attention"][0]
            for kind in kinds
        ]
        for skips in (True, False)
    ]
    assert times[0][0] < times[0][1] == times[1][1] == times[1][0]


MODULES_OF = {"framework": "megatron-bridge", "global_batch": 64}


def recomputed(make_setting, *modules, model="deepseek-v3", kind=EXPERTS):
    setting = experts(make_setting, model, 64, recompute_modules=modules, **MODULES_OF)
    plans = Plans.of(Plan(data=64, expert=64, recompute="selective"))
    return layer(setting, plans, kind)


@pytest.mark.parametrize(
    ("module", "kinds"),
    [
        ("moe_act", {"activation"}),
        ("layernorm", {"norm"}),
        ("core_attn", {"attention", "rope", "norm", "copy"}),
        ("mla_up_proj", {"gemm", "rope", "norm", "copy"}),
    ],
)
def test_recomputed_modules_repeat_their_own_kernels(make_setting, module, kinds):
    once = recomputed(make_setting, module)
    assert {kind for kind, seconds in once.recompute.work.seconds.items() if seconds[0]} == kinds
    assert 0 < once.recompute.device[0] < once.forward.device[0]


def test_modules_of_dense_and_of_expert_layers_differ(make_setting):
    dense = LayerKind(experts=False)
    assert recomputed(make_setting, "mlp").recompute.device[0] == 0
    assert recomputed(make_setting, "moe_act", kind=dense).recompute.device[0] == 0
    assert recomputed(make_setting, "mlp", kind=dense).recompute.device[0] > 0


def test_a_whole_module_of_experts_exchanges_again(make_setting):
    once = recomputed(make_setting, "moe")
    assert once.recompute.expert.total == pytest.approx(once.forward.expert.total)
    assert not np.any(recomputed(make_setting, "moe_act").recompute.expert.total)


def test_discarded_outputs_take_no_memory(make_setting):
    plans = Plans.of(Plan(data=64, expert=64, recompute="selective"))
    kept = []
    for modules in ([], ["moe_act"], ["moe_act", "mla_up_proj"], ["moe", "mla_up_proj"]):
        setting = experts(make_setting, "deepseek-v3", 64, recompute_modules=tuple(modules), **MODULES_OF)
        step = predict(setting, plans)
        kept.append(memory(setting, plans, step.stages, step.parameters).parts["activations"][0, 0])
    assert kept == sorted(set(kept), reverse=True)


def test_deepep_is_slow_in_domains_that_span_nodes(make_setting):
    plans = Plans.of(Plan(data=64, expert=32))
    chosen = {"cluster": "gb200-nvl72", "dispatcher": "flex"}
    times = [
        exchange(experts(make_setting, "deepseek-v3", 64, dispatcher_library=library, **chosen), plans)[0]
        for library in ("hybridep", "deepep")
    ]
    assert times[1] == pytest.approx(times[0] * 0.81 / 0.46, rel=0.08)


def test_deepep_s_rate_between_nodes_holds_for_copies_to_its_own_node_too(make_setting):
    """On two nodes half of what it moves goes over NICs, on eight 7/8."""
    rates = []
    for nodes in (2, 8):
        setting = experts(make_setting, "qwen3-235b-a22b", 8 * nodes, dispatcher="flex")
        plans = Plans.of(Plan(data=8 * nodes, expert=8 * nodes, micro_batch=32))
        copies = copies_of_a_token(setting, plans)[0] * 4096 * 32 * setting.model.hidden * 2
        rates.append(2 * copies * (nodes - 1) / nodes / exchange(setting, plans)[0])
    assert rates[1] / rates[0] == pytest.approx((7 / 8) / (1 / 2), rel=0.05)


@pytest.mark.parametrize(("dispatcher", "sent"), [("all-to-all", True), ("flex", False)])
def test_an_all_to_all_sends_scores_and_counts_apart(make_setting, dispatcher, sent):
    """Scores of 4 bytes a copy go to the experts and their gradient back; counts only ahead."""
    setting = experts(make_setting, "qwen3-235b-a22b", 16, dispatcher=dispatcher, fixed_capacity=False)
    plans = Plans.of(Plan(data=16, expert=16))
    ops = {op.name: op for op in layer_ops(setting, plans, LayerKind(experts=True))}
    assert ("expert.scores" in ops, "expert.counts" in ops) == (sent, sent)
    if sent:
        moved = ops["expert.dispatch_and_combine"].bytes / ops["expert.scores"].bytes
        assert moved == pytest.approx(setting.model.hidden * 2 / 4)
        assert len(ops["expert.scores"].backward()) == 1
        assert not ops["expert.counts"].backward()


def unevenly(make_setting, load, framework=None, **changes):
    setting = experts(make_setting, **changes)
    training = setting.training.model_copy(update={"expert_load": load})
    chosen = {"fixed_capacity": False} | (framework or {})
    return replace(setting, training=training).with_choices(**chosen)


def test_the_busiest_rank_computes_receives_and_keeps_its_load(make_setting):
    even, uneven = (unevenly(make_setting, load) for load in (1.0, 2.0))
    products = [work_of_mlp(each, EIGHT).seconds["grouped_gemm"][0] for each in (even, uneven)]
    assert products[1] == pytest.approx(2 * products[0], rel=0.03)
    sent = [exchange(each, EIGHT)[0] for each in (even, uneven)]
    assert sent[1] == pytest.approx(2 * sent[0], rel=0.05)
    kept = [
        sum(float(np.sum(op.saved)) for op in layer_ops(each, EIGHT, EXPERTS) if op.part == "routed")
        for each in (even, uneven)
    ]
    assert kept[1] > 1.8 * kept[0]
    times = [float(predict(each, EIGHT).time[0]) for each in (even, uneven)]
    assert times[1] > 1.2 * times[0]


@pytest.mark.parametrize("without", ["expert parallelism", "excess over a capacity"])
def test_load_has_no_effect(make_setting, without):
    framework = {"fixed_capacity": True} if without == "excess over a capacity" else {}
    plans = Plans.of(Plan(data=8, expert=8 if framework else 1))
    even, uneven = (predict(unevenly(make_setting, load, framework), plans).time for load in (1.0, 3.0))
    assert even == uneven


def test_deepep_sends_to_every_shard_of_an_expert(make_setting):
    sharded = Plans.of(Plan(data=8, expert=4, expert_tensor=2, micro_batch=4))
    ops = {
        dispatcher: {
            op.name: op
            for op in layer_ops(unevenly(make_setting, 1.0, {"dispatcher": dispatcher}), sharded, EXPERTS)
            if op.kind == "expert"
        }
        for dispatcher in ("all-to-all", "flex")
    }
    exchanged = ops["flex"]["expert.dispatch_and_combine"]
    assert np.all(exchanged.size == 8)
    assert ops["all-to-all"]["expert.dispatch_and_combine"].size[0] == 4
    assert ops["flex"]["expert.gather"].is_idle
    assert not ops["all-to-all"]["expert.gather"].is_idle


def test_launches_add_to_an_exchange_whose_messages_cpu_proxies_post(make_setting):
    setting = experts(make_setting, "qwen3-30b-a3b", 16, cluster="aws-p5", framework="megatron-bridge")
    setting = setting.with_choices(dispatcher="flex", dispatcher_library="uccl", graphs="none")
    spanning, inside = Plans.of(Plan(data=16, expert=16)), Plans.of(Plan(data=16, expert=8))
    back = layer(setting, spanning, EXPERTS).backward_input
    host = back.work.launches * setting.host_seconds_per_kernel
    busy = back.device[0] * setting.pace
    assert back.kernels[0] == pytest.approx(max(busy, host[0]))
    free = replace(back, blocked=False).kernels[0]
    assert free == pytest.approx(max(busy, host[0] - back.expert.exposed[0]))
    assert back.kernels[0] > free
    assert not layer(setting, inside, EXPERTS).backward_input.blocked.any()
    assert not layer(
        setting.with_choices(dispatcher_library="deepep"), spanning, EXPERTS
    ).forward.blocked.any()


def test_an_exchange_that_blocks_the_host_adds_to_its_launches_beside_kernels_too(make_setting):
    setting = experts(make_setting, "qwen3-30b-a3b", 16, cluster="aws-p5", framework="megatron-bridge")
    setting = setting.with_choices(dispatcher="flex", dispatcher_library="uccl", graphs="none")
    back = layer(setting, Plans.of(Plan(data=16, expert=16, overlap_expert=True)), EXPERTS).backward_input
    host = back.work.launches * setting.host_seconds_per_kernel
    assert back.expert.hidden > 0
    beside_partner = back.device * setting.pace + back.tensor.exposed + back.expert.paired
    assert beside_partner + back.lag == pytest.approx(host + back.expert.total)
    free = replace(back, blocked=False)
    assert free.lag < back.lag


def test_experts_of_a_latent_width_send_less_and_project_twice(make_setting):
    plans = Plans.of(Plan(data=8, expert=8))
    wide = experts(make_setting, "nemotron-3-nano-30b-a3b")
    moe = wide.model.moe.model_copy(update={"latent": 1344})
    narrow = replace(wide, model=wide.model.model_copy(update={"moe": moe}))
    bytes_of = [
        sum(float(op.bytes[0]) for op in layer_ops(each, plans, EXPERTS) if op.name.startswith("expert.disp"))
        for each in (wide, narrow)
    ]
    assert bytes_of[1] == pytest.approx(bytes_of[0] / 2)
    names = {op.name for op in layer_ops(narrow, plans, EXPERTS)}
    assert names - {op.name for op in layer_ops(wide, plans, EXPERTS)} == {"latent_input", "latent_output"}


def test_scores_that_weigh_by_kernels_of_their_own_keep_and_pass_32_bit_copies(make_setting):
    apart, inside = (
        experts(make_setting, "qwen3-30b-a3b", framework="torchtitan", kernels={"weighs_apart": weighs})
        for weighs in (True, False)
    )
    ops = [{op.name: op for op in layer_ops(setting, EIGHT, EXPERTS)} for setting in (apart, inside)]
    assert ops[0].keys() - ops[1].keys() == {"expert_scores"}
    copies = 4 * 4096 * 8 * 2048
    scores = ops[0]["expert_scores"]
    assert (scores.saved[0], scores.passing[0]) == (4 * copies, 14 * copies)
    assert scores.bytes[0] == 20 * copies
    plans = Plans.of(Plan(data=8, expert=8, micro_batch=4, recompute="full"))
    stages = Stages.of(apart, plans)
    held = [
        memory(setting, plans, stages, parameters(setting, plans, stages)).parts["activations"][FIRST, 0]
        for setting in (apart, inside)
    ]
    others = max(float(np.max(op.passing)) for op in ops[1].values())
    assert 0 < others < 2 * copies  # gradients inside the gated products, which the 14 copies outweigh
    added = 18 * copies - others
    assert held[0] - held[1] == pytest.approx(added * apart.framework.memory.fragmentation)


def test_indexing_kernels_pass_copies_more_often_than_fused_ones(make_setting):
    copies = 2 * 4096 * 8 * 2048
    plain, indexed = (
        {op.name: op for op in layer_ops(setting, EIGHT, EXPERTS)}
        for setting in (
            experts(
                make_setting, "qwen3-30b-a3b", framework="torchtitan", kernels={"indexes_copies": indexes}
            )
            for indexes in (False, True)
        )
    )
    assert plain.keys() == indexed.keys()
    pair = [ops["permutation"] for ops in (plain, indexed)]
    assert pair[0].bytes[0] == pair[0].backward_bytes[0] < 11 * 4 * copies
    assert (pair[1].bytes[0], pair[1].backward_bytes[0]) == (11 * 4 * copies, 17 * 4 * copies)


@pytest.mark.parametrize("separate", [True, False])
def test_gradients_of_the_inputs_of_separate_products_are_added_up(make_setting, separate):
    setting = experts(
        make_setting, "qwen3-30b-a3b", framework="torchtitan", kernels={"separate_products": separate}
    )
    names = {op.name for op in layer_ops(setting, EIGHT, EXPERTS)}
    assert ("expert_inputs_sum" in names) == separate


def test_a_loop_over_experts_fills_and_adds_the_gradient_of_all_tokens_for_each(make_setting):
    plans = Plans.of(Plan(data=8, zero=3, micro_batch=1))
    loop, whole = (
        {
            op.name: op
            for op in layer_ops(experts(make_setting, "qwen3-30b-a3b", framework=name), plans, EXPERTS)
        }
        for name in ("prime-rl-loop", "prime-rl-eager")
    )
    assert loop.keys() - whole.keys() == {"expert_loop"}
    gradient = loop["expert_loop"].backward()[0]
    assert gradient.bytes[0] == 4 * 128 * (4096 * 8 * 2048 * 2)
    assert gradient.launches[0] == pytest.approx(38.9 * 128)
    assert (loop["expert_up"].launches[0], whole["expert_up"].launches) == (128, 1)


def test_a_dispatcher_that_weighs_inside_the_activation_has_no_kernels_for_it(make_setting):
    names = [
        {
            op.name
            for op in layer_ops(
                experts(make_setting, "qwen3-30b-a3b", framework="torchtitan-eager", dispatcher=dispatcher),
                EIGHT,
                EXPERTS,
            )
        }
        for dispatcher in ("all-to-all", "flex")
    ]
    assert "expert_scores" in names[0] - names[1]


@pytest.mark.parametrize(
    ("dispatcher", "library", "expert", "copies"),
    [
        ("all-to-all", "hybridep", 8, 16.0),
        ("flex", "hybridep", 8, 9.0),
        ("flex", "deepep", 8, 8 * (1 - (7 / 8) ** 8) + 1),
        ("all-to-all", "hybridep", 1, 0.0),
    ],
)
def test_selective_recomputation_keeps_what_dispatch_and_combination_return(
    make_setting, dispatcher, library, expert, copies
):
    setting = experts(
        make_setting,
        "qwen3-30b-a3b",
        framework="torchtitan",
        dispatcher=dispatcher,
        dispatcher_library=library,
    )
    plans = Plans.of(Plan(data=8, expert=expert, zero=3, micro_batch=2, recompute="selective"))
    groups = setting.model.layer_groups
    (kept,) = kept_by_layers(setting, plans, groups, ModelOps.of(setting, plans, groups))
    # Layer input, query, attention and value; the routed experts' products are repeated.
    elements = 2048 + 2 * 4096 + 512 + copies * 2048
    assert kept.between_passes[0] == pytest.approx(2 * 2 * 4096 * elements)
