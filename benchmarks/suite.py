"""CPU seconds of the tests by module, in one process, and those of another version's tests that are here too.

Children of a test count once they have ended; a fixture counts for the test that first asks for it.

python -m benchmarks.suite [--top N] [ARGUMENT OF PYTEST ...]        # modules, the costliest first
python -m benchmarks.suite --against REF [ARGUMENT OF PYTEST ...]    # tests that both versions have
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUIET = ("-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=line")
"""One process: two on one core take more CPU seconds each."""


def spent() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Seconds:
    """A plugin of pytest: CPU seconds by test."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, float] = defaultdict(float)
        self._last = 0.0

    def pytest_runtest_logstart(self) -> None:
        """Leave out what ran between tests."""
        self._last = spent()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what set-up, the call or tear-down took."""
        now = spent()
        self.tests[report.nodeid] += now - self._last
        self._last = now


def by_module(tests: Mapping[str, float]) -> dict[str, float]:
    """Sums by module."""
    modules: defaultdict[str, float] = defaultdict(float)
    for test, seconds in tests.items():
        modules[test.partition("::")[0]] += seconds
    return modules


def largest(seconds: Mapping[str, float], count: int | None = None) -> list[tuple[str, float]]:
    """Names and seconds, the largest first."""
    return sorted(seconds.items(), key=lambda item: -item[1])[:count]


def measured(root: Path, words: list[str]) -> dict[str, float]:
    """CPU seconds of each test of a checkout, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds.json"
        # -P: the folder of this script does not shadow modules.
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--json", str(file), *words]
        subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
        return json.loads(file.read_text(encoding="utf-8"))


def compare(ref: str, words: list[str]) -> None:
    """Print both versions' seconds of the tests that both have, by module."""
    from evidence.regression.golden import worktree

    with worktree(ref) as tree:
        then = measured(tree, words)
    options = [word for word in words if not (ROOT / word).exists()]
    now = measured(ROOT, [*options, *(module for module in by_module(then) if (ROOT / module).exists())])
    both = then.keys() & now.keys()
    old, new = (by_module({test: tests[test] for test in both}) for tests in (then, now))
    for module, seconds in largest(old):
        print(f"{seconds:8.2f} {new[module]:8.2f}  {module}")
    sums = f"{sum(old.values()):8.2f} {sum(new.values()):8.2f}"
    print(f"{sums}  {len(both)} tests; {ref} has {len(then)}, this {len(now)}")


def main() -> None:
    """Run pytest and print seconds, the largest first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--top", type=int, default=0, help="the costliest tests too")
    parser.add_argument("--against", metavar="REF", help="another version")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds of each test")
    options, words = parser.parse_known_args()
    if options.against:
        compare(options.against, words)
        return
    seconds = Seconds()
    pytest.main([*QUIET, *words], plugins=[seconds])
    if options.json:
        options.json.write_text(json.dumps(seconds.tests), encoding="utf-8")
    modules = by_module(seconds.tests)
    for name, used in (*largest(seconds.tests, options.top), *largest(modules)):
        print(f"{used:8.2f}  {name}")
    print(
        f"{sum(modules.values()):8.2f}  {len(seconds.tests)} tests; {spent():.2f} with imports and collection"
    )


if __name__ == "__main__":
    main()
