"""Rows of starts and of adapters, as questions."""

from pathlib import Path

import pytest

from evidence.serving.ledger import evaluate

STARTS = """id,model,tp,gpu,engine,how,stage,seconds,source
X1,Qwen3-0.6B,1,a4000,vLLM 0.11.0,start,load,30.3,test
X2,Qwen3-0.6B,1,a4000,vLLM 0.11.0,sleep level 1 (weights in host memory),wake,0.28,test
X3,Qwen3-0.6B,1,a4000,vLLM 0.11.0,sleep level 1 (weights in host memory),sleep,0.3,test
"""
LORA = """case_id,engine,method,model,lora_ranks,gpu,num_adapters,alpha,req_rate_s,cv,duration_s,\
input_range,output_range,\
throughput_req_s,latency_s_mean,first_token_s_mean,flag,source
a,s-lora,slora,huggyllama/llama-7b,{8},a10g,10,1,0.5,1,60,8-512,8-512,0.5,9,0.2,,test
b,s-lora,pets,huggyllama/llama-7b,{8},a10g,10,1,0.5,1,60,8-512,8-512,0.5,9,0.2,,test
"""


def ledger(text: str, path: Path):
    path.write_text(text, encoding="utf-8")
    return evaluate([path])


def test_starts_are_predicted_and_going_to_sleep_is_not(tmp_path):
    found = ledger(STARTS, tmp_path / "starts.csv")
    predicted = {entry.metric: entry.predicted for entry in found.entries}
    # 30 s of the engine and 1.19 GB at 3.47 GB/s; 0.23 s and the same at 25 GB/s.
    assert predicted["disk_s"] == pytest.approx(30.0 + 1.192 / 3.47, rel=1e-3)
    assert predicted["sleep-1_s"] == pytest.approx(0.23 + 1.192 / 25, rel=1e-3)
    assert len(found.skipped) == 1


def test_adapters_are_predicted_and_servers_of_one_model_are_not(tmp_path):
    found = ledger(LORA, tmp_path / "lora.csv")
    assert {entry.case.case_id for entry in found.entries} == {"a"}
    assert all(entry.predicted > 0 for entry in found.entries)
    assert [name for name, _ in found.skipped] == ["b"]
