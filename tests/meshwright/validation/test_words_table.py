"""The table of spellings: each rule by an example, and what the columns that it fills do to a case."""

import pytest

from evidence.accuracy.conventions import idle
from meshwright.validation.cases import read_case
from meshwright.validation.rows import (
    PublishedRow,
    conventions,
    matches,
    published_files,
    read_rows,
    rule_of,
)
from meshwright.validation.words import filled, spellings

BRIDGE, PAX = "Megatron-Bridge/Megatron-Core", "PaxML (JAX/XLA)"
TITAN = "torchtitan (FSDP2 + torch.compile)"
EXAMPLES = [
    ({"notes": "3 layers a stage; CUDA graphs of router and preprocess"}, {"graphs": "router"}),
    ({"framework": f"{BRIDGE}, HybridEP; CUDA graphs of moe_router, moe_preprocess"}, {"graphs": "router"}),
    ({"framework": f"{BRIDGE}, no CUDA graphs"}, {"graphs": "none"}),
    ({"framework": "Megatron-Core dev (HybridEP)", "notes": "force balanced; no graphs"}, {"graphs": "none"}),
    ({"framework": "Megatron-Core dev (HybridEP; full CUDA graphs)"}, {"graphs": "step"}),
    ({"framework": f"{BRIDGE}, full-iteration CUDA graphs"}, {"graphs": "step"}),
    ({"framework": "Megatron-Core dev (partial CUDA graphs)"}, {"graphs": "attention"}),
    ({"framework": f"{BRIDGE}; CUDA graphs of attn, mamba"}, {"graphs": "attention"}),
    ({"framework": f"{BRIDGE}; CUDA graphs"}, {"graphs": "layer"}),
    ({"framework": "prime-rl (torch FSDP2, FlashAttention-3)"}, {"attention_kernel": "flash-3"}),
    (
        {"framework": "KempnerForge (torch FSDP2 + torch.compile)"},
        {
            "attention_kernel": "flash",
            "loss": "torch-16",
            "peak_of": "first stage",
            "peak_counts": "allocated",
            "unsharded_gradients": "true",
        },
    ),
    (
        {"framework": "transformers (torch FSDP, full_shard)"},
        {"unsharded_gradients": "true", "reduce_bytes": "2"},
    ),
    ({"source": "verl_megatron_practice: Qwen3.5 at 128K on H100"}, {"peak_counts": "reserved"}),
    ({"source": "Zero Bubble Pipeline Parallelism (ICLR24) Table 4"}, {"peak_counts": "reserved"}),
    ({"notes": "states: pure bf16 (80.7 GB on one GPU)"}, {"states": "bf16"}),
    ({"precision": "bf16 (pure, no fp32 master weights)"}, {"states": "bf16"}),
    ({"notes": "8-bit paged Adam", "precision": "bf16 (pure)"}, {"states": "paged-8-bit"}),
    ({"notes": "8-bit Adam", "precision": "bf16 (pure)"}, {"states": "8-bit"}),
    (
        {"notes": "full recomputation inferred from the printed TFLOPS"},
        {"activation_recompute": "full"},
    ),
    ({"notes": "packed documents; bf16 moments"}, {"states": "moments-16"}),
    ({"framework": "Megatron-SWIFT (Megatron-Core, Transformer Engine)"}, {"loss": "native"}),
    (
        {"framework": "torchtitan (eager)", "pp": "2", "activation_recompute": "none"},
        {"peak_of": "last stage"},
    ),
    ({"framework": "nanotron", "pp": "2"}, {"peak_counts": "reserved", "peak_of": "first stage"}),
    ({"notes": "gradients accumulate unsharded (no_sync)"}, {"unsharded_gradients": "true"}),
    ({"framework": "TRL (torch FSDP2, ring context parallelism)"}, {"attention_kernel": "flash"}),
    ({"framework": "torch FSDP2", "notes": "chunked_nll loss"}, {"loss": "chunked"}),
    (
        {"framework": "prime-rl (torch FSDP2)", "notes": "RL loss: by chunks of tokens (fused LM head)"},
        {"loss": "log-probabilities"},
    ),
    ({"framework": "torchtitan (eager, loss compiled)", "activation_recompute": "full"}, {"loss": "fused"}),
    ({"framework": TITAN, "gpu": "b200", "activation_recompute": "full"}, {"loss": "fused"}),
    ({"framework": TITAN, "notes": "ROCm 6.4", "activation_recompute": "full"}, {"loss": "fused"}),
    (
        {
            "framework": TITAN,
            "precision": "bf16",
            "notes": "GraphTrainer: whole-step CUDA graphs",
            "activation_recompute": "selective",
        },
        {"recompute_kind": "selective", "recompute_modules": "layernorm, mlp_act", "loss": "torch"},
    ),
    (
        {"framework": TITAN, "source": "torchtitan H200 Jun-2025, 8 nodes", "activation_recompute": "full"},
        {"loss": "fused"},
    ),
    ({"framework": "torchtune (torch, one device)"}, {"loss": "chunked", "peak_counts": "reserved"}),
    ({"notes": "optimizer step in the backward pass"}, {"update_in_backward": "true"}),
    ({"framework": "Megatron-LM", "notes": "peak memory = max reserved"}, {"peak_counts": "reserved"}),
    ({"framework": "torch", "notes": "memory is max_memory_reserved"}, {"peak_counts": "reserved"}),
    ({"framework": "Megatron-LM", "notes": "rank-0 peak allocated, GB"}, {"peak_counts": "allocated"}),
    ({"framework": "Colossal-AI (torch)"}, {"peak_counts": "allocated", "loss": "torch"}),
    ({"framework": BRIDGE}, {"peak_counts": "allocated", "peak_unit": "GB"}),
    ({"framework": TITAN, "gpu": "h100", "activation_recompute": "full"}, {"loss": "torch"}),
    ({"framework": "LLaMA-Factory, Liger kernels"}, {"loss": "chunked"}),
    ({"framework": "torch FSDP, FA2"}, {"attention_kernel": "flash-2"}),
    ({"framework": "Megatron-LM (January 2024, Transformer Engine 1.1)"}, {"attention_kernel": "flash-2"}),
    (
        {"framework": PAX, "notes": "native Pax layers", "activation_recompute": "none"},
        {"attention_kernel": "unfused"},
    ),
    (
        {
            "framework": f"{PAX} + TransformerEngine",
            "source": "rosetta pax README (2024-04)",
            "activation_recompute": "none",
        },
        {"attention_kernel": "unfused"},
    ),
    (
        {
            "framework": f"{PAX} + TransformerEngine",
            "model_name": "GPT-126M",
            "source": "rosetta pax README (2025-05)",
            "activation_recompute": "none",
        },
        {"attention_kernel": "unfused"},
    ),
    (
        {"framework": PAX, "activation_recompute": "XLA policy save-dots-with-no-batch-dim"},
        {"recompute_kind": "selective", "recompute_modules": "core_attn, layernorm, mlp_act"},
    ),
    (
        {"framework": "Megatron-LM", "activation_recompute": "selective (layernorm) and the MLP activation"},
        {"recompute_kind": "selective", "recompute_modules": "layernorm, mlp_act"},
    ),
    (
        {
            "framework": BRIDGE,
            "source": "Megatron-Bridge performance summary, 26.04 NeMo container",
            "model_name": "nemotron-3-nano-30b-a3b",
            "gpu": "h100-sxm",
            "precision": "fp8",
            "ep": "8",
            "activation_recompute": "modules: layernorm",
        },
        {"recompute_modules": "moe, layernorm, core_attn, moe_act"},
    ),
    (
        {
            "framework": "Megatron-Core, DeepEP, expert overlap",
            "source": "Megatron-Bridge performance skills: moe-hardware-configs",
            "model_name": "deepseek-v3",
            "gpu": "b200",
        },
        {"recompute_kind": "selective", "recompute_modules": "mla_up_proj, mlp"},
    ),
    ({"framework": "torchtitan (FSDP2; DeepEP)"}, {"activation_recompute": "selective"}),
    ({"framework": "MaxText"}, {"recompute_kind": "least"}),
    (
        {"framework": "torchtitan", "n_experts": "128", "notes": "network and compile not stated"},
        {"activation_recompute": "selective", "loss": "fused"},
    ),
    (
        {"framework": TITAN, "gpu": "gb200", "activation_recompute": "full", "notes": "compile not stated"},
        {"loss": "torch"},
    ),
    (
        {"framework": TITAN, "source": "smoke suite (2026-07)", "activation_recompute": "full"},
        {"loss": "chunked"},
    ),
    (
        {"source": "TRL PR 6845: 1M-token training", "model_name": "qwen3-30b-a3b"},
        {"offload": "activations, optimizer and parameters to the host", "peak_counts": "allocated"},
    ),
    (
        {"source": "TRL PR 6845: 1M-token training", "model_name": "qwen3-8b"},
        {"offload": "activations to the host", "peak_counts": "allocated"},
    ),
    (
        {"source": "DeepSpeed blog 2022-07-26 Azure, Fig 7 1T", "model_name": "GPT-1T"},
        {"offload": "optimizer to the host"},
    ),
    (
        {"framework": "torchtitan (async TP)", "activation_recompute": "none"},
        {"tensor_overlap": "full", "loss": "torch"},
    ),
    (
        {"framework": "torchtitan", "precision": "fp8", "activation_recompute": "none"},
        {"loss": "torch"},
    ),
    (
        {"framework": "torchtitan", "activation_recompute": "full", "notes": "FSDP2 degree=8; async TP=on"},
        {"tensor_overlap": "full"},
    ),
    (
        {"framework": "Megatron-Kwai (fork of Megatron-LM, TP communication overlapped)"},
        {"tensor_overlap": "full"},
    ),
    ({"framework": "nanotron", "pp_schedule": "1f1b/afab (engine not given)"}, {"schedule": "1f1b"}),
]


