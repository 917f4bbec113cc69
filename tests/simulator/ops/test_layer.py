"""A layer's list of ops against the model's own counts and the limits of its shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from simulator.models import models
from simulator.models.model import AttentionKind
from simulator.ops import SERVING, Batch, Implementation, Rank, Shard, backward, embedding, head, layer
from simulator.ops.counts import attention_flops_per_token, expert_parameters, flops_per_token
from simulator.ops.layer import MIXERS
from simulator.ops.rank import Dispatcher

EVERY_MODEL = models.names()
SPARSE = [name for name in EVERY_MODEL if (mla := models.get(name).mla) and mla.index_topk]
ALL_KEYS = [name for name in EVERY_MODEL if name not in SPARSE]
"""Models whose full layers attend to all keys, as published formulas have it."""


def total(ops, what):
    return sum(float(np.sum(getattr(op, what))) for op in ops)


def layers(model, rank):
    """Each kind of layer with its count."""
    for kind, found in model.layer_groups.items():
        yield len(found), layer(rank, *kind)


@pytest.mark.parametrize("name", ALL_KEYS)
def test_flops_of_the_lists_are_the_models(name):
    model = models.get(name)
    causal = "sliding" in model.attention_pattern
    rank = Rank(model, Batch.training(2, 4096, causal=causal))
    found = sum(count * total(ops, "flops") for count, ops in layers(model, rank))
    expected = flops_per_token(model, 4096, causal) - 2 * model.hidden * model.vocabulary
    # Kernels count a token's own key, publications half of it.
    assert found / 8192 == pytest.approx(float(expected), rel=1e-3 if causal else 1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ALL_KEYS)
def test_attention_flops_are_those_of_the_published_formula(name, causal):
    """2 heads (d + v) FLOPs per key; s keys per token, s/2 with a mask, a window's where it is shorter."""
    model, length = models.get(name), 8192
    spec = model.linear
    scanned = 0
    if spec:
        scanned = 2 * spec.chunk * (spec.key_dim + spec.value_dim) + 4 * spec.key_dim * spec.value_dim
        if spec.delta:
            scanned += 2 * spec.chunk * (2 * spec.key_dim + spec.value_dim) + spec.chunk**2
        scanned *= spec.heads
    expected = model.layers_of_kind("linear") * scanned
    shorter = min(model.sliding_window or length, length)
    for kind, window in (("full", length), ("cross", length), ("sliding", shorter)):
        keys = window * (1 - window / (2 * length)) if causal else window
        per_key = 2 * model.heads * (model.head_dim + model.v_head_dim)
        expected += model.layers_of_kind(kind) * per_key * keys
    assert attention_flops_per_token(model, length, causal) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b"])
def test_a_backward_pass_has_two_products_for_each_of_the_forward_pass(name):
    model = models.get(name)
    for experts in {False, model.moe is not None}:
        forward = layer(Rank(model, Batch.training(2, 2048)), experts=experts)
        core = total([op for op in forward if op.kind == "attention"], "flops")
        products = total(forward, "flops") - core
        assert total(backward(forward), "flops") == pytest.approx(2 * products + 2.5 * core)


@pytest.mark.parametrize("name", ["llama3-70b", "gpt-oss-120b", "deepseek-v3"])
def test_shards_add_up_to_the_layer(name):
    """What tensor-parallel ranks compute is the whole, but for what each of them computes alike."""
    model = models.get(name)
    whole, part = (layer(Rank(model, Batch.training(1, 4096), Shard(tensor=t))) for t in (1, 4))
    replicated = {"key_value_down", "query_down"}
    for one, shard in zip(whole, (op for op in part if op.kind != "tensor"), strict=True):
        factor = 1 if one.name in replicated else 4
        assert factor * np.asarray(shard.flops) == pytest.approx(np.asarray(one.flops)), one.name


def test_a_chunk_over_its_context_and_the_chunks_before_it_are_the_prompt():
    model = models.get("llama3-8b")
    whole = layer(Rank(model, Batch.prefill(1, 4096)))
    chunks = [layer(Rank(model, Batch.prefill(1, 1024, end))) for end in (1024, 2048, 3072, 4096)]
    assert sum(total(ops, "flops") for ops in chunks) == pytest.approx(total(whole, "flops"))


@pytest.mark.parametrize(("name", "fewer"), [("deepseek-v3", 1), ("deepseek-v2-lite", 0)])
def test_latents_of_queries_and_keys_are_one_product_that_computes_both(name, fewer):
    """DeepSeek-V2-Lite's queries have no latent, so nothing is joined."""
    model, batch = models.get(name), Batch.decode(1, 4096)
    joined, apart = (
        layer(Rank(model, batch, how=replace(SERVING, joined_latents=joins))) for joins in (True, False)
    )
    assert len(apart) - len(joined) == fewer
    assert total(joined, "flops") == pytest.approx(total(apart, "flops"))


