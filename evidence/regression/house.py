"""Size of the house: ``python -m benchmarks.house`` prints lines by package, and what is over its limit.

Lines are those of Python modules, blank ones and comments counted. Limits: 450 lines a module, 75 a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from evidence.command import command

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "hwmodels", "simulator", "planner", "meshwright", "profiles", "evidence", "benchmarks")
LONGEST_MODULE, LONGEST_FUNCTION = 450, 75


def too_long(path: Path, source: str) -> Iterator[str]:
    """A module and its functions that are over their limits."""
    place, lines = path.relative_to(ROOT), source.count("\n")
    if lines > LONGEST_MODULE:
        yield f"{place}: {lines} lines"
    if lines <= LONGEST_FUNCTION:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield f"{place}:{node.lineno} {node.name}: {length} lines"


@command
def main() -> None:
    """Print the table and the list."""
    total, over = 0, []
    print("| package | modules | lines |\n|---|---|---|")
    for package in PACKAGES:
        sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py")}
        lines = sum(source.count("\n") for source in sources.values())
        over += [name for path, source in sorted(sources.items()) for name in too_long(path, source)]
        total += lines
        print(f"| {package} | {len(sources)} | {lines:,} |")
    print(f"| all | | {total:,} |\n\n{len(over)} over the limits")
    print("\n".join(over))
