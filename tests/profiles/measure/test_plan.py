"""What a run measures: counts, unique points, the columns of the point files, sizes that fit a CPU."""

from collections import Counter

import pytest

from profiles import points
from profiles.measure.bench import Scope
from profiles.measure.machine import Machine
from profiles.measure.operations import OPERATIONS
from profiles.measure.runner import CPU_LIMITS, planned
from profiles.measure.shapes import gemm_shapes, lettered_shapes, shrunk

pytest.importorskip("torch")

VERSIONS = {"torch": "2.13.0"}
H200 = Machine(
    "cuda", 0, "h200-sxm", "NVIDIA H200", ("fp32", "bf16", "fp8"), 132, 50 * 2**20, 141 * 10**9, VERSIONS
)
CPU = Machine("cpu", 0, "cpu", "a CPU", ("fp32", "bf16"), 2, 32 * 2**20, 16 * 10**9, VERSIONS)


def plan(machine, mode, dtypes):
    limits = CPU_LIMITS[mode] if machine.kind == "cpu" else (float("inf"), float("inf"))
    scope = Scope(mode, dtypes, machine, None, *limits)
    return planned(scope, OPERATIONS.values())


@pytest.mark.parametrize(
    ("machine", "mode", "dtypes", "low", "high"),
    [
        (H200, "quick", ("bf16",), 65, 80),
        (H200, "quick", ("bf16", "fp8"), 70, 90),
        (H200, "full", ("bf16", "fp8"), 280, 360),
        (CPU, "quick", ("fp32",), 65, 90),
    ],
)
def test_how_many_points(machine, mode, dtypes, low, high):
    assert low <= len(plan(machine, mode, dtypes)) <= high


def test_shape_lists_are_those_documented():
    assert len(gemm_shapes("gemm", "quick")) == 24
    assert len(gemm_shapes("gemm", "full")) == 96
    assert len(lettered_shapes("attention", "full")) == 48
    assert lettered_shapes("attention", "quick")[0] == {
        "b": 2,
        "q": 4096,
        "kv": 4096,
        "h": 8,
        "g": 4,
        "d": 64,
    }


@pytest.mark.parametrize("machine", [H200, CPU], ids=["h200", "cpu"])
@pytest.mark.parametrize("mode", ["quick", "full"])
def test_points_are_unique_and_fill_their_table(machine, mode):
    seen = Counter()
    for point in plan(machine, mode, machine.default_dtypes()):
        table = points.TABLES[point.table]
        identity = {column.name for column in table.identity}
        assert {"gpu", *point.values} == identity, point.operation
        seen[point.table, table.key({"gpu": machine.name, **point.values})] += 1
    assert max(seen.values()) == 1


def test_every_direction_and_layout_is_measured():
    found = plan(H200, "full", ("bf16",))
    layouts = Counter(p.values["layout"] for p in found if "layout" in p.values)
    assert layouts["dgrad"] == layouts["wgrad"] == 8
    assert layouts["forward"] == 96 + 4  # and the sustained ones
    backward = {p.table for p in found if p.values.get("direction") == "backward"}
    assert backward == {"attention_prefill", "moe", "elementwise"}


def test_shapes_shrink_to_the_limit_and_no_further():
    scope = Scope("full", ("fp32",), CPU, None, 1e9, 64e6)
    shapes = gemm_shapes("gemm", "full")

    def work(shape):
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 2.0 * m * n * k, 4.0 * (m * k + n * k + m * n)

    def smaller(shape):
        largest = max("mnk", key=shape.get)
        return shape | {largest: shape[largest] // 2}

    found = list(shrunk(shapes, scope, work, smaller))
    assert all(scope.fits(*work(shape)) for shape in found)
    assert all(shape in found for shape in shapes if scope.fits(*work(shape)))
    assert len({tuple(shape.items()) for shape in found}) == len(found)


def test_fp8_only_where_it_is_asked_for():
    assert not any(p.values.get("dtype") == "fp8" for p in plan(H200, "full", ("bf16",)))
    fp8 = [p for p in plan(H200, "full", ("fp8",)) if p.values.get("dtype") == "fp8"]
    assert Counter(p.operation for p in fp8) == {"gemm_fp8": 24}
    assert all(p.values["n"] % 16 == 0 and p.values["k"] % 16 == 0 for p in fp8)  # what _scaled_mm demands
