"""``config.json`` to launch file and back: parameters that the launchers themselves count.

    python -m benchmarks.exported_models --python ENV/bin/python --sources DIR

ENV and DIR are those of ``benchmarks.launchers``. Each model of ``tests/simulator/models/hf_configs.py`` is
exported, and the file is imported again. Megatron-LM's argparse reads the script, and its
``theoretical_memory_usage.py`` counts (a formula without biases and learned positions); torchtitan builds the
model on torch's meta device. Neither knows of Meshwright.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from core.errors import InputError
from evidence.command import command
from meshwright.exporters import export, write_files
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario
from simulator.models.huggingface import read_config
from simulator.ops.counts import model_parameters
from tests.simulator.models.hf_configs import CONFIGS, PUBLISHED_2025

FILES: dict[str, dict[str, Any]] = {**CONFIGS, **PUBLISHED_2025}
SCENARIO: dict[str, Any] = {
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {"seq_len": 1024, "global_batch": 8, "precision": "bf16"},
    "plan": {"tensor": 1, "micro_batch": 1},
}
LAUNCHERS = {"megatron-lm": "megatron-core", "torchtitan": "torchtitan"}


def counted_by(target: str, scripts: Path, python: str, sources: Path) -> dict[str, str]:
    """Billions of parameters by model, or why the launcher refused the script."""
    parsers = Path(__file__).with_name("launcher_parsers.py")
    command = [python, str(parsers), f"{target}-parameters", str(scripts), str(sources.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(done.stderr[-800:])
    counts = {}
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        counted = scripts / name / "parameters.txt"
        counts[name] = counted.read_text() if verdict == "ACCEPTED" else why
    return counts


def read_back(scripts: Path, config: Path) -> str:
    """Whether the importer reads the plan back with the model that was exported."""
    files = [path for path in sorted(scripts.iterdir()) if path.suffix in (".sh", ".py")]
    try:
        read_launch(str(files[0]), stated={"model": str(config), "cluster": "dgx-h100", "gpus": 8})
    except InputError as error:
        return str(error)[:90]
    return "yes"


def show(target: str, framework: str, folder: Path, python: str, sources: Path) -> None:
    """Print a line for each model that the launcher can train."""
    configs, scripts = folder / "configs", folder / target
    gaps, ours = {}, {}
    for name, text in FILES.items():
        config = configs / name / "config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(text), encoding="utf-8")
        scenario = {**SCENARIO, "framework": framework, "model": str(config)}
        try:
            exported = export(from_scenario(scenario, name, Path(), "benchmarks.exported_models"), target)
        except InputError:
            continue  # a model that the launcher does not ship
        write_files(exported, scripts / name)
        gaps[name] = [gap.partition(":")[0] for gap in exported.gaps if gap.startswith("model.")]
        ours[name] = model_parameters(read_config(config)) / 1e9
    print(f"{target:26} {'ours, 1e9':>10} {'its own':>12} {'ours over':>10}  read back; not expressed")
    for name, counted in counted_by(target, scripts, python, sources).items():
        back = read_back(scripts / name, configs / name / "config.json")
        number = counted.replace(".", "").isdigit()
        ratio = f"{100 * (ours[name] / float(counted) - 1):+9.2f} %" if number else ""
        missing = ", ".join(gaps[name]) or "-"
        print(f"{name:26} {ours[name]:10.4f} {counted[:60]:>12} {ratio:>10}  {back}; {missing}")


@command
def main(*, python: str = sys.executable, sources: Path) -> None:
    """Print a table a launcher."""
    with tempfile.TemporaryDirectory() as folder:
        for target, framework in LAUNCHERS.items():
            show(target, framework, Path(folder), python, sources)
