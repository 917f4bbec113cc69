"""MLPerf Inference: tokens a second of tuned submissions.

A submission chooses its degrees and batch for its score, so the prediction is the best over both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hwmodels.cluster import Cluster
from hwmodels.errors import InfeasibleError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.collection import Collection
from meshwright.validation.serving.names import find_cluster, find_model
from simulator.serving.steady.kinds import memory_that_fits, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state


class DataSet(NamedTuple):
    """Lengths of a benchmark's requests."""

    prompt: float
    output: float
    """Mean tokens."""
    variation: float
    """Variance of the output lengths over the square of their mean."""


DATA_SETS = {
    "llama2-70b": DataSet(222.3, 292.0, 0.62),
    "llama3.1-8b": DataSet(870.7, 128.0, 0.20),
    "gpt-j-6b": DataSet(1050.0, 69.0, 0.20),
    "llama3.1-405b": DataSet(9428.6, 684.7, 0.15),
    "mixtral-8x7b": DataSet(427.4, 144.8, 0.61),
    "deepseek-v3": DataSet(803.8, 4043.4, 1.57),
}
"""By model (MLCommons: OpenOrca, CNN-DailyMail, and lengths in logs of submissions, over 4,388 to 24,576
requests each; gpt-j-6b varies as llama3.1-8b). deepseek-v3 stands for DeepSeek-R1."""
DEGREES = ((1, 1), (2, 1), (4, 1), (8, 1))
PIPELINED = ((1, 2), (1, 4))
"""Tensor and pipeline degrees that submissions choose from; models with experts may also spread attention.
NVIDIA's configurations of v4.1 have no
pipelines, those of v5.0 and v5.1 run two stages where a model fills one GPU (H100)."""
TARGETS = {
    ("llama2-70b", False): (2.0, 0.200),
    ("llama2-70b", True): (0.450, 0.040),
    ("llama3.1-8b", False): (2.0, 0.100),
    ("llama3.1-8b", True): (0.500, 0.030),
}
"""Limits of the p99 of TTFT and of TPOT, s, by benchmark and whether it is interactive (MLCommons inference
rules, section 5.1), for rows that leave them out."""
FREE_SHARE = 0.95
"""Tuned submissions leave the KV cache nearly all of the free memory."""
TAIL = 1.11, 2.2
"""p99 over mean of TPOT and of TTFT: medians of 85 server logs of MLPerf Inference v4.1 and v5.1."""
SHARES = np.linspace(0.02, 1.0, 50)
"""Rates of arrivals that are tried, as shares of the most that all requests at once reach."""
BUDGET = 8192.0
MOST_SEQUENCES = 2048.0


@dataclass(frozen=True)
class MlPerf:
    """The configuration of one row, with the setups to choose from."""

    setups: tuple[Setup, ...]
    gpus: float
    prompt: float
    output: float
    variation: float
    ttft_limit: float
    tpot_limit: float
    offline: bool

    @property
    def serving(self) -> Setup:
        """The first of the setups."""
        return self.setups[0]

    @property
    def key(self) -> tuple[Any, ...]:
        """Rows with equal keys are predicted in one call."""
        return tuple(choice.key for choice in self.setups)


def question(row: MeasuredRow, collection: Collection) -> MlPerf:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    row = MeasuredRow({**row.values, "gpu": _gpu(row)}, row.where)
    model, cluster = find_model(row.text("model")), find_cluster(row.text("gpu"))
    if model.name not in DATA_SETS:
        raise SkippedRow(f"lengths of the data set of {model.name} are not known")
    gpus, round_ = row.need("n_gpus"), row.text("round")
    engine, version = _engine(row.text("framework"), round_, cluster)
    precision, most = _precision(cluster, round_), min(gpus, cluster.domain)
    degrees = DEGREES if round_ < "v5" else DEGREES + PIPELINED
    pools = [{"tensor": tensor, "pipeline": stages} for tensor, stages in degrees if tensor * stages <= most]
    if model.moe is not None:
        pools += [{"data": ranks, "expert": ranks} for ranks in (2, 4, 8) if ranks <= most]
    data_set = DATA_SETS[model.name]
    ttft, tpot = TARGETS.get((model.name, row.text("scenario") == "Interactive"), (2.0, 0.2))
    return MlPerf(
        setups=tuple(setup(row, engine, version, {**pool, "kv": "fp8"}, precision) for pool in pools),
        gpus=gpus,
        prompt=data_set.prompt,
        output=row.number("realised_output_tokens") or data_set.output,
        variation=data_set.variation,
        ttft_limit=(row.number("ttft_limit_ms") or 1e3 * ttft) / 1e3,
        tpot_limit=(row.number("tpot_limit_ms") or 1e3 * tpot) / 1e3,
        offline=row.text("scenario") == "Offline",
    )


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
        best = max(_rate(choice, row) for choice in row.setups)
        if best <= 0:
            raise InfeasibleError(f"{row.serving.model.name} does not fit {row.gpus:.0f} GPUs")
        predicted.append({"out_tok_s": best * row.gpus, "out_tok_s_per_gpu": best})
    return predicted


def _rate(choice: Setup, row: MlPerf) -> float:
    """Output tokens a second and device at the best batch that keeps the limits; 0 where nothing fits."""
    try:
        memory = memory_that_fits(choice, BUDGET, 256, FREE_SHARE)
    except InfeasibleError:
        return 0.0
    # Requests of different age share memory; a tenth of it stays free for those that grow.
    context = row.prompt + 0.5 * (1.0 + row.variation) * row.output
    slots = min(0.9 * memory.kv_tokens / context, MOST_SEQUENCES)
    table = table_of(choice, BUDGET, slots, row.prompt + row.output)
    clients = np.geomspace(1.0, max(slots, 1.0) * choice.pool.data, 40)
    load = Load(row.prompt, row.output, clients, variation=row.variation)
    limits = Limits(BUDGET, max(slots, 1.0), memory.kv_tokens)
    most = steady_state(table, load, limits)
    rate = float(np.max(most.output_tokens_s))
    if not row.offline:
        rates = float(np.max(most.requests_s)) * SHARES
        state = steady_state(table, replace(load, concurrency=0.0, rate=rates), limits)
        tpot, ttft = TAIL
        within = (tpot * state.tpot_s <= row.tpot_limit) & (ttft * state.ttft_s <= row.ttft_limit)
        rate = float(np.max(np.where(within & state.stable, state.output_tokens_s, 0.0)))
    return rate / choice.pool.devices
