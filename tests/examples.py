"""Rows of measured files that several tests take."""

PUBLISHED_RUN = {
    "gpu": "a100-sxm-80gb",
    "n_gpus": "8",
    "n_layers": "24",
    "d_model": "2048",
    "n_heads": "16",
    "seq_len": "2048",
    "global_batch": "64",
    "micro_batch": "4",
    "tp": "1",
    "pp": "1",
    "precision": "bf16",
    "framework": "Megatron-LM",
    "derived_step_time_s": "2.0",
}
"""A run of training that is predicted, without its name."""
PEAK_THROUGHPUT = {
    "case_id": "one",
    "engine": "trtllm",
    "engine_version": "0.11",
    "backend": "tensorrt",
    "kind": "peak_throughput",
    "model": "EleutherAI/gpt-j-6b",
    "gpu": "a100-sxm-80gb",
    "n_gpus": 1,
    "tp": 1,
    "pp": 1,
    "weight_precision": "fp16",
    "kv_precision": "",
    "batch": 512,
    "num_requests": "",
    "input_tokens": 128,
    "output_tokens": 128,
    "out_tok_s": 5876,
    "ttft_ms": "",
    "mfu": 0.4,
    "flag": "",
    "notes": "",
}
"""A row of `tables.csv` that is predicted."""
