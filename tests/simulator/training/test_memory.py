"""Memory: what others measured or derived, and what must hold as plans change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.layout.parameters import parameters
from simulator.layout.stages import FIRST, Stages
from simulator.ops.counts import model_parameters
from simulator.ops.ends import padded_vocabulary
from simulator.plan import Plan, Plans
from simulator.state.adapter import BASE_BYTES, Adapter
from simulator.state.place import Tiers
from simulator.training.loss_memory import LOGIT_BYTES
from simulator.training.memory import PEAK_COUNTS, least_memory, memory

GIB = 2**30


def of(setting, *listed):
    plans = Plans.of(listed)
    stages = Stages.of(setting, plans)
    return memory(setting, plans, stages, parameters(setting, plans, stages))


def test_parameters_over_all_stages_are_the_model(make_setting):
    setting = make_setting(model="llama2-7b", seq_len=4096)
    for plan in (Plan(), Plan(pipeline=4), Plan(pipeline=2, tensor=2)):
        plans = Plans.of(plan)
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        total = (stages.count * counts.total).sum()
        assert float(total) * plan.tensor == pytest.approx(model_parameters(setting.model), rel=0.002)


def test_activations_of_one_layer_follow_korthikanti_et_al(make_setting):
    """s b h (10 + 24/t + 5 a s / (h t)) bytes with tensor, and all of it over t with sequence parallelism."""
    setting = make_setting(
        framework="megatron-lm-2022", precision="fp16", devices=8, memory={"fragmentation": 1.0}
    )
    model, s, b, t = setting.model, 2048, 4, 8
    scores = 5 * model.heads * s / model.hidden
    plain = s * b * model.hidden * (10 + 24 / t + scores / t) * model.layers
    sharded = s * b * model.hidden * (34 / t + scores / t) * model.layers
    plan = Plan(tensor=t, micro_batch=b)
    found = of(setting, plan, plan.model_copy(update={"sequence_parallel": True})).parts["activations"][0]
    assert found == pytest.approx([plain, sharded], rel=0.02)


def loaded(make_setting, load, micro_batch=1, fixed_capacity=False):
    setting = make_setting("mixtral-8x7b", framework="megatron-core", devices=64, seq_len=1024)
    training = setting.training.model_copy(update={"expert_load": load})
    setting = replace(setting, training=training).with_choices(fixed_capacity=fixed_capacity)
    return of(setting, Plan(data=64, expert=8, zero=1, micro_batch=micro_batch))


def test_routers_fill_a_rank_by_the_mean_and_the_allocator_by_the_busiest_of_each_layer(make_setting):
    even, uneven = (loaded(make_setting, load) for load in (1.0, 1.3))
    held, reserved = (uneven.counted(what) - even.counted(what) for what in ("allocated", "reserved"))
    layers = 32
    # Every layer has experts: what exceeds the mean is divided by the root of the layers.
    assert reserved[0] == pytest.approx(held[0] * layers**0.5 * even.fragmentation, rel=0.02)
    assert uneven.peak == pytest.approx(uneven.stages.max(axis=0))
    capped = loaded(make_setting, 3.0, fixed_capacity=True)
    assert capped.counted("reserved") == pytest.approx(
        loaded(make_setting, 1.0, fixed_capacity=True).counted("reserved")
    )


def test_what_the_allocator_keeps_of_uneven_layers_never_fills_more_than_the_device(make_setting):
    device = make_setting("mixtral-8x7b", devices=64).cluster.device.memory_bytes
    for micro_batch in (1, 2, 4):
        uneven = loaded(make_setting, 4.0, micro_batch)
        needed, reserved = uneven.peak, uneven.counted("device").max()
        assert needed <= reserved <= max(needed, device) * (1 + 1e-9)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("framework", ["megatron-core", "maxtext", "torchtitan"])
def test_a_dense_width_that_no_layer_has_takes_no_activations(make_setting, framework, recompute):
    setting = make_setting("mixtral-8x7b", framework=framework)
    wide = replace(setting, model=setting.model.model_copy(update={"feed_forward": 10**6}))
    plan = Plan(data=64, expert=8, recompute=recompute)
    one, other = (of(each, plan).parts["activations"][0] for each in (setting, wide))
    assert one == other


def test_mixed_precision_adam_takes_eighteen_bytes_a_parameter(make_setting):
    """2 + 4 + 12, the gradients in 32 bits (Megatron-LM, distributed optimizer documentation)."""
    setting = make_setting(devices=8)
    plans = Plans.of(Plan(tensor=8))
    count = parameters(setting, plans, Stages.of(setting, plans)).total[FIRST, 0]
    parts = of(setting, Plan(tensor=8)).parts
    state = sum(parts[name][0, 0] for name in ("parameters", "gradients", "optimizer"))
    assert state == pytest.approx(18 * count)


def test_each_zero_stage_shards_one_part_more(make_setting):
    setting = make_setting(devices=64)
    found = of(setting, *(Plan(data=64, zero=z) for z in range(4)))
    sharded = {"optimizer": 1, "gradients": 2, "parameters": 3}
    for part, stage in sharded.items():
        values = found.parts[part][0]
        assert np.allclose(values[:stage], values[0])
        assert np.allclose(values[stage:], values[0] / 64)


def test_recomputation_saves_memory_in_order(make_setting):
    setting = make_setting(devices=8)
    plan = Plan(tensor=8, micro_batch=4)
    none, selective, full = of(
        setting, *(plan.model_copy(update={"recompute": r}) for r in ("none", "selective", "full"))
    ).parts["activations"][0]
    assert full < selective <= none


def test_the_first_stage_holds_the_most_activations_in_one_forward_one_backward(make_setting):
    setting = make_setting(devices=8, global_batch=32)
    activations = of(setting, Plan(pipeline=8)).parts["activations"][:, 0]
    first, middle, last = activations
    assert first > middle > last
    assert first == pytest.approx(8 * last, rel=0.05)


@pytest.mark.parametrize(
    ("model", "plan", "gib"),
    [
        (
            "korthikanti-22b",
            Plan(tensor=8, micro_batch=4, sequence_parallel=True, recompute="selective"),
            55.1,
        ),
        ("korthikanti-1t", Plan(tensor=8, pipeline=64, sequence_parallel=True, recompute="selective"), 59.5),
    ],
)
def test_peaks_that_calculon_validated_against(make_setting, model, plan, gib):
    """Korthikanti's configurations as Isaev et al. 2023 (Calculon) list them; analytic there too."""
    setting = make_setting(
        model=model, devices=plan.devices, framework="megatron-lm-2022", precision="fp16", global_batch=512
    )
    assert float(of(setting, plan).peak[0]) / GIB == pytest.approx(gib, rel=0.15)


