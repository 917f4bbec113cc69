"""Exported files against the launchers' own parsers.

    python -m benchmarks.launchers --python ENV/bin/python --sources DIR [--plans 50]

DIR holds the unpacked packages, which no test installs (they weigh 0.5 GB):

    pip download --no-deps torchtitan==0.3.0 deepspeed==0.19.8 vllm==0.33.0 sglang==0.5.23 ai-dynamo==1.6.1
    pip download --no-deps --python-version 3.12 --only-binary :all: megatron-core==0.19.2
    pip download --no-deps --python-version 3.12 --only-binary :all: megatron-bridge==0.6.2

each in a folder of its name with ``_`` for ``-``. ENV has torch and the packages that the parsers import. The
package of TensorRT-LLM holds no source. The configuration of Megatron-Bridge imports Transformer Engine: its
keys are checked against the fields of its dataclasses. Manifests of Kubernetes are checked against the models
of ``pip install kubernetes``.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from core.errors import InputError
from evidence.command import command
from meshwright.exporters import TARGETS, export, exporter, write_files
from meshwright.jobs.exports import from_scenario, question_of
from simulator.scenario import make_scenario

PARSED = ("megatron-lm", "megatron-bridge", "deepspeed", "torchtitan", "vllm", "sglang", "dynamo", "k8s")
MODELS = ("llama3.1-8b", "llama3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite")
FRAMEWORKS = {"deepspeed": "deepspeed-zero3", "torchtitan": "torchtitan"}


def training_plans(target: str, count: int) -> list[dict[str, Any]]:
    """Random plans that the simulator accepts."""
    rng, plans = random.Random(0), []
    while len(plans) < count:
        devices = rng.choice([64, 128, 256])
        plan: dict[str, Any] = {name: rng.choice(values) for name, values in CHOICES.items()}
        if target == "deepspeed":
            plan |= {"pipeline": 1, "virtual_pipeline": 1, "context_algorithm": "ulysses"}
        if plan["pipeline"] == 1 or plan["virtual_pipeline"] == 1:
            plan |= {"virtual_pipeline": 1}
        else:
            plan |= {"schedule": "interleaved"}
        plan["sequence_parallel"] = plan["tensor"] > 1
        scenario = {"model": rng.choice(MODELS), "cluster": "dgx-h100", "gpus": devices, "plan": plan}
        scenario["workload"] = {
            "seq_len": 4096,
            "global_batch": 512,
            "precision": rng.choice(["bf16", "fp8"]),
        }
        scenario["framework"] = FRAMEWORKS.get(target, "megatron-core")
        try:
            make_scenario(scenario, "random", Path())
        except InputError:
            continue
        plans.append(scenario)
    return plans


CHOICES: dict[str, list[Any]] = {
    "tensor": [1, 2, 4, 8],
    "pipeline": [1, 2, 4],
    "virtual_pipeline": [1, 2],
    "context": [1, 2],
    "expert": [1, 2, 8],
    "micro_batch": [1, 2],
    "zero": [0, 1, 2, 3],
    "recompute": ["none", "selective", "full"],
    "context_algorithm": ["ring", "all_gather", "ulysses"],
    "overlap_gradients": [True, True, False],
    "overlap_parameters": [True, True, False],
    "overlap_pipeline": [True, True, False],
    "rank_order": ["tensor-context-data-pipeline", "tensor-context-pipeline-data"],
}


def serving_plans(count: int) -> list[dict[str, Any]]:
    """Random deployments of one replica."""
    rng, plans = random.Random(0), []
    for _ in range(count):
        dense = rng.random() < 0.5
        tensor, data = rng.choice(
            [(1, 1), (2, 1), (4, 1), (8, 1)] if dense else [(8, 1), (1, 8), (2, 4), (4, 2)]
        )
        pool = {"tensor": tensor, "data": data, "replicas": rng.choice([1, 2]), "engine": "vllm-0.19"}
        pool |= {"weights": rng.choice(["bf16", "fp8"]), "kv": rng.choice([None, "fp8"])}
        if not dense:
            pool["expert"] = tensor * data
        options = {"token_budget": rng.choice([512, 2048, 8192]), "max_sequences": rng.choice([64, 256])}
        options |= {"prefix_caching": rng.random() < 0.5, "chunked_prefill": True}
        workload = {"kind": "serving", "arrivals": {"kind": "poisson", "rate": 1}, "requests": 10}
        workload |= {"input": {"kind": "fixed", "tokens": 500}, "output": {"kind": "fixed", "tokens": 100}}
        model = "llama3.1-8b" if dense else "qwen3-235b-a22b"
        scenario = {"model": model, "cluster": "dgx-h200", "workload": workload}
        plans.append({**scenario, "deployment": {**pool, "options": options}})
    return plans


@command
def main(
    *,
    python: str = sys.executable,
    sources: Path,
    plans: int = 50,
    only: Annotated[Sequence[str], TARGETS] = PARSED,
) -> None:
    """Export random plans to all targets, and print how many files each parser accepted."""
    for target in only:
        serves = "serving" in exporter(target).kinds
        scenarios = serving_plans(plans) if serves else training_plans(target, plans)
        with tempfile.TemporaryDirectory() as folder:
            outcomes = Counter[str]()
            for number, scenario in enumerate(scenarios):
                exported = export(from_scenario(scenario, "random", Path(), "benchmarks.launchers"), target)
                write_files(exported, Path(folder) / str(number))
                outcomes["with gaps"] += bool(exported.gaps)
            if serves:
                exported = export(question_of("disaggregate-llama3-70b"), target)
                write_files(exported, Path(folder) / "disaggregated")
            script = Path(__file__).with_name("launcher_parsers.py")
            command = [python, str(script), target, folder, str(sources.resolve())]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            lines = done.stdout.splitlines()
            accepted = sum(line.startswith("ACCEPTED") for line in lines)
            refused = [line for line in lines if line.startswith("REFUSED")]
            if done.returncode or not accepted:
                print(f"{target}: the parser did not run: {done.stderr.strip().splitlines()[-1:]}")
                continue
            gaps = f"{outcomes['with gaps']} plans with gaps"
            print(f"{target}: {accepted} of {accepted + len(refused)} accepted, {gaps}")
            for line, count in Counter(line.partition(": ")[2] for line in refused).most_common(8):
                print(f"    {count} x {line}")
