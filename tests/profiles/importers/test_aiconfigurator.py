"""aiconfigurator's tables: columns, units (milliseconds, elements), what is passed over."""

import pytest

from core.errors import InputError
from profiles import points
from profiles.importers import ImportOptions, import_points

COMMON = "framework,version,device,op_name,kernel_source"
GEMM = f"""{COMMON},gemm_dtype,m,n,k,latency
TRTLLM,1.0.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,bfloat16,4096,5120,4096,0.2811
TRTLLM,1.0.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,bfloat16,4096,5120,4096,0.2851
TRTLLM,1.0.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,fp8_block,4096,5120,4096,0.1601
TRTLLM,1.0.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,bfloat16,8192,8192,8192,0.0210
"""
HEADS = "batch_size,isl,num_heads,num_key_value_heads,head_dim,beam_width"
CONTEXT = f"""{COMMON},{HEADS},attn_dtype,kv_cache_dtype,step,window_size,latency
VLLM,0.24.0,NVIDIA H100 80GB HBM3,context_attention,flash,2,4096,32,8,128,1,bfloat16,bfloat16,0,0,1.254
VLLM,0.24.0,NVIDIA H100 80GB HBM3,context_attention,flash,2,1024,32,0,128,1,bfloat16,fp8,3072,0,0.9
VLLM,0.24.0,NVIDIA H100 80GB HBM3,context_attention,flash,2,4096,32,8,128,1,bfloat16,bfloat16,0,512,0.3
"""
GENERATION = f"""{COMMON},{HEADS},attn_dtype,kv_cache_dtype,step,latency
VLLM,0.24.0,NVIDIA H100 80GB HBM3,generation_attention,flash,16,1,32,8,128,1,bfloat16,bfloat16,8191,0.215
"""
MOE_SIZES = "num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size"
MOE = f"""{COMMON},moe_dtype,{MOE_SIZES},distribution,latency
TRTLLM,1.0.0,NVIDIA H100 80GB HBM3,moe,moe_torch_flow,bfloat16,1024,4096,14336,2,8,1,8,balanced,0.35
"""
NCCL = f"""{COMMON},nccl_dtype,num_gpus,message_size,latency
nccl,2.27.3,NVIDIA H100 80GB HBM3,all_gather,nccl,half,8,524288,0.031
"""
CUSTOM = """allreduce_dtype,num_gpus,message_size,latency,power
half,8,524288,0.0227,0.0
"""


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "systems" / "data" / "h100_sxm"
    for name, text in (
        ("trtllm/1.0.0/gemm_perf.txt", GEMM),
        ("trtllm/1.0.0/moe_perf.txt", MOE),
        ("trtllm/1.0.0/custom_allreduce_perf.txt", CUSTOM),
        ("trtllm/1.0.0/mla_bmm_perf.txt", "framework,latency\nTRTLLM,1\n"),
        ("vllm/0.24.0/context_attention_perf.txt", CONTEXT),
        ("vllm/0.24.0/generation_attention_perf.txt", GENERATION),
        ("nccl/2.27.3/nccl_perf.txt", NCCL),
    ):
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return data


def rows_of(result, table):
    return list(points.read(result.files[table]).rows())


def test_a_whole_folder(folder, tmp_path):
    result = import_points(folder, tmp_path / "out")
    assert result.read == {"aiconfigurator": 6}
    assert result.passed_over == 1
    assert result.written == {
        "gemm": 2,
        "moe": 1,
        "collectives": 2,
        "attention_prefill": 2,
        "attention_decode": 1,
    }
    assert result.merged == 1
    assert result.impossible["gemm"] == 1  # 8192³ in 21 us is 52 PFLOP/s


def test_gemm_in_microseconds_and_median_of_repeats(folder, tmp_path):
    rows = rows_of(import_points(folder, tmp_path / "out"), "gemm")
    assert (rows[0]["gpu"], rows[0]["dtype"], rows[0]["layout"]) == ("h100-sxm", "bf16", "forward")
    assert (rows[0]["m"], rows[0]["n"], rows[0]["k"]) == (4096, 5120, 4096)
    assert rows[0]["time_us"] == pytest.approx(283.1)
    assert rows[0]["source"] == "aiconfigurator:trtllm-1.0.0"
    assert rows[1]["dtype"] == "fp8_block"


def test_attention_lengths_and_heads(folder, tmp_path):
    result = import_points(folder, tmp_path / "out")
    plain, with_prefix = rows_of(result, "attention_prefill")
    assert (plain["seq_q"], plain["seq_kv"], plain["n_kv_heads"]) == (4096, 4096, 8)
    assert plain["dtype"] == "bf16"
    assert (with_prefix["seq_q"], with_prefix["seq_kv"], with_prefix["n_kv_heads"]) == (1024, 4096, 32)
    assert with_prefix["dtype"] == "bf16_kvfp8"
    (decode,) = rows_of(result, "attention_decode")
    assert (decode["seq_q"], decode["seq_kv"], decode["time_us"]) == (1, 8192, 215.0)


def test_messages_are_elements(folder, tmp_path):
    by_op = {row["op"]: row for row in rows_of(import_points(folder, tmp_path / "out"), "collectives")}
    assert by_op["all_gather"]["bytes"] == 2 * 524288
    assert by_op["all_reduce"]["source"] == "aiconfigurator:custom-trtllm-1.0.0"
    assert by_op["all_reduce"]["system"] == "h100-sxm"
    assert by_op["all_reduce"]["time_us"] == pytest.approx(22.7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GEMM.replace(",0.2811", ",-0.2811"), r"line 2, column latency: a time above 0"),
        (GEMM.replace(",0.2811", ",fast"), r"line 2, column latency: a number is needed, found 'fast'"),
        (GEMM.replace(",4096,0.2811", ",40.5,0.2811"), r"line 2, column k: a whole number above 0"),
        (GEMM.replace("gemm_dtype", "dtype"), r"line 1: column 'gemm_dtype' is missing"),
        (GEMM.replace(",0.2811", ""), r"line 2: 10 values are needed, found 9"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", r"pointer of git-lfs"),
    ],
)
def test_wrong_values_are_named(tmp_path, text, message):
    path = tmp_path / "gemm_perf.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        import_points(path, tmp_path / "out")


def test_device_from_the_options_or_the_row(tmp_path):
    path = tmp_path / "gemm_perf.txt"
    path.write_text(GEMM)
    assert rows_of(import_points(path, tmp_path / "a"), "gemm")[0]["gpu"] == "h100-sxm"
    options = ImportOptions(gpu="b200")
    assert rows_of(import_points(path, tmp_path / "b", options=options), "gemm")[0]["gpu"] == "b200"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "gemm_perf.txt",
            GEMM.splitlines()[0] + "\nT,1,NVIDIA H100 80GB HBM3,gemm,x,bfloat16,4096,1e308,4096,1\n",
        ),
        ("nccl_perf.txt", NCCL.splitlines()[0] + "\nn,2,NVIDIA H100 80GB HBM3,all_gather,x,half,8,1e308,1\n"),
    ],
)
def test_sizes_beyond_any_device_are_impossible(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert sum(import_points(tmp_path / name, tmp_path / "out").impossible.values()) == 1
