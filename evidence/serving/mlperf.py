"""MLPerf Inference: tokens a second of tuned submissions.

A submission chooses its degrees and batch for its score, so the prediction is the best over both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from core.errors import InfeasibleError
from core.loading import read_mapping
from evidence.serving.case import MeasuredRow, Question, ServingCase, Setup, setup
from evidence.serving.collection import Collection
from evidence.serving.most_within import VariedLoad, most_within
from evidence.serving.names import find_cluster, find_model
from hwmodels.cluster import Cluster
from meshwright.validation.rows import SkippedRow

FILE = Path(__file__).with_name("mlperf.yaml")
DEGREES = ((1, 1), (2, 1), (4, 1), (8, 1))
PIPELINED = ((1, 2), (1, 4))
"""Tensor and pipeline degrees that submissions choose from; models with experts may also spread attention.
NVIDIA's configurations of v4.1 have no pipelines, those of v5.0 and v5.1 run two stages where a model fills
one GPU (H100)."""
LIMITS = 2.0, 0.2
"""Limits of TTFT and TPOT of a benchmark that `mlperf.yaml` gives none, s."""


@dataclass(frozen=True)
class MlPerf(Question):
    """The configuration of one row, with the setups to choose from."""

    setups: tuple[Setup, ...]
    gpus: float
    load: VariedLoad

    @property
    def serving(self) -> Setup:
        """The first of the setups."""
        return self.setups[0]

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]
        """See `Question`."""
        return tuple(choice.key for choice in self.setups)


@cache
def _data_sets() -> dict[str, Any]:
    return read_mapping(FILE)


def question(row: MeasuredRow, collection: Collection) -> MlPerf:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    row = MeasuredRow({**row.values, "gpu": _gpu(row)}, row.where)
    model, cluster = find_model(row.text("model")), find_cluster(row.text("gpu"))
    if (data_set := _data_sets().get(model.name)) is None:
        raise SkippedRow(f"lengths of the data set of {model.name} are not known")
    gpus, round_, scenario = row.need("n_gpus"), row.text("round"), row.text("scenario")
    engine, version = _engine(row.text("framework"), round_, cluster)
    precision, domain = _precision(cluster, round_), min(gpus, cluster.domain)
    degrees = DEGREES if round_ < "v5" else DEGREES + PIPELINED
    pools = [
        {"tensor": tensor, "pipeline": stages} for tensor, stages in degrees if tensor * stages <= domain
    ]
    if model.moe is not None:
        pools += [{"data": ranks, "expert": ranks} for ranks in (2, 4, 8) if ranks <= domain]
    limits = data_set.get("interactive" if scenario == "Interactive" else "server", LIMITS)
    stated = row.number("ttft_limit_ms"), row.number("tpot_limit_ms")
    seconds = (ms / 1e3 if ms else default for ms, default in zip(stated, limits, strict=True))
    output = row.number("realised_output_tokens") or data_set["output"]
    lengths = data_set["prompt"], output, data_set["variation"]
    setups = (setup(row, engine, version, {**pool, "kv": "fp8"}, precision) for pool in pools)
    load = VariedLoad(*lengths, *((inf, inf) if scenario == "Offline" else seconds))
    return MlPerf(tuple(setups), gpus, load)


def _gpu(row: MeasuredRow) -> str:
    """The card of a row: server editions have a memory bandwidth of their own."""
    return row.text("gpu") + ("-server" if "Server Edition" in row.text("accelerator") else "")


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """The card of a row."""
    return {"gpu": _gpu(row)}


def _engine(framework: str, round_: str, cluster: Cluster) -> tuple[str, str]:
    """Engine and version that a submission's software names, or those of its round."""
    release = re.search(r"vllm[ -]?([0-9.]+)(\S*)", framework.lower())
    amd, late = cluster.device.vendor == "amd", round_ >= "v6"
    if release and not (amd and ("rocm" in release[2] or "mlperf" in release[2])):
        return "vllm", release[1]
    if amd:
        # AMD's forks of vLLM 0.4 and 0.6 hold the attention and fp8 kernels that vLLM itself took on by 0.9.
        return "vllm", "0.15.0" if late else "0.9.0"
    newer = late or re.search(r"TensorRT 10\.(8|9|1\d)|13", framework)
    return "trtllm", "1.0.0" if newer else "0.11.0"


def _precision(cluster: Cluster, round_: str) -> str:
    """Closed-division submissions run fp4 where the device has it, else fp8."""
    peaks = cluster.device.peak_flops
    if ("nvfp4" in peaks or "mxfp4" in peaks) and round_ >= "v5":
        return "fp4"
    return "fp8" if "fp8" in peaks else "int8"


def predict(questions: Sequence[MlPerf]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    predicted = []
    for row in questions:
        best = max(most_within(choice, row.load) for choice in row.setups)
        if best <= 0:
            raise InfeasibleError(f"{row.serving.model.name} does not fit {row.gpus:.0f} GPUs")
        predicted.append({"out_tok_s": best * row.gpus, "out_tok_s_per_gpu": best})
    return predicted
