"""Inputs that people have, read here, beside the right values of ``../shared/inputs/README.md``.

    python -m benchmarks.people_inputs [FOLDER]

A line an input: what was read or the refusal, and whether that is right. A time is right where the measured
one is within the spread that the answer prints; `CAUSES` tells why others are not.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

import meshwright as mw
from core.errors import MeshwrightError
from core.loading import read_mapping
from evidence.command import command
from hwmodels.cluster import clusters
from hwmodels.device import devices
from meshwright.exporters.imports import read_launch
from meshwright.observations.server_results import read_servers
from profiles.importers import import_points
from profiles.points import read as read_points
from simulator.models import models
from simulator.ops.counts import model_parameters
from simulator.serving.engines import stands_for
from simulator.serving.question.deployment import Pool
from simulator.serving.scenario import make_serving
from simulator.serving.steps.memory import weight_bytes
from simulator.serving.steps.price import StepPrice
from simulator.serving.workload.traces.detection import detect_format

KV_NEAR = 0.25
PEAK_NEAR = 0.1
"""Differences from printed capacities and peaks of memory that count as right."""
FOLDER = Path(__file__).parents[3] / "shared" / "inputs"
PLAN = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "arrivals": {"kind": "closed", "concurrency": 1},
        "input": {"kind": "fixed", "tokens": 8},
        "output": {"kind": "fixed", "tokens": 8},
    },
    "deployment": {"engine": "vllm-0.19"},
}
"""A server of an 8B."""


def _weights(path: Path) -> str:
    from simulator.serving.engines import engines

    price = StepPrice(
        models.get(path),
        clusters.get("dgx-h100"),
        Pool.model_validate({"tensor": 8}),
        engines.get("vllm-0.6"),
    )
    return f"{weight_bytes(price) / 2**30:.1f} GiB"


def _formats(path: Path) -> str:
    model = models.get(path)
    parts = f" {model.parts.describe()}" if model.parts else ""
    return f"{model.checkpoint}{parts}, KV {model.checkpoint_kv}"


def _size(path: Path) -> str:
    model = models.get(path)
    without = f", without {model.left_out}" if model.left_out else ""
    return f"{1e-9 * model_parameters(model):.2f}B{without}"


def _launched(path: Path, **stated: Any) -> str:
    scenario = read_launch(str(path), stated={"cluster": "dgx-h100", **stated}).scenario
    plan = scenario["plan"]
    fields = {name: plan.get(name) for name in ("tensor", "data", "micro_batch", "recompute", "attention")}
    model = scenario["model"]
    width = f", MLP of {model['feed_forward']}" if isinstance(model, dict) else ""
    return f"{fields}, batch {scenario['workload']['global_batch']}{width}"


def _collective(path: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        result = import_points(path, folder)
        rows = list(read_points(result.files["collectives"]).rows())
    return f"{len(rows)} points of {rows[0]['op']} over {rows[0]['n_gpus']} {rows[0]['system']}"


def _served(path: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "plan.yaml").write_text(json.dumps(PLAN), encoding="utf-8")
        (here / "result.json").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        loads, skipped = read_servers(here / "result.json")
    return f"{len(loads)} loads, {len(skipped)} skipped"


def _trace(path: Path) -> str:
    rows = list(detect_format(path).read(path))
    return f"{len(rows) / rows[-1].arrival_s:.1f} requests/s"


def _names(path: Path) -> str:
    unknown = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        name = line.partition(" [")[0].strip()
        if name and devices.resolve(name) is None and clusters.resolve(name) is None:
            unknown.append(name)
    return f"unknown: {', '.join(unknown) or 'none'}"


def _engine(path: Path, release: str) -> str:
    """What stands for the release that was measured."""
    return stands_for(release) or f"{release} has a preset"


def _pool(path: Path, **changes: Any) -> Any:
    """The pool of a scenario of serving with other keys of its deployment."""
    scenario = read_mapping(path)
    scenario["deployment"] = {**scenario["deployment"], **changes}
    return make_serving(scenario, str(path), path.parent).pools[0]


def _kv(path: Path, printed: int, release: str) -> str:
    """KV tokens of a rank beside those that a release printed."""
    pool = _pool(path, engine=release)
    tokens = pool.costs.kv_blocks * pool.options.block_tokens
    return _near(tokens, printed, f"KV tokens in {release}", KV_NEAR)


def _served_in(path: Path) -> str:
    pool = _pool(path)
    return f"{pool.pool.weights} weights on {pool.pool.tensor} {pool.cluster.device.name}"


def _large(path: Path) -> str:
    """The result that a script writes."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        (Path(folder) / "plan.yaml").write_text(json.dumps(PLAN), encoding="utf-8")
        runpy.run_path(str(path))
        loads, skipped = read_servers(Path(folder) / "big.json")
    return f"{len(loads)} loads, {len(skipped)} skipped"


def _token_time(path: Path, measured: Mapping[int, float]) -> str:
    """Seconds of a token beside the measured ones, by tensor ranks."""
    words = []
    for tensor, right in measured.items():
        scenario = read_mapping(path)
        scenario["deployment"]["tensor"] = scenario["gpus"] = tensor
        answer = mw.simulate(scenario).to_dict()
        spread = answer["expected_errors"]["tpot"]["p90"]
        words.append(_beside(answer["tpot_s"]["mean"] * 1e3, right * 1e3, spread, f"ms TP{tensor}"))
    return ", ".join(words)