@pytest.mark.parametrize(
    ("schedule", "chunks", "copies"),
    [("hanayo", 2, 1), ("zb-v", 2, 1), ("vocab-1f1b", 1, 1), ("chimera", 2, 2), ("bitpipe", 4, 2)],
)
def test_every_way_to_lay_a_model_on_ranks_holds_all_of_it(make_setting, schedule, chunks, copies):
    setting = make_setting(model="llama2-7b", devices=8)
    plain, laid = (
        of(setting, Plan(pipeline=8, virtual_pipeline=v, schedule=name)).parts["parameters"][:, 0]
        for v, name in ((1, "1f1b"), (chunks, schedule))
    )
    ranks = np.array([1, 6, 1])
    # The final norm is on every rank that holds a part of the output layer.
    assert (ranks * laid).sum() == pytest.approx(copies * (ranks * plain).sum(), rel=1e-4)


def test_where_the_route_returns_the_first_rank_holds_both_ends(make_setting):
    setting = make_setting(model="llama2-7b", devices=8)
    held = of(setting, Plan(pipeline=8, virtual_pipeline=2, schedule="zb-v"))
    first, middle, last = held.parts["parameters"][:, 0]
    assert last == middle
    table = 2 * setting.model.vocabulary * setting.model.hidden
    assert first - middle == pytest.approx(2 * table, rel=0.01)
    assert held.parts["workspace"][0, 0] > held.parts["workspace"][2, 0] == 0


