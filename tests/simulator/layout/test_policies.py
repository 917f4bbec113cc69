"""One file a policy: short, and needing no module that serves it alone."""

import ast
from pathlib import Path

import pytest

import simulator.serving

ROOT = Path(simulator.serving.__file__).parent
FOLDERS = (
    "adapters",
    "kv_states",
    "overlaps",
    "power_policies",
    "replica/kv",
    "replica/schedulers",
    "routers",
    "routers/migration",
    "scalers",
    "starts",
    "workload/arrivals",
    "workload/programs",
)
LONGEST = 200
SHARED = {"base", "__init__"}


def policies():
    """Files of the folders of policies that hold one."""
    found = []
    for folder in FOLDERS:
        found += [path for path in sorted((ROOT / folder).glob("*.py")) if path.stem not in SHARED]
    return found


def imported(path):
    """Modules of `simulator.serving` that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name for name in names if name.startswith("simulator.serving")}


@pytest.mark.parametrize("path", policies(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_policy_is_one_short_file(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_no_module_serves_one_policy_alone():
    users = {}
    for path in ROOT.rglob("*.py"):
        for name in imported(path):
            users.setdefault(name, set()).add(path)
    own = set(policies())
    kept = {
        name: sorted(str(path.relative_to(ROOT)) for path in found)
        for name, found in users.items()
        if len(found) == 1 and found <= own and ROOT.parent.parent / f"{name.replace('.', '/')}.py" not in own
    }
    assert not kept
