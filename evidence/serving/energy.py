"""Steady load at a stated batch: ITL, throughput, power and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evidence.serving.case import EqualRequests, MeasuredRow, batch_arrays, rows_of
from evidence.serving.collection import Collection
from meshwright.validation.rows import SkippedRow
from simulator.serving.steady.held_batch import held_batch
from simulator.serving.steady.kinds import table_of

PROMPTS = {"lm-arena-chat": 150.0, "image-chat": 500.0, "sourcegraph-fim": 1000.0}
"""Mean prompt tokens by task, which the source does not state (assumed)."""
OTHER_PROMPT = 300.0
RUN_BATCHES = 530.0
"""Tokens a second of rows without a version are below batch over TPOT by 1 + batch / 530 (median over 112
rows, from measured columns alone): runs of a fixed number of requests, whose start and end do not fill the
batch."""


@dataclass(frozen=True)
class Energy(EqualRequests):
    """The configuration of one row."""

    whole_run: bool = False
    """Whether throughput counts the start and the end of the run."""


def question(row: MeasuredRow, collection: Collection) -> Energy:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    gpus, tp, dp, pp, ep = (row.count(name) for name in ("n_gpus", "tp", "dp", "pp", "ep"))
    # With expert parallelism the source's tp is that of experts: attention is cut over all ranks of a copy.
    tensor = max(gpus // dp, 1) if ep > 1 else tp
    degrees = {"tensor": tensor, "data": dp, "expert": ep if ep == gpus else 1, "pipeline": pp}
    serving = collection.replica(row, degrees)
    if gpus not in (tensor * dp, tensor * dp * pp):
        raise SkippedRow(f"degrees ({tp} x {dp}) do not give {gpus} GPUs")
    prompt = row.number("input_tokens") or PROMPTS.get(row.text("task"), OTHER_PROMPT)
    whole_run = not row.text("engine_version")
    return Energy(serving, prompt=prompt, whole_run=whole_run, **collection.values(row))


def predict(questions: Sequence[Energy]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    serving, data = questions[0].serving, questions[0].serving.pool.data
    batch, prompt, output = batch_arrays(questions)
    sequences, budget = batch / data, serving.engine.token_budget(serving.cluster.device)
    table = table_of(serving, budget, float(np.max(sequences)) + 1, float(np.max(prompt + output)))
    alone = serving.engine.scheduler.value == "prefill-first"
    step, gap = held_batch(table, sequences, prompt, output, budget, alone)
    entire = np.array([row.whole_run for row in questions])
    rate = batch / gap / np.where(entire, 1.0 + batch / RUN_BATCHES, 1.0)
    tokens = sequences * data * (1.0 + prompt / output)
    watts = table.power.watts(tokens, batch, batch * (prompt + 0.5 * output), gap, hosts=False)
    return rows_of(
        {
            "itl_ms_p50": 1e3 * step,
            "tpot_ms_mean": 1e3 * gap,
            "out_tok_s": rate,
            "avg_power_w_all_gpus": watts,
            "j_per_output_token": watts / rate,
        }
    )
