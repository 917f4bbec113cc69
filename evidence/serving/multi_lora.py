"""Many adapters on one base model: S-LoRA's runs.

The client draws arrivals, lengths and adapters with a seed that it fixes, so each row is a replay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from evidence.serving.case import MeasuredRow, ReplicaQuestion, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.served_run import ServedRun, scenario_of, trace_text, traced

KERNEL = {"first_s": 19e-6, "further_s": 0.0}
"""S-LoRA's kernels of one product on an A10G: 1.993 against 1.885 requests/s at saturation with 0 and 1
adapters of rank 8 (two rows each, replayed). One launch computes all sequences, whichever adapters they have
(slora/csrc/bgmv/bgmv_impl.cuh), so that a further adapter is its bytes alone."""
SEED = 42
"""Of the client's draws (benchmarks/run_exp.py, whose commands set no other)."""
TOKENS = 14500
"""max_total_token_num of the servers on an A10G (launch_server.py --num-token in the exp_cmds.sh)."""
APART_TOKENS = {"S1": ((200, 13500),), "S2": ((1, 13500), (20, 10000), (200, 9000))}
"""The same of servers whose adapters have memory of their own, by the most adapters of a run
(synthetic/no_mem/exp_cmds_a10g_S1.sh and _S2.sh)."""


@dataclass(frozen=True)
class MultiLora(ReplicaQuestion):
    """The configuration of one row."""

    adapters: int
    rank: int
    alpha: float
    rate: float
    cv: float
    duration: float
    prompt: tuple[int, ...]
    """Least and most tokens, drawn uniformly."""
    output: tuple[int, ...]
    tokens: int
    """KV tokens of the server; adapters in use are taken off them."""

    def run(self) -> ServedRun:
        """See `Question`. The draws are the client's own, in its order (benchmarks/trace.py)."""
        random, count = np.random.RandomState(SEED), max(int(self.rate * self.duration), 1)
        random.power(self.alpha, count)  # adapters
        ranges = self.prompt, self.output
        prompts, outputs = (random.randint(low, high, count).tolist() for low, high in ranges)
        gaps = random.gamma(1 / self.cv**2, self.cv**2 / self.rate, count)
        trace = trace_text(np.cumsum(gaps).tolist(), prompts, outputs, [0] * count)
        keys: dict[str, Any] = {"options": {"max_context": 2048, "kv_blocks": self.tokens}}
        if self.adapters:
            # The client draws u^(1 / alpha) of the adapters: equally often at alpha 1.
            edges = [(index / self.adapters) ** self.alpha for index in range(self.adapters + 1)]
            keys["adapters"] = {
                "count": self.adapters,
                "rank": self.rank,
                "popularity": {"shares": [high - low for low, high in pairwise(edges)]},
                "products": "attention",
                # Servers without unified paging admit by the same rule: those in use are taken off.
                "memory": "shared",
                "options": KERNEL,
            }
        return ServedRun({"gpus": 1, **scenario_of(self.serving, traced(count, warmup=0.0), **keys)}, trace)


def question(row: MeasuredRow, collection: Collection) -> MultiLora:
    """The question of a row."""
    adapters = round(row.number("num_adapters") or 0.0)
    ranks = [int(text) for text in re.findall(r"\d+", row.text("lora_ranks"))]
    prompt, output = (tuple(map(int, row.text(f"{side}_range").split("-"))) for side in ("input", "output"))
    apart = APART_TOKENS.get(row.text("setting"), ()) if row.text("method") == "no_mem" else ()
    return MultiLora(
        collection.replica(row),
        adapters,
        rank=round(sum(ranks[: adapters or 1]) / min(len(ranks), adapters or 1)),
        prompt=prompt,
        output=output,
        tokens=next((tokens for limit, tokens in apart if adapters <= limit), TOKENS),
        **collection.values(row),
    )


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Methods are engines of their own in summaries."""
    return {"engine": f"lightllm {row.text('method')}"}
