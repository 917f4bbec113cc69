"""Collectives between gloo processes of this machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from profiles import points
from profiles.measure import profile_collectives
from profiles.measure.collectives import MeasurementRequest, main

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("points")
    options = {"device": "cpu", "operations": ("all_reduce", "send_recv"), "show_progress": False}
    return profile_collectives(2, out, **options), profile_collectives(2, out, **options)


@pytest.mark.slow
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
    request = MeasurementRequest("points", mode="full")
    assert request.groups(8) == [2, 4, 8]
    assert request.groups(6) == [2, 4, 6]
    assert request.groups(2) == [2]
    assert MeasurementRequest("points").groups(8) == [8]
    assert request.sizes("cuda")[-1] == 2**30
    assert MeasurementRequest("points").sizes("cuda") == [1024 * 4**power for power in range(11)]


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


@pytest.mark.slow
def test_pairs_of_a_larger_world(tmp_path):
    options = {"device": "cpu", "operations": ("send_recv",), "show_progress": False}
    result = profile_collectives(3, tmp_path, **options)
    assert (result.measured, result.skipped) == (8, ())
    assert set(points.read(tmp_path / "collectives.csv")["n_gpus"]) == {2}


def test_a_folder_of_another_device(tmp_path):
    (tmp_path / "gemm.csv").write_text("gpu,dtype,m,n,k,time_us\nother,bf16,1,1,1,1\n")
    with pytest.raises(InputError, match=r"gemm.csv: holds points of other, not of cpu"):
        profile_collectives(2, tmp_path, device="cpu")


@pytest.fixture
def heeds_ctrl_c():
    """What a shell started in the background ignores Ctrl-C, and so does all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_every_process_and_keeps_finished_points(tmp_path):
    command = [sys.executable, "-m", "meshwright", "profile", "--device", "cpu", "--collectives", "2"]
    root = Path(__file__).parents[3]
    options = {"cwd": root, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "-o", str(tmp_path)], start_new_session=True, **options)
    path = tmp_path / "collectives.csv"
    while process.poll() is None and (not path.exists() or path.read_text().count("\n") < 3):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    # The pipes close when the last process that holds them has ended.
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("error: interrupted\n")
    assert "Traceback" not in err
    assert len(points.read(path)) >= 2


def test_outside_torchrun(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as exit_:
        main(["--out", str(tmp_path)])
    assert exit_.value.code == 2
    assert "start it with torchrun" in capsys.readouterr().err
