"""Names that say nothing about what they hold stay out of the packages that are done."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

VAGUE = {
    *("chosen", "own", "whole", "kept", "most", "known", "standing", "scored", "shown", "checked"),
    *("trial", "priced", "moved"),
}
"""Heirs of these names, refused in the packages that are done with them too."""
EMPTY = {"found", "held", "one", "given", "made", "asked", "alike", "near"}
WORDS = "|".join(sorted(EMPTY | VAGUE))
LOOKS_BOUND = re.compile(
    rf"(?:def|class|as|\*)\s*\b({WORDS})\b|\b({WORDS})\b\s*(?:[-+*/|&:]?=|[:,)\]}}]|in\b)"
)
"""What any binding matches, and few strings: parsing every module takes seconds."""
PROSE = re.compile(r'"""[\s\S]*?"""|^ *# .*$|  # .*$', re.MULTILINE)
"""Docstrings and comments, which bind nothing."""
ROOT = Path(__file__).parents[1]
DONE = (
    *(
        "core",
        "hwmodels",
        "profiles",
        "planner/*.py",
        "planner/training",
        "planner/executors",
        "planner/serving",
        "simulator/*.py",
    ),
    *(
        "meshwright/*.py",
        "meshwright/observations",
        "meshwright/api",
        "meshwright/commands",
        "meshwright/exporters",
    ),
    *("meshwright/pages", "meshwright/questions", "meshwright/reports", "meshwright/sweeps"),
    *("meshwright/validation", "meshwright/variations"),
    *("simulator/checkpoints", "simulator/engine", "simulator/faults", "simulator/frameworks"),
    *("simulator/layout", "simulator/models", "simulator/offload", "simulator/ops", "simulator/pricing"),
    *("simulator/recipes", "simulator/runs", "simulator/schedules", "simulator/serving", "simulator/state"),
    *("simulator/tables", "simulator/graphs", "simulator/frames", "simulator/training"),
    *("simulator/uncertainty",),
)

DONE_WITH_VAGUE = (
    *("meshwright/commands", "meshwright/jobs", "meshwright/service", "simulator/packing", "simulator/rules"),
    *("simulator/recipes", "simulator/faults", "simulator/frameworks", "simulator/engine", "evidence/pages"),
    *("simulator/tables", "simulator/graphs", "simulator/frames", "simulator/offload", "simulator/state"),
    *("benchmarks",),
    *("evidence/claims", "evidence/regression", "meshwright/machines", "meshwright/measured"),
    *("meshwright/sweeps", "meshwright/api", "meshwright/observations", "meshwright/pages"),
    *("meshwright/questions", "meshwright/reports", "meshwright/validation", "meshwright/variations"),
    *("simulator/*.py", "simulator/checkpoints", "simulator/layout", "simulator/pricing"),
    *("simulator/schedules", "simulator/uncertainty", "planner/diffusion", "planner/executors"),
    *("evidence/training", "meshwright/exporters", "planner/serving", "simulator/models"),
    *("simulator/training", "simulator/serving/*.py", "simulator/serving/adapters"),
    *("simulator/levers", "simulator/runs", "simulator/serving/replay"),
    *("simulator/serving/encoders", "simulator/serving/engines", "simulator/serving/power_policies"),
    *("simulator/serving/routers", "simulator/serving/starts", "simulator/serving/steps"),
    *("simulator/serving/workload", "core", "hwmodels", "profiles", "simulator/diffusion", "simulator/ops"),
    *("simulator/rl", "planner/*.py"),
)

PUBLIC = {
    "core/errors.py": {"shown"},
    "meshwright/results.py": {"found"},
    "planner/serving/search.py": {"scored", "most"},
    "simulator/models/towers/rules/grid.py": {"most"},
    "simulator/models/towers/rules/tiles.py": {"most"},
}
"""Names that users type: ``PlanSearch.found``, ``ServingSearch.scored``, a key of a tower's rule; and how an
error shows a value, which a hundred modules say."""


def modules(package: str) -> list[Path]:
    """The modules of a folder, or those that a pattern matches."""
    return sorted(ROOT.glob(package if package.endswith(".py") else f"{package}/**/*.py"))


def bound(node: ast.AST) -> tuple[str, ...]:
    """The names that a node binds."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name)
        ):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
            return (name,)
    return ()


def empty_names(source: str, words: set[str] = EMPTY) -> Iterator[str]:
    """Line and name of each binding that says nothing."""
    if not LOOKS_BOUND.search(PROSE.sub("", source)):
        return
    for node in ast.walk(ast.parse(source)):
        yield from (f"{getattr(node, 'lineno', 0)}: {name}" for name in bound(node) if name in words)


def unlisted(paths: list[Path], words: set[str]) -> list[str]:
    """Files, lines and names of bindings that say nothing, those of users apart."""
    return [
        f"{name}:{line}"
        for name, path in ((str(path.relative_to(ROOT)), path) for path in paths)
        for line in empty_names(path.read_text(), words)
        if line.partition(": ")[2] not in PUBLIC.get(name, ())
    ]


@pytest.mark.quick
@pytest.mark.parametrize("package", DONE_WITH_VAGUE)
def test_vague_names_stay_out_of_packages_that_are_done_with_them(package):
    paths = modules(package)
    assert paths
    assert not unlisted(paths, VAGUE)


@pytest.mark.quick
@pytest.mark.parametrize("package", DONE)
def test_names_of_packages_that_are_done_say_what_they_hold(package):
    paths = modules(package)
    assert paths
    assert not unlisted(paths, EMPTY)


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "self.held = 1",
        "def f(given): ...",
        "for one, two in pairs: ...",
        "def asked(): ...",
        "[near for near in rows]",
        "if made := f(): ...",
        "class A:\n    alike: int",
        "import re as found",
        "match x:\n    case {**found}: ...",
    ],
)
def test_every_kind_of_binding_is_seen(source):
    assert list(empty_names(source))


def test_reading_a_name_and_keywords_of_a_call_are_no_bindings():
    assert not list(empty_names("f(found, given=held.made)"))