@pytest.mark.parametrize(("stated", "columns"), EXAMPLES)
def test_words_fill_columns(stated, columns):
    found = filled(PublishedRow(stated, "test")).values
    # What a figure of memory counts goes with frameworks, whatever the example is of.
    told = {*stated, *({"peak_counts", "peak_unit"} - columns.keys())}
    assert {name: found[name] for name in found if name not in told} == columns


@pytest.mark.parametrize("number", range(len(spellings())))
def test_each_spelling_has_an_example(number):
    rule = spellings()[number]
    assert any(matches(PublishedRow(stated, "test"), rule.where) for stated, _ in EXAMPLES)


def test_a_stated_column_counts_before_words():
    row = PublishedRow({"framework": "Megatron-LM, no CUDA graphs", "graphs": "layer"}, "test")
    assert filled(row).values["graphs"] == "layer"


ROW = {
    "case_id": "one",
    "gpu": "h100-sxm",
    "n_gpus": "8",
    "model_name": "gpt-5b",
    "n_layers": "24",
    "d_model": "4096",
    "n_heads": "32",
    "d_ff": "16384",
    "ffn_type": "gelu",
    "seq_len": "2048",
    "global_batch": "64",
    "micro_batch": "8",
    "tp": "1",
    "pp": "1",
    "precision": "bf16",
    "zero_stage": "3",
    "framework": PAX,
}


