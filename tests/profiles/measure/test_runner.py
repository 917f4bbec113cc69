"""A run on this CPU: points on disk, resuming, Ctrl-C, points that cannot be measured."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from core.loading import read_mapping
from profiles import points
from profiles.measure import profile
from profiles.measure.bench import Bench, BenchPoint, MeasuredOperation, Scope
from profiles.measure.machine import find
from profiles.measure.operations import OPERATIONS
from profiles.measure.provenance import Provenance, was_interrupted
from profiles.measure.runner import Session
from profiles.measure.store import PointStore
from profiles.measure.timing import Timing

torch = pytest.importorskip("torch")

CHEAP = ("launch_eager", "copy")


def run(out, **changes):
    options = {"operations": CHEAP, "show_progress": False} | changes
    return profile("cpu", "quick", out=out, **options)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("points")
    return run(out)


def test_points_are_on_disk_with_their_provenance(measured):
    assert (measured.measured, measured.resumed, measured.skipped) == (6, 0, ())
    rows = list(points.read(measured.out / "elementwise.csv").rows())
    assert len(rows) == measured.planned == 6
    assert {row["gpu"] for row in rows} == {"cpu"}
    assert all(row["time_us"] > 0 for row in rows)
    provenance = read_mapping(measured.out / "provenance.yaml")
    assert provenance["device"]["name"] == "cpu"
    assert provenance["runs"][0]["measured"] == 6
    assert provenance["runs"][0]["versions"]["torch"] == torch.__version__
    assert provenance["observed"]["memory_bandwidth"] > 0


def test_a_second_run_measures_only_what_is_new(measured):
    before = (measured.out / "elementwise.csv").read_text()
    notices = []
    again = run(measured.out, operations=(*CHEAP, "add"), notice=notices.append)
    assert (again.measured, again.resumed) == (2, 6)
    assert (measured.out / "elementwise.csv").read_text().startswith(before)
    assert any("6 of 8 points" in notice for notice in notices)
    assert len(read_mapping(measured.out / "provenance.yaml")["runs"]) == 2


def test_a_half_written_line_is_measured_again(measured, tmp_path):
    whole = (measured.out / "elementwise.csv").read_text().splitlines(keepends=True)
    (tmp_path / "elementwise.csv").write_text("".join(whole[:6]) + whole[6][:20])
    again = run(tmp_path)
    assert (again.measured, again.resumed) == (1, 5)
    assert len(points.read(tmp_path / "elementwise.csv")) == 6


def test_points_of_another_device_are_not_mixed(measured):
    with pytest.raises(InputError, match="holds points of cpu, not of my-laptop"):
        run(measured.out, name="my-laptop")


@pytest.mark.slow
def test_ctrl_c_keeps_finished_points(tmp_path):
    script = (
        "from profiles.measure import profile\n"
        f"result = profile('cpu', 'quick', out={str(tmp_path)!r}, show_progress=False)\n"
        "print(result.interrupted, result.measured, result.planned)\n"
    )
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True)
    while (
        process.poll() is None
        and max((p.read_text().count("\n") for p in tmp_path.glob("*.csv")), default=0) < 3
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    interrupted, finished, planned = printed.split()
    assert (process.returncode, interrupted) == (0, "True")
    assert 1 <= int(finished) < int(planned)
    on_disk = sum(len(points.read(path)) for path in points.files(tmp_path).values())
    # The signal may fall between the writing of a point and its counting.
    assert int(finished) <= on_disk <= int(finished) + 1
    assert read_mapping(tmp_path / "provenance.yaml")["runs"][0]["interrupted"] is True


def test_ctrl_c_ends_the_run_though_a_library_swallowed_it(tmp_path):
    def swallows():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    before = signal.getsignal(signal.SIGINT)
    found = session(tmp_path, lambda values, bench: [swallows], points=2)
    assert found.interrupted
    assert found.measured == 1
    assert signal.getsignal(signal.SIGINT) is before


def session(tmp_path, prepare, points=1):
    """A run over points of an operation that is made for the test."""
    machine = find("cpu")
    shapes = [{"dtype": "fp32", "layout": "forward", "m": m, "n": 1, "k": 1} for m in range(1, points + 1)]
    operation = MeasuredOperation("made-up", "gemm", lambda scope: shapes, prepare)
    provenance = Provenance(tmp_path / "provenance.yaml", machine, "quick", ("fp32",))
    found = Session(
        {"made-up": operation}, Bench(machine), PointStore(tmp_path, machine), provenance, lambda line: None
    )
    found.interrupted = found.run(
        [BenchPoint("made-up", "gemm", values) for values in shapes], show_progress=False
    )
    return found


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: torch.empty(2**60), "out of memory"),
        (lambda: torch.ones(2, 2, dtype=torch.int64) / torch.ones(3), "must match the size"),
        (lambda: __import__("flash_attn_that_is_broken"), "No module named"),
        (lambda: torch.no_such_kernel(), "no_such_kernel"),
    ],
)
def test_a_point_that_cannot_be_measured_is_skipped_and_named(tmp_path, call, reason):
    found = session(tmp_path, lambda values, bench: [call])
    assert found.measured == 0
    (skipped,) = found.skipped
    assert skipped.point.startswith("made-up dtype=fp32")
    assert reason in skipped.reason
    assert "\n" not in skipped.reason
    assert points.files(tmp_path) == {}


def graphless(monkeypatch, tmp_path, also_without):
    """A run on a GPU that has no room for a graph; nor, perhaps, for the calls without one."""

    class Timer:
        def time(self, calls, min_seconds, method):
            if method == "graph" or also_without:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 TiB.")
            return Timing(1e-3, 0.0)

    real = Bench.__post_init__

    def on_a_gpu(bench):
        real(bench)
        bench.timer, bench.machine = Timer(), replace(bench.machine, kind="cuda")
        bench.release = lambda: None

    monkeypatch.setattr(Bench, "__post_init__", on_a_gpu)
    return session(tmp_path, lambda values, bench: [lambda: None])


def test_no_room_for_a_graph(monkeypatch, tmp_path):
    found = graphless(monkeypatch, tmp_path, also_without=False)
    assert (found.measured, found.skipped) == (1, [])
    assert len(found.bench.without_graph) == 1
    assert points.read(tmp_path / "gemm.csv")["time_us"].tolist() == [1000.0]


def test_no_room_on_the_gpu_at_all(monkeypatch, tmp_path):
    found = graphless(monkeypatch, tmp_path, also_without=True)
    assert found.measured == 0
    assert [skipped.reason for skipped in found.skipped] == ["out of memory"]
    assert found.bench.without_graph == []


def test_a_folder_tells_whether_its_last_run_was_interrupted(measured, tmp_path):
    assert not was_interrupted(tmp_path)
    assert not was_interrupted(measured.out)
    (tmp_path / "provenance.yaml").write_text("runs: [{interrupted: false}, {started: now}]\n")
    assert was_interrupted(tmp_path)


@pytest.mark.parametrize("content", ["runs: 5\n", "runs: [5]\n"])
def test_a_provenance_that_is_none(tmp_path, content):
    (tmp_path / "provenance.yaml").write_text(content)
    with pytest.raises(InputError, match=r"provenance.yaml: runs: a list of mappings is needed"):
        run(tmp_path)


def test_wrong_requests(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'gemm'"):
        run(tmp_path, operations=("gem",))
    with pytest.raises(InputError, match="a folder on the drive"):
        run(tmp_path, storage=tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no fp16"):
        profile("cpu", "quick", ("fp16",), tmp_path, show_progress=False)
    with pytest.raises(UnknownNameError, match="mode"):
        profile("cpu", "slow", out=tmp_path, show_progress=False)


def test_every_operation_runs_at_its_smallest(tmp_path):
    """Each operation's plan for a very small machine is measured once."""
    machine = find("cpu")
    bench = Bench(machine, tmp_path)
    scope = Scope("quick", ("fp32",), machine, None, 1e6, 1e6)
    for operation in OPERATIONS.values():
        for values in list(operation.plan(scope))[:1]:
            calls = operation.prepare(values, bench)
            calls[0]()
