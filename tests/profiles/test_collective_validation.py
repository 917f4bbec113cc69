import pytest

from hwmodels.cluster import clusters
from profiles import points as point_files
from profiles.kernel_validation import validate_kernels

NODE = clusters.get("dgx-h100").resized(8)


def row(operation="all_reduce", ranks=8, factor=1.0, **more):
    named = {"alltoall": "all_to_all"}.get(operation, operation)
    seconds = float(NODE.collective(named, 2**26, ranks, concurrent=False))
    columns = {"system": "h100-sxm", "op": operation, "dtype": "fp16", "n_gpus": ranks, "n_nodes": 1}
    return columns | {"bytes": 2**26, "time_us": factor * seconds * 1e6} | more


def found(folder, rows):
    point_files.write(folder / "collectives.csv", point_files.TABLES["collectives"], rows)
    return validate_kernels(folder)


def test_errors_are_those_of_the_points(tmp_path):
    rows = [row(factor=1.25), row(ranks=4, factor=1.25), row("alltoall", 2)]
    reduced, exchanged = found(tmp_path, rows).rows
    assert (reduced["operation"], reduced["gpu"], reduced["dtype"]) == ("all_reduce", "h100-sxm", "fp16")
    assert (reduced["points"], exchanged["operation"]) == (2, "all_to_all")
    assert reduced["median_error"] == reduced["large_median_error"] == pytest.approx(0.2, abs=1e-3)
    assert exchanged["p90_error"] < 1e-3


def test_a_cluster_brings_its_network_and_a_device_does_not(tmp_path):
    spread = row(ranks=16) | {"n_nodes": 2}
    result = found(tmp_path, [spread, spread | {"system": "aws-p5"}])
    assert [each["gpu"] for each in result.rows] == ["aws-p5"]
    (skipped,) = result.skipped
    assert (skipped["gpu"], skipped["points"]) == ("h100-sxm", 1)
    assert "network" in skipped["reason"]


def test_what_is_not_predicted_says_why(tmp_path):
    rows = [row(system="abacus"), row(source="aic:custom-vllm-0.24"), row() | {"op": "scan"}]
    result = found(tmp_path, rows)
    assert result.rows == []
    reasons = {each["reason"] for each in result.skipped}
    assert len(reasons) == 3
    assert any("unknown" in reason and "scan" in reason for reason in reasons)


def test_integers_are_not_reduced_in_the_switch(tmp_path):
    floating, whole = found(tmp_path, [row(), row() | {"dtype": "int8"}]).rows
    assert floating["median_error"] < 1e-3 < whole["median_error"]


def test_a_cluster_of_ones_own_stands_for_whatever_the_points_call_it(tmp_path):
    rows = [row(ranks=16) | {"n_nodes": 2, "system": "our racks"}, row() | {"system": "h100-sxm"}]
    point_files.write(tmp_path / "collectives.csv", point_files.TABLES["collectives"], rows)
    result = validate_kernels(tmp_path, clusters.get("dgx-h100"))
    assert not result.skipped
    assert {each["gpu"]: each["points"] for each in result.rows} == {"our racks": 1, "h100-sxm": 1}
