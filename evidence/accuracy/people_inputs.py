"""Inputs that people have, read here, beside the right values of ``../shared/inputs/README.md``.

    python -m benchmarks.people_inputs [FOLDER]

A line an input: what was read or the refusal, and whether that is right. Inputs whose right value is a
measured time stand in the README alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
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
from simulator.serving.steps.memory import weight_bytes
from simulator.serving.steps.price import StepPrice
from simulator.serving.workload.traces.detection import detect_format

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


def _serving(path: Path, **changes: Any) -> Any:
    """A scenario of serving with other keys of its deployment, on as many GPUs as its tensor ranks."""
    from core.loading import read_mapping
    from simulator.serving.scenario import make_serving

    scenario = read_mapping(path)
    scenario["deployment"] = {**scenario["deployment"], **changes}
    if "tensor" in changes:
        scenario["gpus"] = changes["tensor"]
    return make_serving(scenario, str(path), path.parent)


def _kv(path: Path, printed: int, release: str = "vllm-0.11") -> str:
    """KV tokens of a rank beside those that a release printed: right within 25 %."""
    pool = _serving(path, engine=release).pools[0]
    tokens = pool.costs.kv_blocks * pool.options.block_tokens
    words = "met" if abs(tokens / printed - 1) < 0.25 else "missed"
    return f"{tokens:,} KV tokens of {printed:,}: {words}"


CHECKS: dict[str, tuple[Callable[[Path], str], str]] = {
    "01-modelopt-sidecar": (_formats, "fp8, KV fp8"),
    "03-fbgemm-skipped-layers.json": (_weights, "56.7 GiB"),
    "05-sparse-layer-types.json": (_size, "743.9"),
    "07-time-step-limit.json": (_size, "549.3"),
    "08-mlp-layer-types.json": (_size, "29.94B"),
    "10-mixed-nvfp4.json": (_formats, "fp4 attention fp8"),
    "13-nccl-mpirun-tags.log": (_collective, "3 points of all_reduce over 4 h100-sxm"),
    "15-run1.log": (_collective, "3 points of all_reduce"),
    "16-guidellm-sweep.json": (_served, "2 loads, 1 skipped"),
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
    "40-qwen3-235b-fp8-kv.yaml": (lambda path: _kv(path, 178_880), ": met"),
    "44-v3-16h800.yaml": (lambda path: _engine(path, "sglang-0.4.3"), "older than every preset"),
    "46-qwen3-coder-480b-dp8-kv.yaml": (lambda path: _kv(path, 205_728), ": met"),
    "49-megatron-126m-v100.sh": (
        lambda path: _launched(path, cluster="dgx-1v", vocabulary=50257, global_batch=8),
        "'attention': 'unfused'",
    ),
    "50-qwen35-35b-pp4.yaml": (lambda path: _kv(path, 1), "does not fit"),
    "51-qwen3-vl-2b.json": (_size, "without the vision encoder"),
}
"""Reader of an input, and words of a right answer or refusal. 03: vLLM's log prints 57.75 GiB, with 2 % of
scales and fragments."""


def main() -> None:
    """Print a line an input; exit 1 where one is not right."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    wrong = 0
    for name, (read, right) in CHECKS.items():
        try:
            answer = read(folder / name)
        except MeshwrightError as error:
            answer = f"refused: {error}"
        wrong += right not in answer
        print(f"{'right' if right in answer else 'WRONG':6} {name:36} {answer[:160]}")
    print(f"{len(CHECKS) - wrong} of {len(CHECKS)} right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
