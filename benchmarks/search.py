"""How fast the search is: plans scored a second on one core, and a whole search with its time and memory.

Nothing here uses a second core: the arrays are added and multiplied, never matrices.

python -m benchmarks.search [--model NAME --cluster NAME --gpus N --seq-len N --global-batch N]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

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


def arguments():
    """The question to search; by default GPT-3 175B on 1,024 A100s."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt3-175b")
    parser.add_argument("--cluster", default="dgx-a100-80gb")
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--global-batch", type=int, default=1536)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--framework", default="megatron-core")
    return parser.parse_args()


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


def main():
    """Print the figures."""
    options = arguments()
    training = Training(
        seq_len=options.seq_len, global_batch=options.global_batch, precision=options.precision
    )
    setting = Setting(
        models.get(options.model), clusters.get(options.cluster), training, frameworks.get(options.framework)
    )
    start, processor = time.perf_counter(), time.process_time()
    result = search(setting, options.gpus)
    elapsed, processor = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{options.model}, {options.gpus} devices of {options.cluster}")
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


if __name__ == "__main__":
    main()
