"""How fast the search is: plans scored a second on one core, and a whole search with its time and memory.

Nothing here uses a second core: the arrays are added and multiplied, never matrices.

python -m benchmarks.search [--model NAME --cluster NAME --gpus N --seq-len N --global-batch N]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from evidence.command import command
from hwmodels.cluster import clusters
from planner.training.candidates import CHUNK, Enumeration
from planner.training.rules import RULES
from planner.training.search import search
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import concatenate
from simulator.setting import Setting
from simulator.training import predict, step_time
from simulator.training.memory import memory
from simulator.workload import Training

REPEATS = 5


def scoring_rate(space):
    """Plans a second that the step time, its breakdown and the memory model take, best of a few rounds in
    CPU time; a search of the least time asks for no breakdown until it has its finalists."""
    plans = concatenate([block.plans for block in Enumeration(space, RULES).blocks()])
    # A search hands the cost model chunks of this size; a small space is repeated to fill one.
    plans = plans.take(np.arange(CHUNK) % len(plans))
    best = {"step time": np.inf, "predict": np.inf, "memory": np.inf}
    for _ in range(REPEATS):
        start = time.process_time()
        step_time(space.setting, plans)
        best["step time"] = min(best["step time"], time.process_time() - start)
        start = time.process_time()
        step = predict(space.setting, plans)
        best["predict"] = min(best["predict"], time.process_time() - start)
        start = time.process_time()
        memory(space.setting, plans, step.stages, step.parameters)
        best["memory"] = min(best["memory"], time.process_time() - start)
    return {name: len(plans) / seconds for name, seconds in best.items()}


@command
def main(
    *,
    model: str = "gpt3-175b",
    cluster: str = "dgx-a100-80gb",
    gpus: int = 1024,
    seq_len: int = 2048,
    global_batch: int = 1536,
    precision: str = "bf16",
    framework: str = "megatron-core",
) -> None:
    """Print the figures."""
    training = Training(seq_len=seq_len, global_batch=global_batch, precision=precision)
    setting = Setting(models.get(model), clusters.get(cluster), training, frameworks.get(framework))
    start, processor = time.perf_counter(), time.process_time()
    result = search(setting, gpus)
    elapsed, processor = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{model}, {gpus} devices of {cluster}")
    print(f"  candidates {result.candidates:,}, scored {result.scored:,}")
    for name, count in result.removed.items():
        print(f"    {name:<18} removed {count:>14,}")
    if result.shortfall:
        print(result.shortfall.message())
        return
    print(f"  whole search       {elapsed:.2f} s ({processor:.2f} s of CPU), peak RSS {peak / 1e9:.2f} GB")
    for name, rate in scoring_rate(result.space).items():
        print(f"  {name:<18} {rate:,.0f} plans/s in chunks of {CHUNK:,}")
    best = result.plans.plan(0)
    print(f"  best               {best.describe()}, {result.step.time[0]:.3f} s")
