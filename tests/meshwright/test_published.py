"""The shipped measurements: each row consistent with itself, its formula and the model catalogue."""

import csv
from pathlib import Path

import pytest

import meshwright
from meshwright.validation.cases import read_case, read_cases
from meshwright.validation.rows import published_files
from simulator.models import models
from simulator.ops.counts import model_parameters

FOLDER = Path(meshwright.__file__).parent / "published"
A100_FLOPS, MI250X_GCD_FLOPS = 312e12, 191.5e12


def read(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


ROWS = [row for path in sorted(FOLDER.glob("*.csv")) for row in read(path)]


def number(row, *names):
    values = [float(row[name]) for name in names]
    return values[0] if len(values) == 1 else values


def megatron_flops(row, recomputed):
    batch, s, layers, h, vocab = number(row, "global_batch", "seq_len", "n_layers", "d_model", "vocab")
    factor, share = (96, 16) if recomputed else (72, 12)
    return factor * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (share * layers * h))


def palm_flops(row):
    batch, s, layers, h = number(row, "global_batch", "seq_len", "n_layers", "d_model")
    return (6 * model_parameters(models.get(row["model_name"])) + 12 * layers * h * s) * batch * s


STEP = {
    "step_time_s": lambda row, value: value,
    "tokens_per_s_per_gpu": lambda row, value: (
        number(row, "global_batch") * number(row, "seq_len") / (value * number(row, "n_gpus"))
    ),
    "hardware_tflops_per_gpu": lambda row, value: (
        megatron_flops(row, True) / (value * 1e12 * number(row, "n_gpus"))
    ),
    "mfu_percent": lambda row, value: (
        megatron_flops(row, False) / (value / 100 * A100_FLOPS * number(row, "n_gpus"))
    ),
    "percent_of_peak": lambda row, value: (
        megatron_flops(row, True) / (value / 100 * MI250X_GCD_FLOPS * number(row, "n_gpus"))
    ),
    "model_tflops_per_gpu": lambda row, value: palm_flops(row) / (value * 1e12 * number(row, "n_gpus")),
}


def test_case_ids_are_unique():
    assert len({row["case_id"] for row in ROWS}) == len(ROWS) > 100


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case_id"])
def test_a_row_is_consistent(row):
    assert row["source"] and row["url_or_repo"] and row["framework"]
    model = models.get(row["model_name"])
    shape = [model.layers, model.hidden, model.heads, model.kv_heads, model.feed_forward]
    assert number(row, "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff") == shape
    if model.moe:
        experts = [model.moe.experts, model.moe.top_k, model.moe.feed_forward]
        assert number(row, "n_experts", "top_k", "moe_d_ff") == experts
    if not row["derived_step_time_s"]:
        assert "no step time" in row["notes"]
        return
    ranks, tensor, pipeline, context, data = number(row, "n_gpus", "tp", "pp", "cp", "dp")
    assert tensor * pipeline * context * data == ranks
    assert number(row, "global_batch") % (data * number(row, "micro_batch")) == 0
    assert (tensor * context * data) % number(row, "ep") == 0
    expected = STEP[row["measured_metric"]](row, number(row, "measured_value"))
    assert number(row, "derived_step_time_s") == pytest.approx(expected, rel=1e-4)


def test_layer_times_add_up():
    """Table 4 prints sums of 19.6, 19.0, 27.2, 20.9 and 20.3 ms."""
    rows = read(FOLDER / "layers" / "korthikanti_2022.csv")
    sums = [round(1e3 * (number(row, "forward_s") + number(row, "backward_s")), 1) for row in rows]
    assert sums == [19.6, 19.0, 27.2, 20.9, 20.3]


PREDICTED = {
    "dash_2023.csv": (2, 1),  # one row states no number of GPUs
    "fsdp.csv": (38, 0),
    "jiang_2024.csv": (12, 0),
    "korthikanti_2022.csv": (9, 0),
    "llama3_2024.csv": (3, 0),
    "megatron_bridge.csv": (129, 0),
    "mixture_of_experts.csv": (38, 0),
    "narayanan_2021.csv": (22, 0),
}
"""Rows of the shipped files that are predicted, and those that are skipped."""


def test_rows_that_were_predicted_stay_predicted():
    """A rule of words that moves loses none of the shipped rows."""
    counts = {path.name: tuple(map(len, read_cases(path))) for path in published_files()}
    assert counts == PREDICTED


@pytest.mark.parametrize(
    ("words", "release", "overlaps"),
    [
        ("NeMo / Megatron-Core / Transformer Engine", "nemo", True),
        ("NeMo 24 (Megatron-Core, January 2024, Transformer Engine)", "nemo", True),
        ("Megatron-SWIFT (Megatron-Core, Transformer Engine)", "megatron-core", True),
        ("Megatron-LM (2bc6cd3 of January 2024, Transformer Engine 1.1)", "megatron-core", False),
    ],
)
def test_a_recipe_of_another_release_refuses_no_row(words, release, overlaps):
    """Words that mean a recipe of Megatron-LM's script leave NeMo's rows to NeMo's defaults."""
    row = next(row for row in ROWS if row["gpu"] == "h100-sxm" and row["tp"] == "4")
    case = read_case({**row, "framework": words}, "test")
    assert case.setting.framework.name == release
    assert case.setting.framework.defaults["overlap_gradients"] is overlaps
