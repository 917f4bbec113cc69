"""Gains of operators and packings, and searches over mixed groups: ``python -m benchmarks.operators``.

Each gain is that of a mechanism beside the same step without it; without the mechanism it is 1, outside of
what is asked.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import meshwright as mw
from core.loading import read_mapping
from evidence.command import command
from hwmodels.cluster import Cluster, clusters
from meshwright.questions.scenarios import shipped_scenarios
from planner.mixed import search_mixed
from simulator.packing.costs import DegreeCosts
from simulator.packing.flexsp import dealt_by_program
from simulator.plan import Plans
from simulator.scenario import complete_plan, make_scenario
from simulator.serving.steps.weight_only import CALL_S, READ_SHARE, WEIGHT_BYTES
from simulator.training import predict

HIDDEN, FEED_FORWARD = 8192, 28672
"""MLP of Llama 2 70B."""
TOKENS = 1, 2, 4, 8, 16
RANKS = 2, 4, 8
DEQUANTISED = "up to 1.81 published (Hoque et al. 2024, arXiv 2402.04925), 1.2 to 1.9 asked of 8 ranks"
SQUARES = "1.24 published (arXiv 2505.05713: a job of 32K tokens, model and lengths not printed), not decided"
SQUARES_LAYOUT = {"pipeline": 2, "context": 2, "context_algorithm": "ulysses", "zero": 1, "recompute": "full"}
"""Layout of the paper's trace of a job with unequal sequences: 32 replicas of two stages of two ranks
(ByteDance-Seed/StragglerAnalysis, data/meta-SE.yaml)."""
REPLICAS = 32
GROUPS = "at most 1.98 (FlexSP) and 7.89 (ByteScale) published, 1.2 to 2.0 and rising asked"
GROUPED = {"context": 32, "data": 2, "zero": 3, "recompute": "full", "context_algorithm": "ulysses"}
ROWS = 2, 4, 8
"""Packed rows of a replica and step; the trace does not say how many."""
LONGEST = 0.05, 0.1, 0.2, 0.3, 0.5
"""Shares of tokens in documents of 32K tokens, the others of 500: the tail is not printed either."""
HOLMES = "groups-gpt-7.5b"
"""Two groups of nodes whose networks meet only over Ethernet."""
NODES = {(4, 12): 2.0, (10, 30): 5.0, (16, 48): 10.0}
"""Nodes of 8 A100 and of 8 V100 (Sailor, arXiv 2504.17096: 1.6, 7.7, 17.4 s), and the CPU seconds asked."""


def dequantised(cluster: Cluster, ranks: int, tokens: int) -> tuple[float, float]:
    """Seconds of an MLP with 4-bit weights in the order of activations, and of the TP-aware one.

    The columns of the first product are permuted as the rows of the second: ranks gather the product, permute
    it and take their slice, unless the columns were sorted before they were cut.
    """
    device, weights = cluster.device, HIDDEN * FEED_FORWARD / ranks * WEIGHT_BYTES["int4"]
    product = weights / (READ_SHARE * device.memory_bandwidth) + CALL_S
    summed = float(cluster.collective("all_reduce", 2.0 * tokens * HIDDEN, ranks))
    between = 2.0 * tokens * FEED_FORWARD
    gathered = float(cluster.collective("all_gather", between, ranks))
    permuted_s = float(sum(device.kernels.memory_bound([2 * between, 2 * between / ranks])))
    aware = 2 * product + summed
    return aware + gathered + permuted_s, aware


def lognormal(median: float, sigma: float, longest: int) -> dict[str, Any]:
    """Law of lengths up to ``longest`` tokens."""
    return {"kind": "lognormal", "median": median, "sigma": sigma, "most": longest}


def packed(question: dict[str, Any], lengths: dict[str, Any], longest: int, rows: int, packing: str) -> float:
    """Gain of a packing over `pack` in tokens of documents a second, in rows of ``longest`` tokens."""
    rates = []
    for name in (packing, "pack"):
        work = {"seq_len": longest, "global_batch": rows, "lengths": lengths, "packing": name}
        scenario = make_scenario(question | {"workload": work}, name, Path())
        setting = scenario.setting
        plans = Plans.of(complete_plan(setting, question["plan"], name))
        rates.append(setting.training.tokens / float(predict(setting, plans).time[0]))
    return rates[0] / rates[1]


def solved(seed: int) -> tuple[float, float]:
    """CPU seconds and gap of FlexSP's program for 100 documents on 64 ranks, as in its test."""
    degrees = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    token_s = (1e-4 + np.where(degrees > 8, 4e-5, 1e-6)) / degrees  # groups beyond a node exchange slowly
    costs = DegreeCosts(degrees, np.full(7, 0.01), token_s, 1e-9 / degrees, 6144.0)
    drawn = np.random.default_rng(seed).lognormal(np.log(1000), 1.4, 100)
    start = time.process_time()
    dealt = dealt_by_program(np.minimum(drawn.round() + 1, 65536), costs, 64)
    return time.process_time() - start, dealt.gap


