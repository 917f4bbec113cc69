"""Linear attention and state-space layers: hybrid models, from their list of ops to a step."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwmodels.cluster import clusters
from simulator.layout.stages import Spread, Stages
from simulator.models import models
from simulator.ops import SERVING, Batch, Implementation, Rank, Shard, StateStep, backward, layer
from simulator.ops.counts import active_parameters, model_parameters
from simulator.plan import Plan, Plans
from simulator.pricing import Prices, price
from simulator.training import predict
from simulator.training.step_graph.build import simulate

LAYER_TYPES = (["linear_attention"] * 3 + ["full_attention"]) * 12
HYBRIDS = "qwen3-next-80b-a3b", "nemotron-h-8b"


def seconds(model, batch, kind="linear", **shard):
    cluster = clusters.get("dgx-h100").resized(8)
    rank = Rank(models.get(model), batch, Shard(**shard), how=SERVING)
    ops = [op for op in layer(rank, kind, False, False) if op.part == "core"]
    return sum(price(ops, Prices(cluster.device.kernels, cluster)))


@pytest.mark.parametrize(
    ("model", "stated", "tolerance"), [(HYBRIDS[0], 80e9, 0.005), (HYBRIDS[1], 8.1e9, 0.001)]
)
def test_parameters_are_the_published_ones(model, stated, tolerance):
    assert model_parameters(models.get(model)) == pytest.approx(stated, rel=tolerance)


def test_active_parameters_of_qwen3_next_are_three_billion():
    """The card counts 3 billion activated, embeddings apart."""
    model = models.get(HYBRIDS[0])
    assert active_parameters(model) - model.embedding_parameters - model.output_parameters == pytest.approx(
        3.2e9, rel=0.05
    )


def test_a_scan_takes_longer_in_proportion_to_its_tokens_and_decode_whatever_the_context():
    short, long = (float(seconds(HYBRIDS[0], Batch.prefill(1, n))) for n in (65536, 262144))
    assert long == pytest.approx(4 * short, rel=0.05)
    few, many = (float(seconds(HYBRIDS[0], Batch.decode(32, n))) for n in (100, 100_000))
    assert few == many


def test_attention_overtakes_the_scan_at_long_contexts():
    scan, full = (
        [float(seconds(HYBRIDS[0], Batch.prefill(1, n), kind)) for n in (1024, 65536)]
        for kind in ("linear", "full")
    )
    assert full[1] / full[0] > 5 * scan[1] / scan[0]


def test_a_decode_reads_and_writes_each_state_once():
    model = models.get(HYBRIDS[1])
    rank = Rank(model, Batch.decode(1, 1), how=SERVING)
    step = next(op for op in layer(rank, "linear", False, False) if isinstance(op, StateStep))
    assert float(step.flops) == 4 * 128 * 64 * 128
    assert model.linear.state_bytes == 4 * 128 * 64 * 128 + 2 * (128 * 64 + 2 * 8 * 128) * 3


def test_a_scans_backward_pass_is_one_scan_back():
    rank = Rank(models.get(HYBRIDS[0]), Batch.training(1, 4096))
    forward = [op for op in layer(rank, "linear", True) if op.name == "scan"]
    (back,) = backward(forward)
    assert back.flops == pytest.approx(2.5 * forward[0].flops)


def test_layers_without_attention_or_without_an_mlp_lack_its_ops():
    rank = Rank(models.get(HYBRIDS[1]), Batch.training(1, 4096), Shard(tensor=2))
    parts = [{op.part for op in layer(rank, *kind)} for kind in rank.model.layer_groups]
    assert parts == [{"projections", "core", "around"}, {"mlp", "around"}, {"projections", "core", "around"}]


@pytest.mark.parametrize("model", HYBRIDS)
def test_a_training_step_runs_in_closed_form_and_on_the_engine(make_setting, model):
    setting = make_setting(model, "dgx-h100", 16, seq_len=8192, global_batch=64)
    plan = Plan(tensor=2, pipeline=4, data=2, expert=2, zero=1, sequence_parallel=True)
    step = predict(setting, Plans.of(plan))
    timeline = simulate(setting, plan)
    assert timeline.period == pytest.approx(step.time[0], rel=0.1)
    assert step.seconds["attention"][0] > 0
    assert np.all(Stages.of(setting, Plans.of(plan)).total >= 0)
    spread = Spread.of(setting, Plans.of(plan))
    assert spread.stages.sum() == setting.model.layers


@pytest.mark.parametrize("said", [{"full_attention_interval": 4}, {"layer_types": LAYER_TYPES}])
def test_their_config_json_are_read(tmp_path, said):
    qwen = {
        "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
        "max_position_embeddings": 262144, "hidden_act": "silu",
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "decoder_sparse_step": 1, "mlp_only_layers": [], **said,
    }  # fmt: skip
    nemotron = {
        "model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 52, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504, "vocab_size": 131072,
        "max_position_embeddings": 8192, "mlp_hidden_act": "relu2", "mamba_num_heads": 128,
        "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "use_conv_bias": True,
        "chunk_size": 128,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    }  # fmt: skip
    for name, config in ((HYBRIDS[0], qwen), (HYBRIDS[1], nemotron)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        read, shipped = models.get(str(folder)), models.get(name)
        assert model_parameters(read) == model_parameters(shipped)
        assert read.layer_groups == shipped.layer_groups
        assert read.linear == shipped.linear


def test_context_parallel_ranks_swap_sequences_for_heads_around_the_scan():
    """Each rank sends its tokens' inputs once, and the scan's output back."""
    model = models.get("nemotron-3-nano-30b-a3b")
    batch = Batch.training(1, 8192, True)

    def sent(context):
        ops = layer(Rank(model, batch, Shard(context=context)), "linear", False, False)
        return [op for op in ops if op.kind == "context"]

    assert not sent(1)
    inputs, output = sent(4)
    assert float(np.ravel(output.bytes)[0]) == 2 * 8192 / 4 * model.linear.value_width
    assert float(np.ravel(inputs.bytes)[0]) > 2 * float(np.ravel(output.bytes)[0])
    assert len([op for op in backward([inputs, output]) if op.gradient == "input"]) == 2


def test_scans_save_no_states_which_their_backward_pass_computes_again():
    """Mamba-2 saves its input, the output before the gate and the norm's input."""
    for name, per_token in (
        ("nemotron-h-8b", lambda spec: spec.channels + 3 * spec.value_width),
        (
            "qwen3-next-80b-a3b",
            lambda spec: (
                spec.channels
                + spec.heads * (2 * spec.key_dim + spec.value_dim + spec.chunk)
                + 2 * spec.value_width
            ),
        ),
    ):
        model = models.get(name)
        ops = layer(Rank(model, Batch.training(1, 4096)), "linear", False, False)
        kept = sum(float(np.ravel(op.saved)[0]) for op in ops if op.part == "core")
        assert kept == 2 * 4096 * per_token(model.linear)
        assert not any(np.any(op.intermediate) for op in ops)


def test_megatron_copies_scans_of_several_sequences_into_batch_first_layout():
    model, megatron = models.get(HYBRIDS[1]), Implementation(scans_batch_first=True)
    spec = model.linear

    def copies(sequences, how):
        ops = layer(Rank(model, Batch.training(sequences, 4096), how=how), "linear", False, False)
        return [op for op in ops if op.name == "batch_first"]

    assert not copies(1, megatron)
    assert not copies(2, Implementation())
    (copy,) = copies(2, megatron)
    inputs = spec.channels + spec.value_width + spec.heads
    assert float(copy.bytes) == 2 * 2 * 2 * 4096 * (inputs + spec.value_width)
    assert float(copy.backward_bytes) == 2 * 2 * 2 * 4096 * inputs