def test_the_optimizer_s_copies_take_memory_that_activations_left_once_the_device_is_full(make_setting):
    """A copy on top of activations while there is room; in their place where there is none."""
    update = {"framework": "megatron-deepspeed", "precision": "fp16", "devices": 8}
    plan = Plan(tensor=8, micro_batch=1, recompute="full")
    roomy = of(make_setting(cluster="dgx-h200", **update), plan)
    full = of(make_setting(cluster="dgx-a100-40gb", **update), plan)
    parts, tight = roomy.breakdown(0, FIRST), full.breakdown(0, FIRST)
    copies = parts["optimizer"] / 12 * 6
    assert parts["update"] == pytest.approx(copies)
    assert full.peak[0] > 42e9
    assert tight["update"] == pytest.approx(copies - tight["activations"] - tight["workspace"])


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b"])
def test_no_kind_of_sharding_needs_less_than_the_least_memory(make_setting, model):
    setting = make_setting(model)
    kinds = [
        Plan(data=8, expert=expert, pipeline=pipeline, zero=zero, shard_group=group, recompute=recompute)
        for expert in ((1, 4) if setting.model.moe else (1,))
        for pipeline in (1, 4)
        for recompute in ("none", "full")
        for zero in range(4)
        for group in ((0, 2, 4) if zero else (0,))
    ]
    plans = Plans.of(kinds)
    stages = Stages.of(setting, plans)
    counts = parameters(setting, plans, stages)
    least = least_memory(setting, plans, stages, counts)
    assert np.all(least <= memory(setting, plans, stages, counts).peak * (1 + 1e-9))
    assert np.all(least > setting.framework.memory.context_bytes)


@pytest.mark.parametrize(
    ("states", "per_parameter"), [("mixed", 16), ("moments-16", 12), ("bf16", 8), ("8-bit", 6)]
)
def test_states_in_fewer_bits_take_fewer_bytes(make_setting, states, per_parameter):
    """Parameter, gradient and two moments: of 32 bits each, of 16, or of 16 with moments of 8."""
    setting = make_setting("llama3-8b", framework="torch-fsdp", devices=8)
    parts = of(setting, Plan(states=states)).parts
    state = sum(parts[name][FIRST, 0] for name in ("parameters", "gradients", "optimizer"))
    assert state == pytest.approx(per_parameter * model_parameters(setting.model), rel=0.002)


def test_gradients_that_wait_for_the_last_micro_batch_stay_whole(make_setting):
    """FSDP2 adds unsharded gradients up in the format of the reduction; the sharded ones replace them."""
    setting = make_setting("llama3-8b", framework="torch-fsdp", devices=8, global_batch=32)
    plan = Plan(data=8, zero=3)
    sharded, whole = (
        of(setting, plan.model_copy(update={"unsharded_gradients": kept})).parts["gradients"][FIRST, 0]
        for kept in (False, True)
    )
    assert whole == pytest.approx(4 * model_parameters(setting.model), rel=0.002)
    assert whole == pytest.approx(8 * sharded, rel=0.01)
    once = Plan(data=8, micro_batch=4, zero=3, unsharded_gradients=True)
    assert of(setting, once).parts["gradients"][FIRST, 0] == pytest.approx(sharded)
    single = make_setting("llama3-8b", framework="torch-fsdp", devices=1, global_batch=32)
    kept, reduced = (
        of(single, Plan(zero=3, unsharded_gradients=whole)).parts["gradients"][FIRST, 0]
        for whole in (True, False)
    )
    assert kept == reduced


def test_a_recomputed_activation_frees_what_its_kernels_keep_for_each_other(make_setting):
    """SwiGLU of two torch kernels keeps the activated half beside both; recomputed, of one layer alone."""
    modules = Plan(tensor=8, sequence_parallel=True, recompute="selective", recompute_modules=("mlp_act",))
    setting = make_setting("llama2-7b", framework="megatron-core", devices=8)

    def activations(plan, elementwise):
        listed = plan.model_copy(update={"elementwise": elementwise})
        return of(setting, listed).parts["activations"][FIRST, 0]

    kept = modules.model_copy(update={"recompute": "none", "recompute_modules": None})
    assert activations(kept, "eager") > 1.05 * activations(kept, "fused")
    assert activations(modules, "eager") == pytest.approx(activations(modules, "fused"), rel=0.01)


