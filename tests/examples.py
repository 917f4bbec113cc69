"""Questions, rows and results of measured servers that several tests take."""

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
TRAINING_FLAGS = [
    "--model",
    "llama2-7b",
    "--cluster",
    "dgx-a100-80gb",
    "--gpus",
    "16",
    "--seq-len",
    "2048",
    "--global-batch",
    "64",
]
"""A question of `plan train` that has plans."""
SERVED = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 100,
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "input": 600,
        "output": 60,
    },
}
"""A scenario of serving without its deployment."""
AIPERF = {
    "input_config": {"loadgen": {"concurrency": 4}},
    "request_count": {"unit": "requests", "avg": 40.0},
    "input_sequence_length": {"unit": "tokens", "avg": 700.0, "p50": 700},
    "output_sequence_length": {"unit": "tokens", "avg": 60.0, "p50": 60},
    "time_to_first_token": {"unit": "ms", "avg": 80.0, "p50": 70.0},
    "inter_token_latency": {"unit": "ms", "avg": 9.5, "p50": 9.4},
}
GUIDELLM = {
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": 4}},
            "metrics": {
                "request_totals": {"successful": 40, "errored": 0},
                "prompt_token_count": {"successful": {"mean": 700.0, "median": 700.0}},
                "output_token_count": {"successful": {"mean": 60.0, "median": 60.0}},
                "time_to_first_token_ms": {"successful": {"mean": 80.0, "median": 70.0}},
                "inter_token_latency_ms": {"successful": {"mean": 9.5, "median": 9.4}},
            },
        }
    ]
}
"""Results of AIPerf and of GuideLLM, four clients each."""
