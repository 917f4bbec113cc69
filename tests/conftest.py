"""Lets tests import `evidence` and `benchmarks`, in no wheel, marks quick tests, sets hypothesis up."""

import gc
import os
import signal
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

# Before NumPy: workers of pytest-xdist fill the cores, where threads of BLAS would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared and noisy: no test fails because its examples came slowly.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT.parent))

QUICK = (
    "hwmodels/test_cluster.py",
    "hwmodels/test_collectives.py",
    "hwmodels/test_traffic.py",
    "meshwright/test_units.py",
    "planner/training/test_constraints.py",
    "planner/training/test_rules.py",
    "simulator/engine",
    "simulator/faults",
    "simulator/ops/test_context.py",
    "simulator/ops/test_linear_attention.py",
    "simulator/runs/test_closed_form.py",
    "simulator/serving/test_engines.py",
    "simulator/training/test_boundary.py",
    "simulator/training/test_sharding.py",
    "test_imports.py",
    "test_names.py",
)
"""Modules and folders of `pytest -m quick`: one or two of each package, ten seconds in all."""
QUICK_PATHS = tuple(ROOT / name for name in QUICK)


@cache
def _quick(path: Path) -> bool:
    return any(path.is_relative_to(quick) or quick.is_relative_to(path) for quick in QUICK_PATHS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import quick modules only where nothing else is asked for: importing all tests takes ten seconds."""
    return True if config.option.markexpr == "quick" and not _quick(collection_path) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """No workers, which hide output and take 2 s to start, for tests named one by one and quick ones."""
    named = any("::" in word for word in config.args)
    return 0 if named or config.option.markexpr == "quick" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker one stretch of tests, of which idle workers steal: few modules run on both workers."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collections, which are as rare as in the command."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


TRACED_S = 0.2
"""CPU seconds from its start for which coverage traces a test, as tracing takes 2.2 times as long. What a
command prints comes at its end: tests of `meshwright` are traced whole."""
TRACED_CASES, EVERY = 2, 2
"""Coverage traces the first cases of a test function and every second of the others: cases of one function
run the same lines."""
TRACED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Let coverage trace the begin of a test and of its fixtures, nothing of a slow one or of most cases."""
    plugin = item.config.pluginmanager.get_plugin("_cov")
    coverage = getattr(getattr(plugin, "cov_controller", None), "cov", None)
    if coverage is None:
        return (yield)
    handler = signal.signal(signal.SIGPROF, lambda *_: coverage.stop())
    commands = item.path.is_relative_to(ROOT / "meshwright")
    if item.get_closest_marker("slow") or not item.stash[TRACED]:
        coverage.stop()
    elif not commands:
        signal.setitimer(signal.ITIMER_PROF, TRACED_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, handler)
        coverage.stop()
        coverage.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark quick tests and those that coverage traces."""
    cases: Counter[str] = Counter()
    for item in items:
        function = item.nodeid.partition("[")[0]
        item.stash[TRACED] = cases[function] < TRACED_CASES or cases[function] % EVERY == 0
        cases[function] += 1
        if item.get_closest_marker("slow") is None and _quick(item.path):
            item.add_marker(pytest.mark.quick)