def _step(path: Path, tokens: float, gibibytes: float) -> str:
    """Tokens a second of a GPU and its memory beside the measured ones, of a command in a file."""
    line = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("mesh"))
    arguments: dict[str, Any] = {"fix": {}}
    words = shlex.split(line)[2:]
    for flag, value in zip(words[::2], words[1::2], strict=True):
        key, _, fixed = value.partition("=")
        target = arguments["fix"] if fixed else arguments
        target[key if fixed else flag[2:].replace("-", "_")] = yaml.safe_load(fixed or value)
    answer = mw.simulate(**arguments).to_dict()
    spread, peak = answer["step_time_uncertainty"], answer["memory"]["peak_bytes"] / 2**30
    rate = _beside(answer["tokens_per_s_per_gpu"], tokens, spread, "tokens/s")
    return f"{rate}, {_near(peak, gibibytes, 'GiB', PEAK_NEAR)}"


def _beside(predicted: float, measured: float, spread: float, unit: str) -> str:
    within = measured / (1 + spread) <= predicted <= measured * (1 + spread)
    return f"{predicted:,.4g} {unit} +-{spread:.0%} of {measured:,.4g}: {'met' if within else 'missed'}"


def _near(predicted: float, printed: float, unit: str, limit: float) -> str:
    words = "met" if abs(predicted / printed - 1) < limit else "missed"
    return f"{predicted:,.6g} {unit} of {printed:,.6g}: {words}"


CHECKS: dict[str, tuple[Callable[[Path], str], str]] = {
    "01-modelopt-sidecar": (_formats, "fp8, KV fp8"),
    "03-fbgemm-skipped-layers.json": (_weights, "56.7 GiB"),
    "05-sparse-layer-types.json": (_size, "743.38B"),
    "07-time-step-limit.json": (_size, "549.3"),
    "08-mlp-layer-types.json": (_size, "29.94B"),
    "10-mixed-nvfp4.json": (_formats, "fp4 attention fp8"),
    "12-t4-serving.yaml": (_served_in, "fp16 weights on 2 t4"),
    "13-nccl-mpirun-tags.log": (_collective, "3 points of all_reduce over 4 h100-sxm"),
    "15-run1.log": (_collective, "3 points of all_reduce"),
    "16-guidellm-sweep.json": (_served, "2 loads, 1 skipped"),
    "17-big-result.py": (_large, "1 loads, 0 skipped"),
    "19-other-model.json": (_served, "is of the model"),
    "20-bailian.jsonl": (_trace, "1.9 requests/s"),
    "21-torchtitan-2024.toml": (
        lambda path: _launched(path, gpus=128),
        "'tensor': 8, 'data': 16, 'micro_batch': 2, 'recompute': 'full'",
    ),
    "24-nemo-hydra.sh": (_launched, "'recompute': 'selective', 'attention': None}, batch 32"),
    "25-megatron-swiglu-ffn.sh": (_launched, "MLP of 10880"),
    "26-megatron-recompute-block.sh": (_launched, "--recompute-num-layers"),
    "29-megatron-optimizer-attention.sh": (_launched, "--optimizer"),
    "33-names.txt": (_names, "unknown: none"),
    "40-qwen3-235b-fp8-kv.yaml": (lambda path: _kv(path, 178_880, "vllm-0.9.2"), ": met"),
    "42-gpt-oss-a100-tp1.yaml": (lambda path: _token_time(path, {1: 11.1e-3, 2: 12.9e-3}), ""),
    "44-v3-16h800.yaml": (lambda path: _engine(path, "sglang-0.4.3"), "older than every preset"),
    "46-qwen3-coder-480b-dp8-kv.yaml": (lambda path: _kv(path, 205_728, "vllm-0.10.1"), ": met"),
    "47-torchtitan-qwen3-32b-tp8.sh": (lambda path: _step(path, 876, 43.45), ""),
    "48-torchtitan-dsv3-16b.sh": (lambda path: _step(path, 11_500, 73.32), ""),
    "49-megatron-126m-v100.sh": (
        lambda path: _launched(path, cluster="dgx-1v", vocabulary=50257, global_batch=8),
        "'attention': 'unfused'",
    ),
    "50-qwen35-35b-pp4.yaml": (lambda path: _kv(path, 1, "vllm-0.17"), "does not fit"),
    "51-qwen3-vl-2b.json": (_size, "without the vision encoder"),
}
"""Reader of an input, and words of a right answer or refusal; empty: all that is compared is met. 03: vLLM's
log prints 57.75 GiB, with 2 % of scales and fragments. 40, 46: printed by the named releases."""
CAUSES = {
    "42-gpt-oss-a100-tp1.yaml": "vLLM of August 2025 launched attention outside its graphs; the "
    "preset of 0.11 replays whole steps",
    "48-torchtitan-dsv3-16b.sh": "torchtitan compiles its loss since 2025 (--fix cross_entropy=fused: "
    "74.8 GiB, fits); the default here is the loss of 2024",
}
"""Why an answer is off."""
BY_KEY = "26-megatron-recompute-block.sh", "29-megatron-optimizer-attention.sh"
"""Refused by the key that matters, which is right too."""


@command
def main(folder: Path = FOLDER) -> int:
    """Print a line an input; exit 1 where one is not right."""
    wrong: list[str] = []
    for name, (read, right) in CHECKS.items():
        try:
            answer = read(folder / name)
        except MeshwrightError as error:
            answer = f"refused: {error}"
        missed = right not in answer or ": missed" in answer
        verdict = "WRONG" if missed else "key" if name in BY_KEY else "right"
        print(f"{verdict:6} {name:36} {answer[:160]}")
        if missed:
            wrong.append(name)
            print(f"{'':44}{CAUSES.get(name, 'cause not known')}")
    right_ones = len(CHECKS) - len(wrong) - len(BY_KEY)
    print(f"{len(CHECKS)} inputs: {right_ones} right, {len(BY_KEY)} refused by the key, {len(wrong)} off")
    return 1 if wrong else 0
