"""Collectives between gloo processes of this machine."""

import pytest

from hwmodels.errors import InputError, UnknownNameError
from profiles import points
from profiles.measure import profile_collectives
from profiles.measure.collectives import Request, main

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("points")
    options = {"device": "cpu", "operations": ("all_reduce", "send_recv"), "show_progress": False}
    return profile_collectives(2, out, **options), profile_collectives(2, out, **options)


def test_points_and_resuming(measured):
    first, second = measured
    assert (first.measured, first.skipped) == (16, ())
    assert (second.measured, second.resumed) == (0, 16)
    rows = list(points.read(first.out / "collectives.csv").rows())
    assert len(rows) == 16
    assert {(row["system"], row["n_gpus"], row["n_nodes"], row["dtype"]) for row in rows} == {
        ("cpu", 2, 1, "fp32")
    }
    assert sorted({row["bytes"] for row in rows}) == [1024 * 4**power for power in range(8)]


def test_sizes_and_groups():
    request = Request("points", mode="full")
    assert request.groups(8) == [2, 4, 8]
    assert request.groups(6) == [2, 4, 6]
    assert request.groups(2) == [2]
    assert Request("points").groups(8) == [8]
    assert request.sizes("cuda")[-1] == 2**30
    assert Request("points").sizes("cuda") == [1024 * 4**power for power in range(11)]


@pytest.mark.parametrize(
    ("processes", "changes", "error", "message"),
    [
        (1, {}, InputError, "at least 2|2 to 1|found 1"),
        (2, {"operations": ("all_redoce",)}, UnknownNameError, "did you mean 'all_reduce'"),
        (2, {"group_sizes": (4,)}, InputError, "2 to 2 ranks here, found 4"),
    ],
)
def test_wrong_requests(tmp_path, processes, changes, error, message):
    with pytest.raises(error, match=message):
        profile_collectives(processes, tmp_path, device="cpu", **changes)


def test_pairs_of_a_larger_world(tmp_path):
    options = {"device": "cpu", "operations": ("send_recv",), "show_progress": False}
    result = profile_collectives(3, tmp_path, **options)
    assert (result.measured, result.skipped) == (8, ())
    assert set(points.read(tmp_path / "collectives.csv")["n_gpus"]) == {2}


def test_a_folder_of_another_device(tmp_path):
    (tmp_path / "gemm.csv").write_text("gpu,dtype,m,n,k,time_us\nother,bf16,1,1,1,1\n")
    with pytest.raises(InputError, match=r"gemm.csv: holds points of other, not of cpu"):
        profile_collectives(2, tmp_path, device="cpu")


def test_outside_torchrun(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as exit_:
        main(["--out", str(tmp_path)])
    assert exit_.value.code == 2
    assert "start it with torchrun" in capsys.readouterr().err
