"""An overlap inside a step leaves at least its longest stream: of two, at least half."""

import numpy as np

from hwmodels.cluster import clusters
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.overlaps import Overlaps, OverlapSteps, make_overlap
from simulator.serving.question.deployment import Pool
from simulator.serving.question.overlap import StepOverlap
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays
from simulator.serving.steps.step_times import RankBatch
from simulator.serving.steps.table import IterationTable
from tests.laws.questions import Choose, Question, strategy

NUMBER = 36
CI = 4
EXPERTS = ("qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-120b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2")
BUDGET, SEQUENCES, CONTEXT = 4096, 256, 8192
PRECISION = 1e-9


def overlapped(choose: Choose) -> Question:
    """Ranks of experts whose steps overlap, and a prompt."""
    return {
        "model": choose(EXPERTS),
        "cluster": choose(("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8")),
        "ranks": choose((8, 16, 32, 64)),
        "prompt": choose((4000, 2000, 1000, 300, 128)),
        "decodes": choose((64, 1, 8, 200)),
        "kind": choose(("two-batches", "nano-batches", "halves", "ladder")),
    }


QUESTIONS = strategy(overlapped)


def check(question: Question) -> None:
    """A lone prompt, one on every rank, decodes, and a prompt beside decodes: one by one, and in arrays."""
    cluster = clusters.get(question["cluster"]).resized(question["ranks"])
    pool = Pool(data=question["ranks"], expert=question["ranks"])
    table = IterationTable(
        StepPrice(models.get(question["model"]), cluster, pool, engines.get("vllm-0.19")),
        BUDGET,
        SEQUENCES,
        CONTEXT,
    )
    overlap = make_overlap(StepOverlap(kind=question["kind"]), "overlap")
    steps = OverlapSteps(table, overlap)
    plain, short = StepArrays([table]).cases(0), StepArrays([table], [Overlaps([steps])]).cases(0)
    prompt, every = float(question["prompt"]), np.array([1.0, float(question["ranks"])])
    for decodes in (0.0, float(question["decodes"])):
        batch = (prompt, 0.0, decodes, 2000.0, 1.0, every)
        _at_least(short.mixed_seconds(*batch), plain.mixed_seconds(*batch) * overlap.longest)
    batch = np.array([1.0, 8.0, 64.0, 256.0]), 2000.0
    _at_least(short.decode_seconds(*batch), plain.decode_seconds(*batch) * overlap.longest)
    lone = [RankBatch(((question["prompt"], 0),), 0, 0), *[RankBatch((), 0, 0)] * (question["ranks"] - 1)]
    _at_least(np.array(steps.lockstep(lone)), np.array(table.lockstep(lone) * overlap.longest))


def _at_least(seconds: np.ndarray, least: np.ndarray) -> None:
    """Refuse a step below its longest stream."""
    assert (seconds >= least * (1.0 - PRECISION)).all(), (
        f"a step takes {seconds.min():.4g} s, its longest stream more"
    )
