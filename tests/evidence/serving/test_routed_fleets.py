"""Routed fleets and KV transfers as measured rows: what a ladder sends, and what its routers gain."""

import csv

import pytest

from evidence.serving.ledger import evaluate

FLEET = {
    "source": "a report",
    "engine": "vllm",
    "model": "Qwen/Qwen3-32B",
    "gpu": "h100-sxm",
    "precision": "bf16",
    "replicas": 4,
    "tp": 2,
    "duration_s": 10,
    "gap_between_stages_s": 30,
    "prefix_groups": 60,
    "prompts_per_group": 5,
    "system_prompt_tokens": 6000,
    "question_tokens": 1200,
    "output_tokens": 200,
    "memory_share": "",
    "fleet_out_tok_s": 1000,
    "ttft_s_mean": 1,
}


def written(path, rows):
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return path


def predictions(path):
    ledger = evaluate([path])
    assert not ledger.skipped
    return {(entry.case.case_id, entry.metric): entry.predicted for entry in ledger.entries}


def test_affinity_gains_where_prefixes_fit_the_fleet_and_not_a_replica(tmp_path):
    routers = {"rr": "round-robin", "affinity": "prefix-cache-affinity + token load (llm-d EPP)"}
    rows = [
        {"case_id": f"{name}-{rate}", "router": router, "stage_rate_s": rate, **FLEET}
        for name, router in routers.items()
        for rate in (2, 25)
    ]
    found = predictions(written(tmp_path / "routed.csv", rows))
    tokens = {key: value for (key, metric), value in found.items() if metric == "fleet_out_tok_s"}
    assert tokens["affinity-2"] == pytest.approx(tokens["rr-2"], rel=0.15)
    assert tokens["affinity-25"] > 1.3 * tokens["rr-25"]
    assert found["affinity-25", "ttft_s_mean"] < found["rr-25", "ttft_s_mean"]


def test_a_transfer_is_its_bytes_and_a_constant(tmp_path):
    row = {"engine": "vLLM 0.11", "model": "Qwen3-8B", "gpu": "h800-sxm", "prefill_tp": 8, "decode_tp": 8}
    row |= {"network": "about 200 GB/s usable a node", "kv_mb": 1, "transfer_ms": 1}
    rows = [{"id": str(tokens), **row, "prompt_tokens": tokens} for tokens in (1024, 2048, 4096)]
    found = predictions(written(tmp_path / "pd.csv", rows))
    times = [found[str(tokens), "transfer_ms"] for tokens in (1024, 2048, 4096)]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]))
    assert 0.3 < 2 * times[0] - times[1] < 1.0