def test_decoding_one_token_computes_what_a_prompts_last_token_does():
    model = models.get("qwen3-32b")
    batch = Batch.prefill(1, 1, 4096), Batch.decode(1, 4096)
    prompt, decoded = (total(layer(Rank(model, b, how=SERVING)), "flops") for b in batch)
    assert decoded == pytest.approx(prompt)


def test_absorbed_decode_computes_in_the_latent_space():
    """Queries and outputs pass the expansion, each cached token costs one latent vector a head."""
    model = models.get("deepseek-v3")
    mla = model.mla
    ops = {op.name: op for op in layer(Rank(model, Batch.decode(4, 1000), how=SERVING))}
    assert "key_value_up" not in ops
    per_key = 2 * model.heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim)
    assert float(ops["attention"].flops) == 4 * 1000 * per_key
    absorbed = sum(float(ops[f"attention.absorb_{end}"].flops) for end in ("query", "output"))
    assert absorbed == 4 * 2 * model.heads * mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_attention_reads_the_chosen_keys_and_scores_all(name):
    model = models.get(name)
    mla = model.mla

    def block(keys):
        ops = layer(Rank(model, Batch.decode(4, keys), how=SERVING))
        return {op.name: float(np.sum(op.flops)) for op in ops}

    short, long = block(8192), block(65536)
    assert short["attention"] == long["attention"]
    per_key = 2 * model.heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim)
    assert long["attention"] == 4 * mla.index_topk * per_key
    assert long["attention.index"] == 4 * 65536 * 2 * mla.index_heads * mla.index_head_dim


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_attention_of_prompts_grows_with_their_length(name):
    """Up to the chosen keys a prompt's attention is that of all keys; then each token costs the same."""
    model = models.get(name)
    every = model.model_copy(update={"mla": model.mla.model_copy(update={"index_topk": None})})

    def core(made, length):
        ops = layer(Rank(made, Batch.prefill(1, length)))
        return total([op for op in ops if op.name == "attention"], "flops")

    assert core(model, 2048) == pytest.approx(core(every, 2048))
    assert core(model, 131072) < 0.15 * core(every, 131072)
    assert core(model, 131072) == pytest.approx(2 * core(model, 65536), rel=0.05)


def test_a_sliding_window_leaves_no_more_keys_than_it_has():
    model = models.get("gpt-oss-120b")
    for batch in (Batch.decode(1, 8192), Batch.prefill(1, 1024, 8192)):
        rank = Rank(model, batch, how=SERVING)
        kinds = [layer(rank, kind) for kind in ("full", "sliding")]
        seen = [next(op for op in ops if op.name == "attention") for ops in kinds]
        queries = float(batch.tokens)
        per_key = 4 * model.heads * model.head_dim * queries
        assert float(seen[1].flops) == pytest.approx(per_key * model.sliding_window)
        assert float(seen[0].flops) > float(seen[1].flops)


def test_only_sampled_tokens_pass_the_output_layer():
    model = models.get("llama3-8b")
    batch = Batch.prefill(2, 1000) + Batch.decode(30, 500)
    ops = {op.name: op for op in head(Rank(model, batch, how=SERVING))}
    assert float(ops["output_layer"].m) == 32
    assert float(np.asarray(ops["output_layer"].n)) >= model.vocabulary


def test_what_tensor_parallel_ranks_reduce_is_what_they_gather():
    """Forward and backward of sequence parallelism mirror each other; without it each side reduces once."""
    model = models.get("llama3-8b")
    for sequence, count in ((True, {"all_gather": 6, "reduce_scatter": 4}), (False, {"all_reduce": 4})):
        forward = layer(Rank(model, Batch.training(1, 4096), Shard(tensor=8, sequence_parallel=sequence)))
        ops = [op for op in (*forward, *backward(forward)) if op.kind == "tensor"]
        ran = [op.operation for op in ops if np.any(np.asarray(op.size) > 1)]
        assert {name: ran.count(name) for name in set(ran)} == count


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-8b"])
def test_ends_hold_the_padded_table(name):
    model = models.get(name)
    rank = Rank(model, Batch.training(1, 2048), Shard(tensor=8), how=Implementation(loss="fused"))
    table = total(embedding(rank), "parameters")
    positions = model.max_sequence * model.hidden if model.position == "learned" else 0
    assert 0 <= 8 * (table - positions) - model.hidden * model.vocabulary < 8 * 128 * model.hidden


def test_a_changed_op_is_what_dataclasses_replace_makes():
    rank = Rank(models.get("deepseek-v3"), Batch.training(1, 128), Shard(tensor=2, expert=4))
    for op in (*embedding(rank), *layer(rank, "full", True), *head(rank)):
        changed, expected = op.changed(name="other", repeats=3.0), replace(op, name="other", repeats=3.0)
        assert type(changed) is type(op)
        assert vars(changed) == vars(expected)
        assert op.name != "other"


