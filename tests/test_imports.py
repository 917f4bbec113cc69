"""Imports run one way, heavy modules are imported on use, and a class name has one meaning."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "meshwright": {"meshwright", "planner", "simulator", "profiles", "hwmodels", "core"},
    "planner": {"planner", "simulator", "hwmodels", "core"},
    "simulator": {"simulator", "hwmodels", "core"},
    "profiles": {"profiles", "hwmodels", "core"},
    "hwmodels": {"hwmodels", "core"},
    "core": {"core"},
}


IMPORT = re.compile(r"^\s*(?:from (\w+)[\w.]* import\b|import (\w+))", re.MULTILINE)
"""Of a top-level package, one a line (ruff's E401). Parsing every module would take seconds."""
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports anywhere."""
    return {name or other for name, other in IMPORT.findall(text(path))}


@pytest.mark.parametrize("package", list(ALLOWED))
def test_imports_run_one_way(package):
    modules = list((ROOT / package).rglob("*.py"))
    assert modules
    for path in modules:
        upward = (imported(path) & set(ALLOWED)) - ALLOWED[package]
        assert not upward, f"{path.relative_to(ROOT)} imports {upward}"


def test_planning_needs_no_torch_and_no_solver():
    modules = (
        "planner.training.search, meshwright.reports.plans, meshwright.validation.ledger, profiles.measure"
    )
    script = (
        f"import sys, {modules}\n"
        "print([name for name in ('torch', 'scipy', 'pulp', 'simpy', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SERVED = "plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 1 --isl 1000 --osl 200 --rate 2 --ttft 0.5"
MOST_MODULES = {
    "--help": 40,
    "plan --model gpt3-175b --cluster dgx-a100-80gb --gpus 1024 --seq-len 2048 --global-batch 1536": 330,
    SERVED: 530,
}
"""Modules of our own that a command may import: about a third of a millisecond each."""


def modules_of(words: str) -> set[str]:
    """Modules in memory after a command."""
    script = (
        "import contextlib, io, sys\n"
        "from meshwright.__main__ import main\n"
        f"sys.argv = ['meshwright', *{words.split()!r}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize("words", list(MOST_MODULES), ids=["help", "train", "serve"])
def test_a_command_imports_few_modules(words):
    modules = modules_of(words)
    if "yaml" in modules:  # parsed files were not cached yet
        modules = modules_of(words)
    ours = sum(name.split(".")[0] in ALLOWED for name in modules)
    assert MOST_MODULES[words] // 2 < ours <= MOST_MODULES[words]
    assert "yaml" not in modules  # parsed files are cached
    assert "numpy.ma" not in modules or words == SERVED  # of np.unique (core.arrays) and np.quantile


def test_a_public_class_name_has_one_meaning():
    places: dict[str, list[str]] = {}
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            for name in PUBLIC_CLASS.findall(text(path)):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def drawn() -> dict[str, list[list[str]]]:
    """Lines of the picture of each folder in docs/architecture.md, from the top."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    picture = next(block for block in page.split("```") if "simulator/serving  " in block)
    found: dict[str, list[list[str]]] = {}
    lines: list[list[str]] = []
    for line in filter(str.strip, picture.splitlines()):
        matched = re.fullmatch(r"(\S*)\s+(.+?)(?:\s{3,}.*)?", line)
        assert matched, line
        folder, names = matched.groups()
        lines = found.setdefault(folder, []) if folder else lines
        lines.append(names.split(", "))
    return found


DRAWN = ("meshwright", "planner", "simulator", "simulator/serving", "profiles", "hwmodels", "core")


@pytest.mark.parametrize("folder", DRAWN)
def test_imports_agree_with_the_picture_of_the_architecture(folder):
    height = {name: -line for line, names in enumerate(drawn()[folder]) for name in names}
    members = {path.stem for path in (ROOT / folder).glob("[!_]*.py")}
    assert set(height) == members | {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    imports = re.compile(rf"from {folder.replace('/', '.')}(?:\.(\w+)[\w.]*)? import")
    for name, at in height.items():
        paths = [ROOT / folder / f"{name}.py", *(ROOT / folder / name).rglob("*.py")]
        assert any(path.exists() for path in paths), f"{folder}/{name} is drawn and does not exist"
        for path in filter(Path.exists, paths):
            for used in imports.findall(text(path)):
                assert height.get(used, at) <= at, f"{path.relative_to(ROOT)} imports {used}, drawn above it"


def test_every_benchmark_says_what_it_prints():
    from benchmarks.__main__ import commands

    lines = {name: line for _, name, line in commands()}
    assert len(lines) > 40
    assert not [name for name, line in lines.items() if not line.endswith((".", "``"))]


def test_installation_needs_no_compiler():
    """A build hook or another build requirement could compile extensions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [name.split(">")[0] for name in project["build-system"]["requires"]] == ["hatchling"]
    build = project["tool"]["hatch"]["build"]
    assert "hooks" not in build and not any("hooks" in target for target in build["targets"].values())
    compiled = {".so", ".pyd", ".pyx", ".c"}
    assert not [
        path
        for package in build["targets"]["wheel"]["packages"]
        for path in (ROOT / package).rglob("*")
        if path.suffix in compiled
    ]
