"""Captured graphs of servers: vLLM's compilation configuration, and switches that turn graphs off.

Source: vLLM 0.11 to 0.33, vllm/config/compilation.py (CompilationConfig, CUDAGraphMode).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.errors import InputError, shown
from meshwright.exporters.table import Options
from simulator.serving.question.deployment import NO_GRAPHS

EAGER = ("--enforce-eager", "--disable-cuda-graph")
CONFIGS = ("--compilation-config", "--compilation_config", "-O")
WHOLE = ("full", "full_and_piecewise", "full_decode_only")
"""Modes that capture decode steps whole, as predictions have them."""
UNREAD = (
    "level",
    "mode",
    "backend",
    "custom_ops",
    "splitting_ops",
    "use_inductor",
    "compile_sizes",
    "inductor_compile_config",
    "inductor_passes",
    "pass_config",
    "cudagraph_num_of_warmups",
    "cudagraph_copy_inputs",
    "full_cuda_graph",
    "use_cudagraph",
    "cache_dir",
    "debug_dump_path",
    "compile_mm_encoder",
    "dynamic_shapes_config",
)
"""Keys that no prediction reads: how kernels are compiled and fused."""


def read_graphs(options: Options, pool: dict[str, Any], where: str) -> list[str]:
    """Take the options of graphs into a pool, and return notes.

    Args:
        options: of the server; those that are read are removed.
        pool: of the scenario, changed.
        where: to name in errors.

    Raises:
        InputError: an unknown key, or a mode that no prediction has.
    """
    notes = []
    for name in EAGER:
        if options.pop(name, False) not in (False, "false"):
            pool["largest_graph"] = NO_GRAPHS
            notes.append(f"{name}: graphs of one sequence at most stand for none")
    for name in CONFIGS:
        text = options.pop(name, None)
        if text is None or str(text).strip().isdigit():
            continue
        _compiled(_json(text, f"{where}: {name}"), pool, notes, f"{where}: {name}")
    return notes


def _compiled(config: Mapping[str, Any], pool: dict[str, Any], notes: list[str], where: str) -> None:
    for key, value in config.items():
        if key == "cudagraph_mode":
            mode = str(value).lower()
            if mode in ("none", "0"):
                pool["largest_graph"] = NO_GRAPHS
                notes.append("cudagraph_mode NONE: graphs of one sequence at most stand for none")
            elif mode not in WHOLE:
                problem = f"{shown(value)} captures no attention, which no prediction has"
                raise InputError(
                    f"{problem}; leave it out, or use {', '.join(WHOLE).upper()}", f"{where}.{key}"
                )
        elif key in ("cudagraph_capture_sizes", "capture_sizes") and isinstance(value, list) and value:
            if not all(type(size) is int and size > 0 for size in value):
                raise InputError(f"whole numbers are needed, found {shown(value)}", f"{where}.{key}")
            pool["graph_sizes"] = sorted(set(value))[:256]
        elif key in ("max_cudagraph_capture_size", "max_capture_size") and type(value) is int and value > 0:
            pool["largest_graph"] = value
        elif key not in UNREAD and value not in (None, [], {}):
            problem = "is not read, and may change times or memory; leave it out to predict without it"
            raise InputError(problem, f"{where}.{key}")


def _json(text: object, where: str) -> Mapping[str, Any]:
    try:
        value = text if isinstance(text, Mapping) else json.loads(str(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise InputError("a JSON object is needed", where)
    return value
