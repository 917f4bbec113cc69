"""A measured serving run as a question to the simulator, and what all readers of such rows share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.errors import InputError, UnknownNameError
from core.loading import build
from evidence.serving.names import (
    engine_version,
    find_activations,
    find_cluster,
    find_format,
    find_model,
)
from evidence.serving.served_run import ServedRun
from meshwright.validation.rows import SkippedRow
from simulator.models import Model
from simulator.serving.engines import Engine, Preset, nearest
from simulator.serving.question.deployment import Pool
from simulator.serving.steady.kinds import ReplicaKind

SMALLEST, LARGEST = 1e-6, 1e9
"""Sizes of the numbers that rows state."""


class MeasuredRow:
    """One CSV row with typed access."""

    def __init__(self, values: Mapping[str, str], where: str) -> None:
        self.values = {name: (value or "").strip() for name, value in values.items() if isinstance(name, str)}
        self.where = where

    @property
    def name(self) -> str:
        """The name that the row states, or its file and line."""
        stated = (self.text(column) for column in ("case_id", "id", "run"))
        return next(filter(None, stated), self.where.split("/")[-1].replace(": line ", ":"))

    def text(self, name: str, default: str = "") -> str:
        """The text of a column, or the default where it is blank or absent."""
        return self.values.get(name) or default

    def number(self, name: str) -> float | None:
        """The number in a column; None where it is blank.

        Raises:
            InputError: it is neither 0 nor a number of a likely size.
        """
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"column {name!r} must be a number, found {text!r}", self.where) from None
        if value and not SMALLEST <= value <= LARGEST:
            allowed = f"0 or a number from {SMALLEST:g} to {LARGEST:g}"
            raise InputError(f"column {name!r} must be {allowed}, found {text!r}", self.where)
        return value

    def need(self, name: str) -> float:
        """A number that the row must state.

        Raises:
            Skipped: it does not.
        """
        value = self.number(name)
        if not value:
            raise SkippedRow(f"{name} not stated")
        return value

    def count(self, name: str, default: int = 1) -> int:
        """A degree: a whole number of at least 1."""
        return max(round(self.number(name) or default), 1)

    def measured(self, *names: str) -> dict[str, float]:
        """The measured columns that the row fills."""
        numbers = {name: self.number(name) for name in names}
        return {name: value for name, value in numbers.items() if value}


@dataclass(frozen=True, eq=False)
class Setup(ReplicaKind):
    """One kind of replica of a measured run."""

    def with_pool(self, **changes: Any) -> Setup:
        """The same replica with other values of its pool."""
        return replace(self, pool=self.pool.model_copy(update=changes))


class Question:
    """The configuration of one row."""

    key: tuple[Any, ...]
    """Rows with equal keys are predicted in one call."""

    def run(self) -> ServedRun | None:
        """The run of a scenario that the row is; None where it is predicted from steady states."""
        return None


@dataclass(frozen=True)
class ReplicaQuestion(Question):
    """The configuration of a row whose replicas are of one kind."""

    serving: Setup

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]
        """See `Question`."""
        return self.serving.key


@dataclass(frozen=True)
class EqualRequests(ReplicaQuestion):
    """A batch of equal requests."""

    batch: float
    prompt: float
    """Tokens of one request."""
    output: float


def batch_arrays(questions: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Batch, prompt and output of rows of batches."""
    batch, prompt, output = np.array([(row.batch, row.prompt, row.output) for row in questions]).T
    return batch, prompt, output


def rows_of(columns: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Predicted columns of each row."""
    return [
        {name: float(value) for name, value in zip(columns, values, strict=True)}
        for values in zip(*np.broadcast_arrays(*columns.values()), strict=True)
    ]


@dataclass(frozen=True)
class ServingCase:
    """One measured row."""

    case_id: str
    file: str
    engine: str
    """Preset that predicts it."""
    gpu: str
    measured: dict[str, float]
    flagged: bool
    group: str
    """Rows of one configuration share it."""
    question: Any


def pool_of(values: dict[str, Any], where: str) -> Pool:
    """A pool, checked.

    Raises:
        Skipped: degrees that do not fit together.
    """
    try:
        return build(Pool, values, where)
    except InputError as error:
        raise SkippedRow(f"degrees do not fit together: {error.problem}") from None


def degrees(tp: int, dp: int, ep: int, pp: int, gpus: int) -> dict[str, int]:
    """Our degrees from a row's: where ``dp`` ranks lie inside the tensor-parallel group, attention is not cut
    by them."""
    inside = dp > 1 and gpus < tp * dp * pp
    tensor = max(tp // dp, 1) if inside else tp
    ranks = tensor * dp
    expert = min(max(ep, 1), ranks)
    while ranks % expert:
        expert -= 1
    return {"tensor": tensor, "data": dp, "pipeline": pp, "expert": expert}


MARLIN = "VLLM_MXFP4_USE_MARLIN=1"
"""Variable of a vLLM server whose MXFP4 experts run in Marlin (mxfp4.py)."""


def setup(row: MeasuredRow, engine_name: str, version: str, pool: Mapping[str, Any], precision: str) -> Setup:
    """The replica that a row describes.

    Raises:
        Skipped: the row leaves it open, or names something unknown.
    """
    model = find_model(row.text("model"))
    cluster = find_cluster(row.text("gpu"))
    try:
        preset: Preset = nearest(engine_name, engine_version(version, row.text("notes")))
    except UnknownNameError as error:
        raise SkippedRow(str(error)) from None
    weights = find_format(precision)
    kv = row.text("kv_precision")
    values: dict[str, Any] = {"weights": weights, "engine": preset.engine.name, **pool}
    if MARLIN in row.text("notes"):
        values["expert_kernels"] = "marlin"
    if activations := find_activations(precision):
        values["activations"] = activations
    if kv and find_format(kv) in ("fp8", "int8", "fp4"):
        values["kv"] = find_format(kv)
    elif not kv and cluster.device.vendor == "nvidia" and weights in _scaled(preset.engine, model):
        values.setdefault("kv", "fp8")
    return Setup(model, cluster, pool_of(values, row.where), preset.engine)


def _scaled(engine: Engine, model: Model) -> tuple[str, ...]:
    """Formats whose checkpoints carry scales for an fp8 KV cache, which engines then take: NVFP4, not MXFP4,
    and the fp8 of TensorRT-LLM (ModelOpt)."""
    fp8 = ("fp8",) if engine.engine == "tensorrt-llm" else ()
    return fp8 if model.fp4 == "mxfp4" else ("fp4", *fp8)