def test_a_launch_script_corrects_a_stated_column():
    lora = {
        "source": "MLPerf Training v5.1 closed, llama2_70b LoRA",
        "framework": "NeMo 24 (MLPerf, Megatron-Core)",
    }
    shape = {
        "model_name": "llama2-70b",
        "n_layers": "80",
        "d_model": "8192",
        "n_heads": "64",
        "d_ff": "28672",
    }
    stated = {
        **ROW,
        **lora,
        **shape,
        "n_gpus": "16",
        "tp": "4",
        "cp": "2",
        "sequence_parallel": "0",
        "zero_stage": "1",
    }
    assert read_case(stated, "test").plan.sequence_parallel
    assert not read_case(stated | {"source": "another"}, "test").plan.sequence_parallel


def test_columns_reach_framework_and_plan():
    policy = "XLA policy save-dots-with-no-batch-dim"
    case = read_case({**ROW, "activation_recompute": policy, "notes": "native Pax layers"}, "test")
    assert case.plan.recompute == "selective"
    assert case.plan.recompute_modules == ("core_attn", "layernorm", "mlp_act")
    assert case.plan.attention == "unfused"


def test_blank_recomputation_is_the_least_that_fits():
    small = read_case({**ROW, "n_layers": "4"}, "test")
    wide = {"n_layers": "64", "d_model": "8192", "d_ff": "32768", "micro_batch": "8"}
    large = read_case({**ROW, **wide, "n_gpus": "32", "global_batch": "256"}, "test")
    assert (small.plan.recompute, large.plan.recompute) == ("none", "full")
    assert "recomputation" in small.assumed and "recomputation" in large.assumed


def test_megatron_lm_of_2021_ran_the_zero_3_of_its_year():
    """Six rows of Narayanan et al.: the later DeepSpeed promised them twice their speed."""
    rows = read_rows(next(path for path in published_files() if path.stem == "narayanan_2021"))
    zero = [PublishedRow(row, "test") for row in rows if row["zero_stage"] == "3"]
    assert len(zero) == 6
    assert {rule_of(row)["release"] for row in zero} == {"deepspeed-zero3-2021"}


def test_an_idle_rule_is_told_unless_it_says_why_it_stands(monkeypatch):
    """Of the shipped tables alone; ``python -m benchmarks.conventions`` takes more."""
    rules = conventions()
    idle_rule = {"match": "no framework has this name", "release": "nemo"}
    for extra, told in ((idle_rule, True), ({**idle_rule, "stands": "tables of users"}, False)):
        changed = {**rules, "releases": [extra, *rules["releases"]]}
        monkeypatch.setattr("evidence.accuracy.conventions.conventions", lambda new=changed: new)
        monkeypatch.setattr("meshwright.validation.rows.conventions", lambda new=changed: new)
        lines = idle(published_files())
        assert ("releases: no framework has this name -> nemo" in lines) == told