def test_a_rank_that_gathers_logits_holds_all_of_them(make_setting):
    """KempnerForge's output layer is sharded by vocabulary, its output is not."""
    plan = Plan(tensor=4, data=2, zero=1, sequence_parallel=True, recompute="full")

    def peak(framework):
        chosen = make_setting("llama3-8b", framework=framework, devices=8, memory={"fragmentation": 1.0})
        return of(chosen, plan).loss.peak[FIRST, 0]

    setting = make_setting("llama3-8b", framework="kempnerforge", devices=8)
    logits = padded_vocabulary(setting.model, 4) * setting.training.seq_len
    assert peak("kempnerforge") == LOGIT_BYTES[setting.choices.cross_entropy] * logits
    assert peak("torch-fsdp") == pytest.approx(peak("kempnerforge") / 4)


def test_a_layer_is_recomputed_after_the_loss(make_setting):
    """Their tensors are never there together: the larger counts, beside logits that the loop keeps."""
    plan = Plan(data=8, zero=3, recompute="full")

    def held(loss):
        training = {"seq_len": 8192, "global_batch": 8, "framework": "torch-fsdp", "cross_entropy": loss}
        setting = make_setting("llama3-8b", devices=8, memory={"fragmentation": 1.0}, **training)
        return of(setting, plan)

    chunked, whole, kept = (held(loss) for loss in ("chunked", "torch", "torch-held"))
    table = 128256 * 4096
    assert whole.loss.peak[FIRST, 0] == 12 / 4 * kept.loss.after[FIRST, 0] + 2 * table
    assert chunked.loss.peak[FIRST, 0] == 12 * 1024 * 128256 + 4 * table
    layer = chunked.parts["activations"][FIRST, 0] - 32 * 8192 * 4096 * 2
    assert 0 < layer < whole.loss.peak[FIRST, 0]
    least = max(layer, chunked.loss.peak[FIRST, 0])
    assert whole.peak[0] - chunked.peak[0] == pytest.approx(whole.loss.peak[FIRST, 0] - least)


def test_what_torch_allocated_is_less_than_it_reserved_and_the_device_holds(make_setting):
    setting = make_setting("llama2-7b", framework="torch-fsdp", devices=8)
    usage = of(setting, Plan(data=8, zero=3))
    device, reserved, allocated = (float(usage.counted(what)[FIRST, 0]) for what in PEAK_COUNTS)
    memory_facts = setting.framework.memory
    assert device - reserved == memory_facts.context_bytes + memory_facts.buffer_bytes_per_group
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    # A buffer of the next layer beside that of the layer before it.
    assert usage.pool == pytest.approx(2 * 2 * layer, rel=1e-3)
    passes = usage.parts["activations"][FIRST, 0] + usage.parts["workspace"][FIRST, 0] - usage.pool
    unused = usage.pool + passes * (1 - 1 / memory_facts.fragmentation) + usage.cached[FIRST]
    assert reserved - allocated == pytest.approx(float(unused[0]))


def test_the_block_of_the_16_bit_logits_stays_reserved_while_the_device_has_room(make_setting):
    """torch's loss holds 12 bytes a logit at its peak and reserves 14, of which fragmentation counts 0.6."""

    def cached(cluster, loss="torch"):
        chosen = {"framework": "torch-fsdp", "cross_entropy": loss, "cluster": cluster}
        setting = make_setting("llama3-8b", seq_len=8192, global_batch=8, devices=8, **chosen)
        return of(setting, Plan(data=8, zero=3, recompute="full")).cached

    logits = 8192 * padded_vocabulary(make_setting("llama3-8b").model, 1)
    assert cached("dgx-h200")[FIRST, 0] == pytest.approx((14 - 1.05 * 12) * logits)
    assert cached("dgx-h200", "torch-held")[FIRST, 0] == pytest.approx((18 - 1.05 * 16) * logits)
    assert not np.any(cached("dgx-h200", "chunked"))
    assert not np.any(cached("rtx-4090-8"))


def test_a_loss_that_copies_its_logits_holds_two_sets_in_32_bits_and_reserves_the_16_bit_block(make_setting):
    """nanotron's loss subtracts the maximum into a copy; Megatron's writes over its 32-bit logits."""

    def held(framework):
        setting = make_setting("llama3-8b", framework=framework, cross_entropy="eager", devices=8)
        return of(setting, Plan(tensor=8, sequence_parallel=True))

    copied, in_place = held("nanotron"), held("megatron-lm-2022")
    logits = 2048 * padded_vocabulary(make_setting("llama3-8b").model, 8) / 8
    assert copied.loss.peak[FIRST, 0] == (4 + 4) * logits
    assert in_place.loss.peak[FIRST, 0] == (2 + 4) * logits
    assert copied.cached[FIRST, 0] == pytest.approx((10 - 1.05 * 8) * logits)
    assert not np.any(in_place.cached)


