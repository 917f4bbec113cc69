import numpy as np
import pytest

from core.errors import InputError
from hwmodels.device import devices
from profiles import points as point_files
from profiles.kernel_validation import validate_kernels

KERNELS = devices.get("h100-sxm").kernels


def write(folder, table, rows):
    point_files.write(folder / f"{table}.csv", point_files.TABLES[table], rows)


def gemm_row(m, factor=1.0, **more):
    seconds = float(KERNELS.gemm(m, 4096, 4096)) * factor
    return {"gpu": "h100-sxm", "dtype": "bf16", "m": m, "n": 4096, "k": 4096, "time_us": seconds * 1e6} | more


def test_errors_are_those_of_the_points(tmp_path):
    write(tmp_path, "gemm", [gemm_row(m, 1.25) for m in (16, 64, 4096, 8192)])
    (row,) = validate_kernels(tmp_path).rows
    assert (row["operation"], row["gpu"], row["dtype"], row["points"]) == ("gemm", "h100-sxm", "bf16", 4)
    for key in ("median_error", "p90_error", "large_median_error", "small_median_error"):
        assert row[key] == pytest.approx(0.2, abs=1e-3)
    assert row["form_alone"]["median_error"] != row["median_error"]


def test_each_library_is_judged_by_its_own_constants(tmp_path):
    other = KERNELS.using("sglang")
    rows = [gemm_row(m) for m in (64, 4096)]
    for m in (64, 4096):
        rows.append(
            gemm_row(m, source="aic:sglang-0.5") | {"time_us": float(other.gemm(m, 4096, 4096)) * 1e6}
        )
    write(tmp_path, "gemm", rows)
    (row,) = validate_kernels(tmp_path).rows
    assert row["p90_error"] < 1e-3
    assert {part["library"] for part in row["libraries"]} == {"default", "sglang"}


def test_all_tables(tmp_path):
    write(tmp_path, "gemm", [gemm_row(64, layout="wgrad")])
    heads = {"gpu": "h100-sxm", "dtype": "bf16", "batch": 4, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}
    rows = [
        heads | {"seq_q": 2048, "seq_kv": 2048, "direction": d, "time_us": 500.0}
        for d in ("forward", "backward")
    ]
    write(tmp_path, "attention_prefill", rows)
    decode = heads | {"dtype": "bf16_kvfp8", "seq_q": 1, "seq_kv": 8192}
    write(tmp_path, "attention_decode", [decode | {"time_us": 60.0}])
    layer = {"gpu": "h100-sxm", "dtype": "fp8_block", "tokens": 4096, "hidden": 2048, "inter": 768, "topk": 8}
    write(
        tmp_path, "moe", [layer | {"n_experts": 128, "tp": 1, "ep": 1, "dist": "balanced", "time_us": 900.0}]
    )
    norm = {"op": "rms_norm", "gpu": "h100-sxm", "tokens": 4096, "dims": "4096", "bytes_per_token": 16384}
    write(tmp_path, "elementwise", [norm | {"time_us": 30.0}])
    found = validate_kernels(tmp_path)
    assert [row["operation"] for row in found.rows] == [
        "attention",
        "attention_backward",
        "attention_decode",
        "gemm",
        "grouped_gemm",
        "norm",
    ]
    assert all(np.isfinite(row["median_error"]) for row in found.rows)
    assert found.skipped == []


def test_what_cannot_be_predicted_is_listed_with_its_reason(tmp_path):
    write(tmp_path, "gemm", [gemm_row(64), gemm_row(64, gpu="abacus"), gemm_row(64, dtype="nvfp4")])
    found = validate_kernels(tmp_path)
    assert len(found.rows) == 1
    assert {row["gpu"] for row in found.skipped} == {"abacus", "h100-sxm"}
    assert any("nvfp4" in row["reason"] for row in found.skipped)


def test_impossible_points_are_counted(tmp_path):
    write(tmp_path, "gemm", [gemm_row(64), gemm_row(8192, 0.01)])
    assert validate_kernels(tmp_path).dropped == 1


def test_a_folder_without_points(tmp_path):
    with pytest.raises(InputError, match=r"gemm\.csv"):
        validate_kernels(tmp_path)
    with pytest.raises(InputError, match="no such"):
        validate_kernels(tmp_path / "none")
