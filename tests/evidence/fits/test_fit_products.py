"""Calibrations that copy a fitted one, or hold ratios to it, follow its new fit."""

from core.loading import read_mapping
from evidence.fits.fit_products import Shipped, follow, replace
from profiles.fitting.write import write_mapping

MEASURED = {
    "status": "fitted",
    "source": "9 points of x",
    "form": {"compute_efficiency": 0.8, "throttling": 0.0},
}


def calibration(**entries):
    return {"grouped_gemm": entries}


def copied(source, **form):
    return {"status": "estimated", "source": f"carried over from {source}", "form": form}


def test_copies_ratios_and_copies_of_copies_follow_a_fit(tmp_path):
    old = calibration(bf16={"form": {"compute_efficiency": 0.5, "throttling": 0.0}})
    new = calibration(bf16={"form": {"compute_efficiency": 0.6, "throttling": 0.01}})
    files = {
        "copy": {"name": "copy", **calibration(bf16=copied("base", compute_efficiency=0.5))},
        "ratio": {
            "name": "ratio",
            "based_on": "base",
            **calibration(bf16={"form": {"compute_efficiency": 0.55}}),
        },
        "second": {
            "name": "second",
            "based_on": "copy",
            **calibration(bf16={"form": {"compute_efficiency": 1.0}}),
        },
        "own": {"name": "own", "based_on": "base", **calibration(bf16=MEASURED)},
        "stranger": {"name": "stranger", **calibration(bf16=copied("other", compute_efficiency=0.5))},
    }
    for name, content in files.items():
        write_mapping(content, tmp_path / f"{name}.yaml")

    follow("base", old, new, tmp_path)

    forms = {name: read_mapping(tmp_path / f"{name}.yaml")["grouped_gemm"]["bf16"]["form"] for name in files}
    assert forms["copy"] == {"compute_efficiency": 0.6, "throttling": 0.01}
    assert forms["ratio"] == {"compute_efficiency": 0.66}
    assert forms["second"] == {"compute_efficiency": 1.2}
    assert forms["own"] == MEASURED["form"]
    assert forms["stranger"] == {"compute_efficiency": 0.5}


def test_a_fit_that_moves_nothing_writes_nothing(tmp_path):
    path = tmp_path / "copy.yaml"
    path.write_text("# by hand\ngrouped_gemm: {bf16: {source: carried over from base, form: {a: 1.0}}}\n")
    same = calibration(bf16={"form": {"a": 1.0}})

    follow("base", same, same, tmp_path)

    assert path.read_text().startswith("# by hand")


def test_a_new_fit_keeps_what_a_form_says_of_its_table():
    error = {"median": 0.1, "p90": 0.2}
    entry = {"error": error, "form": {"fixed_depth": 1.0, "engine_kernels": True}}
    new = {"error": error, "form": {"fixed_depth": 2.0, "engine_kernels": False}}

    replace("h200-sxm", Shipped("trtllm", "grouped_gemm", "fp8_block", entry), new, None, {})

    assert entry["form"] == {"fixed_depth": 2.0, "engine_kernels": True}