def test_full_sharding_gathers_the_output_layer_for_the_loss(make_setting):
    """A table of its own during the loss, a tied one all the time; log-probabilities hold its gradient."""

    def held(zero, tied=False, loss=None):
        setting = make_setting("llama3-8b", devices=8, framework="prime-rl", memory={"fragmentation": 1.0})
        model = setting.model.model_copy(update={"tied_embeddings": tied})
        return of(replace(setting, model=model), Plan(data=8, zero=zero, cross_entropy=loss))

    table, logits = 128256 * 4096, 1024 * 128256
    own, tied, whole = held(3), held(3, tied=True), held(1)
    assert own.loss.peak[FIRST, 0] == 14 * logits + (2 + 2) * table
    assert tied.loss.peak[FIRST, 0] == whole.loss.peak[FIRST, 0] == 14 * logits + 2 * table
    assert held(1, loss="chunked").loss.peak[FIRST, 0] == 12 * logits
    extra = tied.parts["workspace"] - tied.beyond - (own.parts["workspace"] - own.beyond)
    assert extra[FIRST, 0] == 2 * table


def test_an_update_in_the_backward_pass_holds_one_gradient(make_setting):
    """torchtune's optimizer_in_bwd; gradients of several micro batches have to add up first."""

    def gradients(batch, **levers):
        setting = make_setting("llama3-8b", framework="torch-fsdp", devices=1, global_batch=batch)
        return of(setting, Plan(states="bf16", **levers)).parts["gradients"][FIRST, 0]

    table = 2 * 128256 * 4096
    assert gradients(1, update_in_backward=True) == pytest.approx(table)
    assert gradients(1) > 10 * table
    assert gradients(4, update_in_backward=True) == gradients(4)


def test_a_layer_is_recomputed_on_the_device_whatever_leaves(make_setting):
    """A recomputed layer stays, the input of its pass, and the one that is copied meanwhile."""
    setting = make_setting("llama2-7b", framework="torch-fsdp", devices=8, memory={"fragmentation": 1.0})
    plan = Plan(data=8, zero=3, recompute="full")
    inputs = setting.model.layers * setting.training.seq_len * setting.model.hidden * 2
    whole, left = (
        of(setting, plan.model_copy(update=changes))
        for changes in ({}, {"place": Tiers.model_validate({"activations": {"host": 1.0}})})
    )
    activations = [held.parts["activations"][FIRST, 0] for held in (whole, left)]
    assert activations[0] - activations[1] == pytest.approx(inputs * (1 - 2 / setting.model.layers))
    assert activations[1] > 4 * inputs / setting.model.layers


@pytest.mark.parametrize("chunks", [1, 4])
def test_four_chunks_of_a_pipeline_stay_where_activations_leave(make_setting, chunks):
    """Computed last and copied out in the forward pass, computed and copied back in the backward pass."""
    setting = make_setting("llama2-7b", devices=8, global_batch=32, memory={"fragmentation": 1.0})
    plan = Plan(pipeline=8, virtual_pipeline=chunks, recompute="none")
    if chunks > 1:
        plan = plan.model_copy(update={"schedule": "interleaved"})
    gone = plan.model_copy(update={"place": Tiers.model_validate({"activations": {"host": 1.0}})})
    ahead = {"activations": {"host": 1.0, "prefetch": 0}}
    unfetched = plan.model_copy(update={"place": Tiers.model_validate(ahead)})
    held, left, alone = (of(setting, each) for each in (plan, gone, unfetched))
    chunk = left.tiers["host"]["activations"][FIRST, 0] / 8 / (left.flight[FIRST, 0] * chunks)
    all_, four, two = (each.parts["activations"][FIRST, 0] for each in (held, left, alone))
    assert four - two == pytest.approx(2 * chunk)
    assert all_ - four == pytest.approx((left.flight[FIRST, 0] * chunks - 4) * chunk)


