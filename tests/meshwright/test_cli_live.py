"""`meshwright validate --live`: a small GPT trained here, beside its prediction."""

import json

import numpy as np
import pytest
import yaml

from profiles import points

FLOPS, BANDWIDTH = 50e9, 10e9


@pytest.fixture
def measured(tmp_path):
    """Points of this machine's CPU as a profile run writes them, made up but for their form."""
    folder = tmp_path / "points"
    sizes = 2 ** np.arange(5, 11)
    identity = {"gpu": "cpu", "dtype": "fp32", "layout": "forward", "source": "made up"}
    rows = [
        {**identity, "m": int(m), "n": int(n), "k": int(n), "time_us": 1e6 * (2 * m * n * n / FLOPS + 1e-5)}
        for m in sizes
        for n in sizes
    ]
    points.write(folder / "gemm.csv", points.TABLES["gemm"], rows)
    seen = {"name": "cpu", "full_name": "AMD made up", "kind": "cpu", "multiprocessors": 1}
    seen |= {"last_level_cache_bytes": 32e6, "memory_bytes": 16e9}
    provenance = {"device": seen, "observed": {"flops": {"fp32": FLOPS}, "memory_bandwidth": BANDWIDTH}}
    (folder / "provenance.yaml").write_text(yaml.safe_dump(provenance), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_it_trains_predicts_and_divides_the_gap(run, measured):
    ran = run("validate", "--live", "--device", "cpu", "--steps", "2", "--points", str(measured), "--json")
    assert ran.code == 0, ran.err
    (loop,) = json.loads(ran.out)["live"]
    assert (loop["size"], loop["device"], loop["devices"], loop["precision"]) == ("small", "cpu", 1, "fp32")
    assert loop["measured_step_time_s"] > 0
    gap = loop["predicted_step_time_s"] - loop["measured_step_time_s"]
    assert loop["relative_error"] == pytest.approx(gap / loop["measured_step_time_s"])
    parts = loop["operators"]
    assert sum(part["predicted_s"] - part["measured_s"] for part in parts) == pytest.approx(gap)
    assert {"gemm", "attention", "optimizer"} <= {part["operator"] for part in parts}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cpu", "--size", "tiny"], ["--size", "tiny", "small"]),
        (["--device", "cpu", "--devices", "2", "--parallelism", "dp"], ["--parallelism", "'ddp'"]),
        (["--device", "cpu", "--devices", "4096"], ["--devices", "4096"]),
        (["--device", "tpu"], ["tpu"]),
        (["--cases", "cases.csv"], ["one at a time"]),
    ],
)
def test_what_cannot_be_trained_is_refused(refused, measured, arguments, words):
    message = refused("validate", "--live", *arguments, "--points", str(measured))
    for word in words:
        assert word in message
