"""Vidur's profiling CSVs: layer products, elementwise operations, attention, network."""

import pytest

from core.errors import InputError
from profiles import points
from profiles.importers import import_points

OPERATIONS = (
    "emb",
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
STATISTICS = ("min", "max", "mean", "median", "std")


def layer_csv(times, tokens=4096, tp=1):
    """A row of Llama-2-7b as Vidur writes it; ``times`` are medians in milliseconds."""
    names = [f"time_stats.{operation}.{kind}" for operation in OPERATIONS for kind in STATISTICS]
    cells = [f"{times[operation]:.6g}" for operation in OPERATIONS for _ in STATISTICS]
    shape = {
        "n_head": 32,
        "n_kv_head": 32,
        "n_embd": 4096,
        "n_expanded_embd": 11008,
        "vocab_size": 32768,
        "use_gated_mlp": True,
        "num_tokens": tokens,
        "num_tensor_parallel_workers": tp,
    }
    header = ",".join([*names, *shape])
    return f"{header}\n{','.join([*cells, *map(str, shape.values())])}\n"


# microsoft/vidur, data/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv, first row, medians in ms
LLAMA = {
    "emb": 0.234,
    "input_layernorm": 0.105,
    "attn_pre_proj": 1.911,
    "attn_rope": 0.149,
    "attn_post_proj": 0.611,
    "post_attention_layernorm": 0.104,
    "mlp_up_proj": 3.3655,
    "mlp_act": 0.266,
    "mlp_down_proj": 1.604,
    "add": 0.055,
}

ATTENTION = """\
time_stats.attn_decode.median,time_stats.attn_prefill.median,n_embd,n_q_head,n_kv_head,block_size,\
num_tensor_parallel_workers,max_model_len,batch_size,prefill_chunk_size,kv_cache_size,is_prefill,\
attention_backend,profile_method
0.015,,8192,64,8,16,2,4096,1,0,32,False,AttentionBackend.FLASH_ATTENTION,ProfileMethod.KINETO
,0.251,8192,64,8,16,2,4096,1,1024,512,True,AttentionBackend.FLASH_ATTENTION,ProfileMethod.KINETO
"""

NETWORK = """\
,time_stats.all_reduce.min,time_stats.all_reduce.max,time_stats.all_reduce.mean,time_stats.all_reduce.median,\
time_stats.all_reduce.std,rank,num_workers,size,collective,devices_per_node,max_devices_per_node
0,0.031,0.077,0.05,0.043,0.019,0,2,2048,all_reduce,1,8
1,0.442,0.456,0.4497,0.451,0.0057,0,8,2129920,all_reduce,8,8
"""


def imported(tmp_path, name, text):
    path = tmp_path / "a100" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    result = import_points(path, tmp_path / "out")
    return result, {table: list(points.read(file).rows()) for table, file in result.files.items()}


def test_layer_products_hold_all_weights(tmp_path):
    _, rows = imported(tmp_path, "mlp.csv", layer_csv(LLAMA))
    products = {(row["n"], row["k"]): row["time_us"] for row in rows["gemm"]}
    assert products == {
        (3 * 4096, 4096): 1911.0,
        (4096, 4096): 611.0,
        (2 * 11008, 4096): 3365.5,
        (4096, 11008): 1604.0,
    }
    weights = sum(n * k for n, k in products)
    assert weights == 4 * 4096**2 + 3 * 4096 * 11008  # the parameters of a Llama-2-7b layer
    assert {row["gpu"] for row in rows["gemm"]} == {"a100-sxm"}


def test_tensor_parallelism_divides_the_weights(tmp_path):
    _, whole = imported(tmp_path, "mlp.csv", layer_csv(LLAMA))
    _, split = imported(tmp_path, "mlp.csv", layer_csv(LLAMA, tp=4))
    weights = [sum(row["n"] * row["k"] for row in rows["gemm"]) for rows in (whole, split)]
    assert weights[0] == 4 * weights[1]


def test_elementwise_bytes(tmp_path):
    _, rows = imported(tmp_path, "mlp.csv", layer_csv(LLAMA))
    per_token = {row["op"]: (row["dims"], row["bytes_per_token"]) for row in rows["elementwise"]}
    assert per_token["add"] == ("4096", 24576)
    assert per_token["mlp_act"] == ("11008", 66048)
    assert per_token["attn_rope"] == ("8192", 32768)
    assert per_token["post_attention_layernorm"] == ("4096", 16384)


def test_times_below_the_resolution_are_dropped_and_counted(tmp_path):
    result, rows = imported(tmp_path, "mlp.csv", layer_csv(LLAMA | {"add": 0.0}, tokens=1))
    assert result.zero["elementwise"] == 1
    assert "add" not in {row["op"] for row in rows["elementwise"]}


def test_attention(tmp_path):
    _, rows = imported(tmp_path, "attention.csv", ATTENTION)
    (decode,) = rows["attention_decode"]
    assert (decode["n_heads"], decode["n_kv_heads"], decode["head_dim"]) == (32, 4, 128)
    assert (decode["seq_kv"], decode["kernel"], decode["time_us"]) == (32, "flash_attention", 15.0)
    (prefill,) = rows["attention_prefill"]
    assert (prefill["seq_q"], prefill["seq_kv"], prefill["time_us"]) == (1024, 1536, 251.0)


def test_network(tmp_path):
    _, rows = imported(tmp_path, "all_reduce.csv", NETWORK)
    spread, packed = rows["collectives"]
    assert (spread["n_gpus"], spread["n_nodes"], spread["bytes"], spread["time_us"]) == (2, 2, 2048, 43.0)
    assert (packed["n_gpus"], packed["n_nodes"]) == (8, 1)


def test_negative_time(tmp_path):
    with pytest.raises(InputError, match=r"line 2, column time_stats\.add\.median: a time above 0"):
        imported(tmp_path, "mlp.csv", layer_csv(LLAMA | {"add": -0.055}))