def test_gathered_weights_stay_beside_shards_where_gradients_alone_are_resharded(make_setting):
    setting = make_setting("llama2-7b", framework="torch-fsdp", devices=8)
    number = model_parameters(setting.model)
    stages = [of(setting, Plan(data=8, zero=zero)).parts["parameters"][FIRST, 0] for zero in (0, 2, 3)]
    assert stages == pytest.approx([4 * number, (2 + 4 / 8) * number, 4 / 8 * number], rel=1e-3)


@pytest.mark.parametrize(
    ("cluster", "precision", "beside", "alone"),
    [
        ("dgx-h100", "fp8", 2, 0),
        ("dgx-b200", "fp8", 1, -1),
        ("dgx-b200", "mxfp8", 2 * (1 + 1 / 32), 1 / 16),
        ("dgx-b200", "nvfp4", 2 * (0.5 + 1 / 16), -7 / 8),
        ("dgx-h100", "bf16", 0, 0),
    ],
)
def test_narrow_products_read_copies_of_weights(make_setting, cluster, precision, beside, alone):
    """Bytes a weight of a layer's products beside the 16-bit weights, and in their place."""
    setting = make_setting("llama2-7b", cluster, 8, precision=precision)
    wide, narrow = (of(setting, Plan(data=8, zero=1, narrow_parameters=kept)) for kept in (False, True))
    model = setting.model
    tables = 2 * model.vocabulary * model.hidden
    weights, stored = model_parameters(model) - tables, 2 * model_parameters(model)
    found = [usage.parts["parameters"][FIRST, 0] for usage in (wide, narrow)]
    assert found == pytest.approx([stored + beside * weights, stored + alone * weights], rel=2e-3)


def test_norms_of_heads_keep_their_inputs_unless_a_compiler_computes_them_again(make_setting):
    def kept(framework, qk_norm):
        setting = make_setting("qwen3-8b", devices=8, framework=framework)
        model = setting.model.model_copy(update={"qk_norm": qk_norm})
        return of(replace(setting, model=model), Plan(data=8, zero=1, recompute="none")).parts["activations"]

    setting = make_setting("qwen3-8b", framework="megatron-core")
    heads = setting.model.query_width + setting.model.kv_width
    bytes_a_layer = 2 * setting.training.seq_len * heads * setting.framework.memory.fragmentation
    more = (kept("megatron-core", True) - kept("megatron-core", False))[FIRST, 0]
    assert more == pytest.approx(bytes_a_layer * setting.model.layers, rel=1e-6)
    assert np.array_equal(kept("torchtitan", True), kept("torchtitan", False))


def test_inputs_of_repeated_layers_spread_over_tensor_ranks_where_the_release_does_so(make_setting):
    setting = make_setting("gpt-7.5b", devices=8, framework="gpt-neox", precision="fp16")
    whole = replace(setting, framework=setting.framework.changed({"memory": {"partitioned_inputs": False}}))
    plan = Plan(data=2, tensor=4, zero=1, recompute="full")
    less = (of(whole, plan).parts["activations"] - of(setting, plan).parts["activations"])[FIRST, 0]
    inputs = 2 * setting.training.seq_len * setting.model.hidden * setting.model.layers
    assert less == pytest.approx(inputs * (1 - 1 / 4) * setting.framework.memory.fragmentation, rel=1e-6)


def test_products_that_a_list_of_ops_does_not_name_are_repeated(make_setting):
    def activations(precision, recompute):
        setting = make_setting("llama3-8b", "dgx-b200", 8, "torchtitan", precision=precision)
        return of(setting, Plan(data=8, zero=3, recompute=recompute)).parts["activations"][FIRST, 0]

    wide, narrow = (activations(precision, "selective") for precision in ("mxfp8", "nvfp4"))
    assert activations("nvfp4", "full") < narrow < 0.6 * wide


def with_adapter(setting, base):
    adapter = Adapter(rank=8, targets=["query_key_value"], base=base)
    return replace(setting, training=setting.training.model_copy(update={"adapter": adapter}))


