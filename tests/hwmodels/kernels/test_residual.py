import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from hwmodels.kernels.residual import ResidualGrid, load_grids, save_grids

AXES = (np.array([0.0, 1.0, 3.0]), np.array([2.0, 5.0]))
LOGS = np.array([[0.1, -0.2], [0.0, 0.3], [-0.1, 0.05]])
GRID = ResidualGrid(AXES, LOGS)


def test_exact_at_nodes_and_linear_between():
    assert np.log(GRID.factor([1, 2, 8], [4, 32, 4])) == pytest.approx([0.1, 0.3, -0.1], abs=1e-6)
    assert np.log(GRID.factor(4, 4)) == pytest.approx(-0.05, abs=1e-6)


def test_the_edge_holds_beyond_the_grid():
    assert GRID.factor(1e6, 1e9) == pytest.approx(np.exp(0.05), abs=1e-6)
    assert GRID.factor(1e-6, 1e-9) == pytest.approx(np.exp(0.1), abs=1e-6)


@given(st.floats(0.01, 1e5), st.floats(0.01, 1e5))
def test_never_beyond_what_was_left_over(x, y):
    assert np.exp(-0.2) * (1 - 1e-6) <= GRID.factor(x, y) <= np.exp(0.3) * (1 + 1e-6)


def test_coordinates_broadcast():
    assert GRID.factor(np.ones((4, 1)), np.ones(3)).shape == (4, 3)


def test_files_keep_grids_to_half_a_percent(tmp_path):
    path = tmp_path / "x.residuals.npz"
    save_grids(path, {"gemm/bf16": GRID, "vllm/attention/bf16": GRID})
    grids = load_grids(path)
    assert set(grids) == {"gemm/bf16", "vllm/attention/bf16"}
    assert np.abs(grids["gemm/bf16"].logs - LOGS).max() <= 0.005 + 1e-6
    assert [p.name for p in tmp_path.iterdir()] == ["x.residuals.npz"]


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_grids(tmp_path / "none.npz")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(InputError, match=r"broken\.npz"):
        load_grids(broken)


def test_axes_that_do_not_fit(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **{"gemm/bf16/steps": np.zeros((2, 2), np.int8), "gemm/bf16/axis0": np.zeros(2)})
    with pytest.raises(InputError, match="axes"):
        load_grids(path)
