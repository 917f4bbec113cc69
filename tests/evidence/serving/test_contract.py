"""Measured servers are predicted by the engine that ships: their readers have none of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import evidence.serving
from core.loading import read_mapping
from simulator.serving.engines.engine import Engine, LayerTimes

FOLDER = Path(evidence.serving.__file__).parent
LOOPS = {"heapq", "queue", "sched", "simpy", "asyncio", "time", "simulator.engine"}


def imported(module: Path) -> set[str]:
    """Modules that a file imports, by whole name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_no_module_has_an_event_loop_a_queue_or_a_clock():
    modules = sorted(FOLDER.glob("*.py"))
    assert len(modules) > 10
    for module in modules:
        names = imported(module)
        assert not {name for name in names if name.startswith(tuple(LOOPS))}, module.name
        assert "collections.deque" not in names, module.name


def test_no_data_file_holds_a_constant_of_an_engine():
    figures = set(Engine.model_fields) | set(LayerTimes.model_fields)
    named = {"source", "kind", "rows", "name", "engine", "version", "times"}
    for file in sorted(FOLDER.glob("*.yaml")):
        keys = {key for key in read_mapping(file) if isinstance(key, str)}
        assert not keys & (figures - named), file.name