@pytest.mark.parametrize(("base", "table"), [("bf16", 2), ("nf4", 4), ("fp8", 2)])
def test_tables_stay_wide_beside_narrow_frozen_weights(make_setting, base, table):
    setting = with_adapter(make_setting("llama3-8b", devices=1, framework="torch-fsdp-eager"), base)
    model = setting.model
    tables = 2 * model.vocabulary * model.hidden
    layers = model_parameters(model) - tables
    stored = of(setting, Plan()).parts["parameters"][FIRST, 0]
    assert stored == pytest.approx(BASE_BYTES[base] * layers + table * tables, rel=0.01)


def test_products_of_coded_weights_keep_their_inputs(make_setting):
    setting = make_setting("llama2-7b", devices=1, framework="torch-fsdp-eager")
    wide, coded = (
        of(with_adapter(setting, base), Plan(recompute="none")).parts["activations"][FIRST, 0]
        for base in ("bf16", "nf4")
    )
    model, factor = setting.model, setting.framework.memory.fragmentation
    inputs = 2 * setting.training.seq_len * (model.hidden + model.feed_forward) * model.layers
    assert coded - wide == pytest.approx(inputs * factor, rel=0.01)


def test_a_chain_of_norm_kernels_keeps_what_it_casts(make_setting):
    def activations(norm):
        setting = make_setting("llama2-7b", devices=8, framework="torch-fsdp-eager", kernels={"norm": norm})
        return of(setting, Plan(data=8, zero=3)).parts["activations"][FIRST, 0]

    setting = make_setting("llama2-7b", devices=8, framework="torch-fsdp-eager")
    inputs = 2 * 2 * setting.training.seq_len * setting.model.hidden * setting.model.layers
    inputs *= setting.framework.memory.fragmentation
    fused, casts, chain = (activations(norm) for norm in ("fused", "casts", "composite"))
    assert [casts - fused, chain - fused] == pytest.approx([inputs, 2 * inputs], rel=1e-6)


def test_paged_moments_need_no_room_on_the_device(make_setting):
    setting = make_setting("llama3-8b", devices=1, framework="torch-fsdp-eager")
    kept, paged = (of(setting, Plan(recompute="full", states=states)) for states in ("8-bit", "paged-8-bit"))
    moments = kept.parts["optimizer"]
    assert (kept.stages - paged.stages)[FIRST] == pytest.approx(moments[FIRST])
    assert paged.on_tier("host") == pytest.approx(moments[FIRST]) and not kept.tiers
    plans = Plans.of([Plan(recompute="full", states="paged-8-bit")])
    stages = Stages.of(setting, plans)
    assert least_memory(setting, plans, stages, parameters(setting, plans, stages)) <= paged.peak


def test_groups_have_buffers_of_their_own_fewer_where_they_span_nodes(make_setting):
    setting = make_setting("llama3-8b", framework="megatron-core", devices=64)
    group = setting.framework.memory.buffer_bytes_per_group

    def groups(plan):
        return of(setting, plan).parts["buffers"][FIRST, 0] / group

    # Replicas: all ranks are one group.
    assert groups(Plan(data=64)) == pytest.approx(1)
    # Inside a node the tensor group, that of the model and one of all ranks; one replica a node.
    assert groups(Plan(tensor=8, data=8)) == pytest.approx(3 + 1 / 3)
    assert groups(Plan(tensor=8, pipeline=8)) == pytest.approx(3 + 1 / 3)


def test_frozen_weights_are_gathered_in_their_format_and_have_no_gradients(make_setting):
    setting = make_setting("llama3-8b", devices=8, framework="trl", memory={"fragmentation": 1.0})
    plan, table = Plan(data=8, zero=3, recompute="full"), 128256 * 4096
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    coded, plain = (of(with_adapter(setting, base), plan) for base in ("nf4", "bf16"))
    # Two layers; the gather's buffer holds a layer beside the table.
    narrower = 3 * (2 - BASE_BYTES["nf4"]) * layer
    workspaces = [usage.fixed.workspace[FIRST, 0] for usage in (coded, plain)]
    assert workspaces[1] - workspaces[0] == pytest.approx(narrower, rel=0.01)
    # Sharded tables keep 16 bits, whatever PEFT does to whole ones.
    frozen = (BASE_BYTES["nf4"] * 32 * layer + 2 * 2 * table) / 8
    assert coded.parts["parameters"][FIRST, 0] == pytest.approx(frozen, rel=0.01)
