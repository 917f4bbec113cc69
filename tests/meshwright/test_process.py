"""The command as a process: signals, streams, faults; nothing is left behind, no traceback is printed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshwright.__main__ import app
from meshwright.crash_report import report_fault

QUESTION = [
    *("plan", "--model", "llama2-7b", "--cluster", "dgx-a100-80gb", "--gpus", "16"),
    *("--seq-len", "2048", "--global-batch", "64"),
]
MESHWRIGHT = [sys.executable, "-m", "meshwright"]


def group(leader: int) -> list[int]:
    """Processes of a process group that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            continue
        if entry.name.isdigit() and int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def until(true, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(true())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, number):
    script = tmp_path / "busy.py"
    script.write_text(
        "import time\n"
        "from core.processes import clean_up_on_signals\n"
        "from planner.executors.local import in_parallel\n"
        "def work(number):\n"
        f"    open({str(tmp_path)!r} + f'/began-{{number}}', 'w').close()\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    with clean_up_on_signals():\n"
        "        list(in_parallel(work, ((number,) for number in range(4)), 2))\n"
    )
    started = subprocess.Popen(
        [sys.executable, str(script)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env=environment(),
        # A test run under nohup ignores SIGHUP, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        assert until(lambda: len(list(tmp_path.glob("began-*"))) == 2, 60)
        assert len(group(started.pid)) >= 3
        os.kill(started.pid, number)
        started.wait(timeout=20)
        assert until(lambda: not group(started.pid), 20), group(started.pid)
    finally:
        if group(started.pid):
            os.killpg(started.pid, signal.SIGKILL)


SWALLOWED = """
import os, signal, time
from core.processes import clean_up_on_signals
class Signalled:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
try:
    with clean_up_on_signals():
        Signalled()
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
CUT_SHORT = """
import multiprocessing.util, os, signal, time
from core.processes import clean_up_on_signals
from planner.executors.local import in_parallel
start, started = multiprocessing.util.spawnv_passfds, []
def then_signal(*arguments):
    started.append(start(*arguments))
    if len(started) == 2:  # the first one is multiprocessing's resource tracker
        os.kill(os.getpid(), signal.SIGTERM)
    return started[-1]
if __name__ == "__main__":
    multiprocessing.util.spawnv_passfds = then_signal
    try:
        with clean_up_on_signals():
            list(in_parallel(time.sleep, [(60,), (60,)], 2))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of Unix")
@pytest.mark.parametrize("script", [SWALLOWED, CUT_SHORT], ids=["in a destructor", "as a worker starts"])
def test_a_signal_at_a_bad_moment_interrupts_without_a_traceback(tmp_path, script):
    (tmp_path / "script.py").write_text(script)
    ran = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("interrupted\n", "", 0)


def environment(**changed: str) -> dict[str, str]:
    """This process's environment with the packages of this checkout."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **changed}


def test_a_stream_that_takes_ascii_only_gets_the_table_without_other_characters():
    ran = subprocess.run(
        [*MESHWRIGHT, *QUESTION], capture_output=True, env=environment(PYTHONIOENCODING="ascii"), check=True
    )
    verdict, *rows = ran.stdout.decode("ascii").splitlines()
    assert " s +- " in verdict
    heading = next(row for row in rows if "rank" in row and row.startswith("|"))
    assert "+-" in heading


def test_a_closed_stdout_is_a_message():
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *MESHWRIGHT, "show", "models"],
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert (ran.returncode, ran.stderr.splitlines()) == (
        2,
        ["error: stdout is closed; > /dev/null discards the results"],
    )


def test_a_closed_stderr_hides_no_result():
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *MESHWRIGHT, *QUESTION],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
        check=True,
    )
    assert "rank" in ran.stdout


def test_an_unexpected_error_is_one_line_a_report_and_exit_70(monkeypatch, scenario, tmp_path):
    def fails(*_):
        raise KeyError("nobody\nexpected this")

    monkeypatch.setattr("planner.training.prediction.Prediction.of", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = CliRunner().invoke(app, ["simulate", str(scenario())])
    assert ran.exit_code == 70
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: unexpected KeyError")
    (report,) = tmp_path.glob("meshwright-fault-*.txt")
    assert str(report) in line
    assert "in fails" in report.read_text()


def test_the_last_ten_reports_stay(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "other.txt").write_text("stays")
    for number in range(14):
        path = tmp_path / f"meshwright-fault-{number:02}.txt"
        path.write_text("old")
        os.utime(path, (number, number))
    assert str(tmp_path) in report_fault(KeyError("new"))
    left = sorted(tmp_path.glob("meshwright-fault-*.txt"))
    assert len(left) == 10 and "old" not in left[-1].read_text()
    assert [path.name for path in left[:9]] == [
        f"meshwright-fault-{number:02}.txt" for number in range(5, 14)
    ]
    assert (tmp_path / "other.txt").exists()


def test_warnings_of_libraries_stay_out_and_ours_are_sentences():
    said = (
        "import sys, warnings, numpy\n"
        "import meshwright.__main__ as program\n"
        "from core.errors import Notice\n"
        "def ends(*_):\n"
        "    numpy.log(numpy.array([0.0, -1.0]))\n"
        "    warnings.warn('old', DeprecationWarning)\n"
        "    warnings.warn('mine.yaml: x is y now', Notice)\n"
        "    return lambda: None\n"
        "program.command_line = ends\n"
        "sys.argv = ['meshwright', 'show']\n"
        "program.main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", said], env=environment(), capture_output=True, text=True)
    assert ran.stderr == "warning: mine.yaml: x is y now\n"


def test_too_little_memory_is_a_message(run, monkeypatch, scenario):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr("planner.training.prediction.Prediction.of", fails)
    ran = run("simulate", str(scenario()))
    assert (ran.code, ran.out) == (2, "")
    assert "not enough memory" in ran.err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_stops_early_leaves_the_files(tmp_path, more):
    saved = tmp_path / "plan.yaml"
    asked = [*MESHWRIGHT, *QUESTION, "--save", str(saved), *more]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        ran.stdout.close()
        told = ran.communicate()[1]
    assert ran.returncode == 0, told
    assert saved.exists()
