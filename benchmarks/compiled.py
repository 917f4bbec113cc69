"""The event engine compiled by mypyc, against plain Python: ``python -m benchmarks.compiled [--million]``.

Copies the packages to a temporary folder and compiles there the modules that pyproject.toml names for a
compiled installation (``HATCH_BUILD_HOOK_ENABLE_MYPYC=1 pip install .``); needs mypy and a C compiler. Prints
CPU seconds of both, in turn, for the trace of 2,048 requests and chats over 64 replicas,
and whether `benchmarks.serving_same` finds the same bytes. ``--keep FOLDER`` keeps the compiled copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PACKAGES = "simulator", "planner", "hwmodels", "core", "meshwright", "benchmarks", "tests/golden", "scenarios"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOOK = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
"""Modules of a compiled installation: the replica loop without policies, which are pydantic models, and
without step times, which are arrays."""
MEASURED = """
import sys, time
from pathlib import Path
from benchmarks.serving import pipelined, replicated
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
data = pipelined(None) if sys.argv[1] == "trace" else replicated(int(sys.argv[1]))
setting = make_serving(data, "", Path())
start = time.process_time()
serve(setting)
print(time.process_time() - start)
"""
ROUNDS = 5


def compiled(folder: Path) -> None:
    """Copy the packages to a folder and compile the engine there."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    build = [sys.executable, "-c", "from mypyc.__main__ import main; main()"]
    words = *HOOK["mypy-args"], *HOOK["include"]
    subprocess.run([*build, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def python(folder: Path, *arguments: str) -> str:
    """Output of Python with the packages of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    """Compile, check the bytes, and print medians."""
    parser = argparse.ArgumentParser(description="The event engine compiled, against plain Python.")
    parser.add_argument("--million", action="store_true", help="a million chats instead of 20,000, once")
    parser.add_argument("--keep", type=Path, help="folder that does not exist yet, for the compiled copy")
    asked = parser.parse_args()
    if find_spec("mypyc") is None:
        print("needs mypyc: pip install mypy", file=sys.stderr)
        return 2
    with TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary) / "compiled"
        compiled(folder)
        saved = str(Path(temporary) / "plain.npz")
        python(ROOT, "-m", "benchmarks.serving_same", "--save", saved)
        print("same bytes:", python(folder, "-m", "benchmarks.serving_same", "--against", saved).strip())
        cases = (
            (("trace", ROUNDS), ("1000000", 1)) if asked.million else (("trace", ROUNDS), ("20000", ROUNDS))
        )
        for case, rounds in cases:
            pairs = [
                [float(python(at, "-c", MEASURED, case)) for at in (ROOT, folder)] for _ in range(rounds)
            ]
            plain, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"{case}: plain {plain:.3f} s, compiled {fast:.3f} s of CPU: {plain / fast:.2f} times",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
