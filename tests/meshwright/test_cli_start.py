"""The command line starts light, and says how it is used."""

import os
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

from meshwright.commands import COMMANDS

PACKAGES = ("meshwright", "planner", "simulator", "hwmodels", "core", "profiles")
HEAVY = ("numpy", "networkx", "pulp", "torch", "scipy", "simpy", "plotly", "highspy", "yaml", "pydantic")


HEAVY_OF_PLAN = (
    *("networkx", "pulp", "torch", "scipy", "simpy", "plotly", "highspy", "ray", "pyarrow"),
    *("sqlite3", "multiprocessing", "concurrent.futures", "asyncio", "ssl"),
    *(
        "simulator.engine",
        "simulator.serving",
        "profiles",
        "planner.training.refine",
        "meshwright.exporters.table",
    ),
)
PLAN = (
    *("plan", "--model", "gpt3-175b", "--cluster", "dgx-a100-80gb"),
    *("--gpus", "1024", "--seq-len", "2048", "--global-batch", "1536"),
)


@pytest.mark.parametrize(
    ("command", "shown", "heavy", "most"),
    [(("--help",), "Usage", HEAVY, 30), (PLAN, "rank", HEAVY_OF_PLAN, 332)],
)
def test_a_command_imports_only_what_it_needs(command, shown, heavy, most):
    """Modules of the project are counted: half of the time of a plan is their import."""
    script = (
        "import sys\n"
        f"sys.argv = ['meshwright', *{command!r}]\n"
        "from meshwright.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        f"print([name for name in sys.modules if name.split('.')[0] in {PACKAGES!r}])\n"
        f"print('loaded:', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown in done.stdout
    modules, loaded = done.stdout.splitlines()[-2:]
    assert loaded == "loaded: []"
    assert len(literal_eval(modules)) <= most


def test_the_help_of_a_command_imports_no_validators():
    script = (
        "import sys; sys.argv = ['meshwright', 'plan', '--help']\n"
        "from meshwright.__main__ import main\n"
        "try: main()\n"
        "finally: print(sorted({'pydantic', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_shows_a_runnable_example(run, command):
    ran = run(command, "--help")
    assert ran.code == 0
    assert f"Example: meshwright {command}" in ran.out


def test_without_arguments_it_shows_its_commands(run):
    ran = run()
    assert "Usage" in ran.out + ran.err
    assert "validate" in ran.out + ran.err


def test_version_is_that_of_the_newest_entry_in_the_changelog(run):
    changelog = Path(__file__).parents[2] / "CHANGELOG.md"
    newest = re.search(r"^## (\d+\.\d+\.\d+)", changelog.read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert run("--version").out == f"meshwright {newest.group(1)}\n"


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["simulat"], "simulate"),
        (["plan", "--modle", "x"], "--model"),
        (["show"], "KIND is missing (devices, "),
        (["plan", "--gpus", "x"], "--gpus"),
    ],
)
def test_unknown_commands_and_options_exit_2(run, arguments, nearest):
    ran = run(*arguments)
    assert ran.code == 2
    assert nearest in ran.err
    assert ran.out == ""


def test_an_interrupt_ends_cleanly(run, monkeypatch, scenario):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.training.prediction.Prediction.of", interrupted)
    ran = run("simulate", str(scenario()))
    assert (ran.code, ran.out, ran.err) == (130, "", "error: interrupted\n")


def test_a_full_disk_or_a_forbidden_file_is_a_message(run, monkeypatch, scenario):
    def full(*_):
        raise OSError(28, "No space left on device", "trace.json")

    monkeypatch.setattr("planner.training.prediction.Prediction.of", full)
    ran = run("simulate", str(scenario()))
    assert (ran.code, ran.out, ran.err) == (2, "", "error: trace.json: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("meshwright pl", ["plan"]),
        ("meshwright plan --model mixtral-8x2", ["mixtral-8x22b"]),
        ("meshwright plan --cluster dgx-h1", ["dgx-h100"]),
        ("meshwright simulate frontier", ["frontier-1t"]),
        ("meshwright whatif --framework torchtitan-", ["torchtitan-eager", "torchtitan-rowwise"]),
    ],
)
def test_the_shell_completes_commands_and_names(words, offered):
    position = str(words.count(" "))
    environment = {**os.environ, "_MESHWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": words}
    script = "import sys; sys.argv = ['meshwright']; from meshwright.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "COMP_CWORD": position},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == offered
