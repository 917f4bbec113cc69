"""Public launch files as scenarios: how many predict, and for each other file the reason.

    python -m benchmarks.imports DIR [DIR ...] [--cluster dgx-h100] [--model NAME] [--gpus N] [--seq-len N]

DIR holds files as their projects ship them: scripts and recipes of Megatron-LM's ``examples/``,
configurations of DeepSpeed (``*.json``), ``config_registry.py`` of torchtitan's wheel (every function that
returns a ``Trainer.Config`` counts). A file is read alone first; values that it does not state come from the
options, and the count says so. The cluster is that of a folder's name (h100, b200, gb200, gb300), else
--cluster.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
from evidence.command import command
from meshwright.exporters.base import Imported
from meshwright.exporters.imports import read_launch
from planner.training.prediction import simulate_plan
from simulator.scenario import make_scenario

CLUSTERS = {"h100": "dgx-h100", "b200": "dgx-b200", "gb200": "gb200-nvl72", "gb300": "gb300-nvl72"}
SUFFIXES = (".sh", ".json", ".yaml", ".toml", ".py")


def cases(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of a folder; a file of several configurations becomes one file each."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        name = path.relative_to(folder).as_posix()
        if path.suffix != ".py":
            yield name, path
            continue
        if path.name != "config_registry.py":
            continue
        text = path.read_text()
        for function in ast.parse(text).body:
            if isinstance(function, ast.FunctionDef) and "Config" in ast.unparse(
                function.returns or function
            ):
                if function.name.startswith("_"):
                    continue
                part = scratch / path.parent.name / f"{function.name}.py"
                part.parent.mkdir(exist_ok=True)
                part.write_text("".join(text.splitlines(keepends=True)[: function.end_lineno]))
                yield f"{name}: {function.name}", part


def step_s(imported: Imported) -> float:
    """Predicted seconds of a step."""
    scenario = make_scenario(imported.scenario, "imported", Path())
    plan = scenario.needed_plan("imported")
    return float(simulate_plan(scenario.setting, plan).prediction.step.time[0])


def read(path: Path, options: Mapping[str, Any]) -> tuple[Imported, float]:
    """A file's scenario and its step."""
    imported = read_launch(str(path), stated=options)
    return imported, step_s(imported)


@command
def main(
    folders: Sequence[Path],
    *,
    cluster: str = "dgx-h100",
    model: str | None = None,
    gpus: int | None = None,
    seq_len: int | None = None,
    global_batch: int | None = None,
    vocabulary: int | None = None,
) -> None:
    """Print the counts and the reasons."""
    bare = {"cluster": cluster}
    keys = {"model": model, "gpus": gpus, "seq_len": seq_len, "global_batch": global_batch}
    keys |= {"vocabulary": vocabulary}
    options = bare | {name: value for name, value in keys.items() if value is not None}
    for folder in folders:
        counts = {"alone": 0, "with options": 0, "refused": 0}
        with tempfile.TemporaryDirectory() as scratch:
            for name, path in cases(folder, Path(scratch)):
                problems = []
                named = [CLUSTERS[part] for part in path.parts if part in CLUSTERS]
                stated_cluster = {"cluster": named[0]} if named else {}
                for kind, keys in (("alone", bare), ("with options", options)):
                    try:
                        imported, seconds = read(path, {**keys, **stated_cluster})
                    except MeshwrightError as error:
                        problems.append(" ".join(str(error).replace(f"{path}: ", "").split()))
                        continue
                    counts[kind] += 1
                    unknown = f", {len(imported.unknown)} unknown options" if imported.unknown else ""
                    problem = f" ({problems[0]})" if problems else ""
                    print(f"  {name}: {seconds:.3g} s a step {kind}{problem}{unknown}")
                    break
                else:
                    counts["refused"] += 1
                    print(f"  {name}: REFUSED: {problems[-1]}")
        print(f"{folder}: {counts['alone']} predict alone, {counts['with options']} with options, ", end="")
        print(f"{counts['refused']} do not")