def mixed_question(a100: int, v100: int) -> dict[str, Any]:
    """Sailor's search: GPT of 2.7B over nodes of two kinds."""
    groups = [
        {"name": "a100", "cluster": "dgx-a100-40gb", "nodes": a100},
        {"name": "v100", "cluster": "dgx-1v", "nodes": v100},
    ]
    join = {"fabric": "roce", "nics_per_node": 1, "nic_gbps": 100, "nodes_per_leaf": 16}
    return {
        "model": "gpt3-2.7b",
        "cluster": {"name": "mixed", "groups": groups, "join": join},
        "gpus": 8 * (a100 + v100),
        "workload": {"seq_len": 2048, "global_batch": 1920, "precision": "fp16"},
    }


def searched_holmes() -> tuple[float, str]:
    """Gain of a pipeline over both networks over replicas on each, and what `plan` ranks first."""
    path = shipped_scenarios()[HOLMES]
    (pipeline,) = mw.whatif(HOLMES).to_dict()["variations"]
    first = search_mixed(read_mapping(path), str(path), path.parent, 1).plans[0]
    gain = 1.0 / (1.0 + pipeline["step_time_change"])
    return gain, "stages" if "stages" in first.data["placement"] else "replicas"


@command
def main() -> None:
    """Print the figures."""
    print(f"TP-aware dequantisation, MLP of Llama 2 70B, {TOKENS[0]} to {TOKENS[-1]} tokens: {DEQUANTISED}")
    for name in ("dgx-a100-80gb", "dgx-h100"):
        for ranks in RANKS:
            pairs = [dequantised(clusters.get(name).resized(8), ranks, tokens) for tokens in TOKENS]
            gains = [naive / aware for naive, aware in pairs]
            print(f"  {name}, {ranks} ranks: {min(gains):.2f} to {max(gains):.2f}")
    print(f"rows dealt by sum of squares over packed rows: {SQUARES}")
    question = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 4 * REPLICAS, "plan": SQUARES_LAYOUT}
    laws = {
        f"lengths of median {median:,}, sigma {sigma}": lognormal(median, sigma, 32768)
        for median, sigma in ((1000, 1.5), (4000, 1.5), (1000, 2.0))
    }
    for share in LONGEST:
        weights = [(1 - share) / 500, share / 32768]
        law = {"kind": "empirical", "tokens": [500, 32768], "weights": weights}
        laws[f"{share:.0%} of tokens in documents of 32K, others of 500"] = law
    for words, law in laws.items():
        gains = [packed(question, law, 32768, rows * REPLICAS, "balance") for rows in ROWS]
        print(
            f"  Llama 3.1 8B, {', '.join(map(str, ROWS))} rows, {words}:", *(f"{gain:.2f}" for gain in gains)
        )
    print(f"groups of unequal degree over packed rows, Llama 2 7B on 64 A100, up to 192K: {GROUPS}")
    question = {"model": "llama2-7b", "cluster": "dgx-a100-80gb", "gpus": 64, "plan": GROUPED}
    for name in ("flexsp", "bytescale"):
        gains = [
            packed(question, lognormal(median, 1.6, 196608), 196608, 6, name) for median in (20000, 2000)
        ]
        print(f"  {name}, lengths of median 20,000 and 2,000: {gains[0]:.2f}, {gains[1]:.2f}")
    spent, gaps = zip(*(solved(seed) for seed in range(4)), strict=True)
    print(
        f"  its program for 100 documents, 64 ranks: {max(spent):.2f} s of CPU (1), gap {max(gaps):.1%} (2 %)"
    )
    for (a100, v100), asked_s in NODES.items():
        question, start = mixed_question(a100, v100), time.process_time()
        first = search_mixed(question, "mixed", Path(), 3).plans[0]
        spent = time.process_time() - start
        words = f"{spent:.1f} s of CPU ({asked_s:g} asked), a step of {first.step.seconds:.2f} s"
        print(f"search over {question['gpus']} GPUs: {words}")
    gain, placed = searched_holmes()
    print(f"Holmes, 7.5B over two networks: {gain:.2f} (1.39 published, 1.25 to 1.5 asked), plan: {placed}")