def test_idle_ops_are_those_without_bytes_or_partners():
    rank = Rank(models.get("llama3-8b"), Batch.training(1, 128), Shard(tensor=np.array([2.0, 4.0])))
    idle = {op.name for op in layer(rank) if op.is_idle}
    assert idle and all("all_gather" in name or "scatter" in name for name in idle)
    sharded = Rank(models.get("llama3-8b"), Batch.training(1, 128), Shard(tensor=np.array([1.0, 2.0])))
    assert not any(op.is_idle for op in layer(sharded) if op.name == "attention_output.all_reduce")


def test_every_kind_of_attention_is_one_entry():
    assert {*MIXERS, "none"} == {*get_args(AttentionKind)}


@pytest.mark.parametrize("dispatcher", get_args(Dispatcher))
def test_every_dispatcher_lists_a_layer_with_all_experts(dispatcher):
    """A dispatcher changes what is sent and copied, never the experts' products."""
    model = models.get("qwen3-30b-a3b")
    shard = Shard(expert=1.0 if dispatcher == "replicated" else 8.0)
    how = Implementation(dispatcher=dispatcher)
    ops = layer(Rank(model, Batch.training(1, 4096), shard, how=how), experts=True)
    routed = [op for op in ops if op.part == "routed"]
    ranks = 1 if dispatcher == "replicated" else 8
    assert total(routed, "parameters") * ranks == model.moe.experts * expert_parameters(model)
    sent = [op for op in routed if op.kind == "expert" and not op.is_idle]
    assert bool(sent) is (dispatcher != "replicated")


def test_products_that_gather_for_themselves_gather_five_times_and_not_again_backward():
    """Query, key, value, gate and up (KempnerForge); Megatron gathers twice, and twice more backward."""
    batch, shard = Batch.training(1, 4096), Shard(tensor=4, sequence_parallel=True)

    def calls(how, gradient):
        ops = layer(Rank(models.get("llama3-8b"), batch, shard, how=how))
        ops = backward(ops) if gradient else ops
        inputs = [op for op in ops if "_input." in op.name and np.any(getattr(op, "size", 0) > 1)]
        return {op.operation for op in inputs}, sum(op.repeats for op in inputs)

    shared, alone = Implementation(), Implementation(gathers_by_product=True)
    assert calls(shared, False) == ({"all_gather"}, 2.0)
    assert calls(alone, False) == ({"all_gather"}, 5.0)
    assert calls(shared, True) == ({"all_gather", "reduce_scatter"}, 4.0)
    assert calls(alone, True) == ({"reduce_scatter"}, 5.0)


def test_a_product_with_one_hot_rows_costs_one_forward_and_one_for_the_table():
    """Tokens have no gradient: 2 passes of 2 x tokens x rows x hidden, where the output layer has 3."""
    model = models.get("gpt2-medium")
    rank = Rank(model, Batch.training(2, 1024), how=Implementation(one_hot_embedding=True))
    ops = embedding(rank)
    output = next(op for op in head(rank) if op.name == "output_layer")
    assert total(ops, "flops") == output.flops
    assert total(backward(ops), "flops") == output.flops
    assert total(ops, "parameters") == total(embedding(Rank(model, rank.batch)), "parameters")


@pytest.mark.parametrize("end", [embedding, head])
def test_whole_ends_are_those_of_one_tensor_rank_and_send_nothing(end):
    batch, shard = Batch.training(1, 4096), Shard(tensor=4)
    how = Implementation(whole_ends=True, loss="torch")
    whole = end(Rank(models.get("llama3-8b"), batch, shard, how=how))
    alone = end(Rank(models.get("llama3-8b"), batch, how=how))
    for what in ("flops", "parameters", "saved"):
        assert total(whole, what) == total(alone, what)
    assert all(op.is_idle for op in whole if op.kind == "tensor")


@pytest.mark.parametrize(("kernels", "passed", "passing"), [("reductions", 14, 0), ("wide", 20, 6)])
def test_softmaxes_of_32_bits_keep_them(kernels, passed, passing):
    """In XLA's loops 14 bytes a score each way; 20 with torch's scale, mask, 32-bit result and cast.

    Torch's backward pass holds the 32-bit gradient of probabilities and the 16-bit one of scores beside them.
    """
    model = models.get("gpt2-medium")
    how = Implementation(attention="unfused", elementwise="eager", softmax=kernels)
    softmax = next(op for op in layer(Rank(model, Batch.training(4, 2048), how=how)) if op.kind == "softmax")
    scores = 4 * model.heads * 2048**2
    assert float(np.sum(softmax.bytes)) == float(np.sum(softmax.backward_bytes)) == passed * scores
    assert float(np.sum(softmax.saved)) == 6 * scores
    assert float(np.sum(softmax.passing)) == passing * scores
