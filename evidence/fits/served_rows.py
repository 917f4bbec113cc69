"""Published runs of serving engines as rows that a fit of engine constants predicts, by group."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.fits import steady_stages
from evidence.serving import closed_loop, ledger, trtllm_tables
from evidence.serving.case import ServingCase, Setup
from evidence.serving.collection import predictions
from evidence.training.parts import kept_apart
from simulator.serving.engines import BLACKWELL, engines, generation_of
from simulator.serving.engines.classes import format_class, layer_class
from simulator.serving.engines.engine import FormatClass, LayerClass

FIRST, RATE, REST = "TTFT", "tokens/s", "TPOT"
OFFLINE, MOST = "batch latency", "most tokens/s"
METRICS = {
    "closed_loop": ("tpot_ms_mean", "ttft_ms_p50", "ttft_ms_mean", "total_tok_s_per_gpu"),
    "energy": ("itl_ms_p50", "tpot_ms_mean"),
    "stages": ("itl_ms_mean", "ttft_ms_mean"),
    "static_batch": ("decode_step_ms", "prefill_ms"),
    "offline": ("latency_s",),
    "trtllm_tables": ("out_tok_s",),
}
STEADY = {
    "closed_loop": closed_loop.predict_steady,
    "stages": steady_stages.predict_steady,
    "trtllm_tables": trtllm_tables.predict_steady,
}
"""Steady states of collections whose rows are runs of scenarios."""
FILES = (
    "closed_loop.csv.gz",
    "energy.csv.gz",
    "open_loop_stages.csv",
    "static_batch.csv",
    "offline_batch.csv.gz",
    "trtllm_tables.csv",
)
LARGEST_BATCH = 600.0
"""Energy rows above it ran with more sequences allowed than memory held."""


class Group(NamedTuple):
    """Rows with constants of their own."""

    engine: str
    """Preset."""
    layers: LayerClass
    format: FormatClass
    generation: str

    @property
    def family(self) -> tuple[str, str, bool]:
        """Versions of one engine with one scheduling policy."""
        engine = engines.get(self.engine)
        return engine.engine, engine.scheduler.value, engine.schedules_ahead.value

    @property
    def vendor(self) -> str:
        """Generation, with all of NVIDIA's as one."""
        return "" if self.generation == BLACKWELL else self.generation


@dataclass
class Rows:
    """Rows of one replica: predicted in one call."""

    collection: str
    questions: list
    metric: str
    measured: np.ndarray
    setup: Setup
    source: str = ""
    """Who measured the rows."""
    cases: tuple[ServingCase, ...] = ()
    counts: bool = True
    """Whether the fit sees them: tokens per second of a row follow from its latencies."""
    folder: str = ""
    """Where their file lies."""

    def errors(self) -> np.ndarray:
        """Log of predicted over measured."""
        steady = STEADY.get(self.collection)
        predicted = steady(self.questions) if steady else predictions(self.collection, self.questions)
        return np.log(np.array([metrics[self.metric] for metrics in predicted]) / self.measured)

    @property
    def first(self) -> bool:
        """Whether the metric is a time to first token."""
        return self.metric.startswith("ttft")

    @property
    def kind(self) -> str:
        """Kind of metric in summaries."""
        if self.collection in ("offline", "static_batch"):
            return OFFLINE
        if self.collection == "trtllm_tables":
            return MOST
        return FIRST if self.first else RATE if "tok_s" in self.metric else REST


def excluded(case: ServingCase) -> bool:
    """Rows that break for reasons of their own; see docs/accuracy/servers.md."""
    question, engine = case.question, case.engine
    model, gpu = question.serving.model.name, case.gpu
    if case.flagged or getattr(question, "speculates", False) or getattr(question, "prefill", None):
        return True
    if "energy" in case.file:
        single = gpu == "b200" and question.serving.pool.devices == 1
        return question.batch > LARGEST_BATCH or (single and not case.case_id.count("lm-arena"))
    if engine == "vllm-0.11" and model == "gpt-oss-120b" and "closed_loop" in case.file:
        return True  # 512 clients: requests wait in the client, and TPOT counts a few of them
    if engine == "vllm-0.12" and (model == "llama3.1-8b" or question.serving.pool.weights == "fp8"):
        return True  # prompts served from the prefix cache
    return (
        engine.startswith("tensorrt-llm-1.2") and getattr(question, "sized", False)
    ) or "1.3.0rc" in case.case_id


def source_of(case: ServingCase) -> str:
    """Who measured a row: a file, or one of the harnesses of the closed loops."""
    if hasattr(case.question, "bursts"):
        return "InferenceX" if case.question.bursts else "AIConfigurator"
    return case.file.partition(".")[0]


def uneven(setup: Setup) -> bool:
    """Whether experts lie on attention ranks: the rates of tables then show how unevenly tokens meet experts
    and ranks. That is no host time, so the fit leaves these rows to be predicted."""
    return setup.pool.data > 1 and setup.pool.expert > 1


def unknown(case: ServingCase, metric: str) -> bool:
    """Whether a row's TTFT depends on a start of the run that it does not describe, or its p50 is there."""
    if not metric.startswith("ttft"):
        return False
    bursts = getattr(case.question, "bursts", True)
    return not bursts or (metric == "ttft_ms_mean" and "ttft_ms_p50" in case.measured)


def group_of(setup: Setup) -> Group:
    """The group of a replica's rows."""
    generation = generation_of(setup.engine, setup.cluster.device)
    return Group(setup.engine.name, layer_class(setup.model), format_class(setup.pool.stored), generation)


def read(folder: Path, tested: bool = False) -> dict[Group, list[Rows]]:
    """Rows by group.

    Args:
        folder: of published runs.
        tested: they are in no fit; a third is kept apart and left out, TTFT counts whatever the client.
    """
    questions: dict = defaultdict(list)
    book = ledger.ServingLedger()
    for name in FILES:
        if (folder / name).exists():
            ledger._read(folder / name, True, questions, book)
    by_group: dict[Group, list[Rows]] = defaultdict(list)
    for collection, cases in questions.items():
        groups: dict = defaultdict(list)
        apart = kept_apart(case.case_id for case in cases) if tested else set()
        for case in cases:
            for metric in METRICS[collection]:
                use = metric in case.measured and not excluded(case) and case.case_id not in apart
                if use and (tested or not unknown(case, metric)):
                    groups[case.question.key, metric, source_of(case)].append(case)
        for (_, metric, source), same in groups.items():
            setup = same[0].question.serving
            unique = list({(c.group or c.case_id): c for c in same}.values())
            values = np.array([case.measured[metric] for case in unique])
            rows = Rows(
                collection, [case.question for case in unique], metric, values, setup, source, tuple(unique)
            )
            rows.folder = folder.name
            tables = collection == "trtllm_tables" and uneven(setup)
            rows.counts = metric != "total_tok_s_per_gpu" and not tables
            by_group[group_of(setup)].append(rows)
    return by_group
