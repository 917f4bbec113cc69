"""Names that say nothing about what they hold stay out of the packages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

EMPTY = {
    *("found", "held", "one", "given", "made", "asked", "alike", "near", "chosen", "own", "whole", "kept"),
    *("most", "known", "standing", "scored", "shown", "checked", "trial", "priced", "moved"),
}
WORDS = "|".join(sorted(EMPTY))
LOOKS_BOUND = re.compile(
    rf"(?:def|class|as|\*)\s*\b({WORDS})\b|\b({WORDS})\b\s*(?:[-+*/|&:]?=|[:,)\]}}]|in\b)"
)
"""What any binding matches, and few strings: parsing every module takes seconds."""
PROSE = re.compile(r'"""[\s\S]*?"""|^ *# .*$|  # .*$', re.MULTILINE)
"""Docstrings and comments, which bind nothing."""
ROOT = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "core", "evidence", "hwmodels", "meshwright", "planner", "profiles", "simulator")
PUBLIC = {
    "core/errors.py": {"shown"},
    "evidence/claims/claim_files.py": {"given"},
    "evidence/regression/additions.py": {"asked"},
    "meshwright/results.py": {"found", "scored"},
    "planner/serving/search.py": {"scored", "most"},
    "planner/training/search.py": {"scored", "shown"},
    "simulator/lengths/lognormal.py": {"most"},
    "simulator/models/towers/rules/grid.py": {"most"},
    "simulator/models/towers/rules/tiles.py": {"most"},
    "simulator/serving/kv_states/elsewhere.py": {"kept"},
    "simulator/serving/kv_states/kept.py": {"kept"},
    "simulator/serving/question/finetuning.py": {"kept"},
    **{
        f"simulator/serving/scalers/{name}.py": {"most"}
        for name in ("by_targets", "dynamo_load", "dynamo_sla", "reactive", "wva")
    },
}
"""Names that users type (``PlanSearch.found``, keys of files), and how an error shows a value, which a
hundred modules say."""
TO_RENAME = {
    "evidence/accuracy/promised.py": {"given"},
    "planner/training/lever_sets.py": {"priced"},
    "planner/training/lever_times.py": {"priced", "known"},
    "planner/training/structures.py": {"priced"},
}
"""Names that wait for better ones."""


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


def empty_names(source: str) -> Iterator[str]:
    """Line and name of each binding that says nothing."""
    if not LOOKS_BOUND.search(PROSE.sub("", source)):
        return
    for node in ast.walk(ast.parse(source)):
        yield from (f"{getattr(node, 'lineno', 0)}: {name}" for name in bound(node) if name in EMPTY)


@pytest.mark.quick
@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_they_hold(package):
    paths = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / package).rglob("*.py"))}
    assert paths
    assert not [
        f"{name}:{line}"
        for name, path in paths.items()
        for line in empty_names(path.read_text())
        if line.partition(": ")[2] not in PUBLIC.get(name, set()) | TO_RENAME.get(name, set())
    ]


def test_listed_names_are_bound():
    for name, words in (PUBLIC | TO_RENAME).items():
        bound_words = {line.partition(": ")[2] for line in empty_names((ROOT / name).read_text())}
        assert words == bound_words, name


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
