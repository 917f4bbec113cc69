"""How long one prediction takes: the step time of a plan with its breakdown, and its memory.

The best of some repeats in CPU time of one core; the setting (model, cluster, framework) is loaded before.

python -m benchmarks.prediction
"""

from __future__ import annotations

import time

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory
from simulator.workload import Training

REPEATS = 50

CASES = {
    "llama3-70b": Plan(tensor=8, pipeline=4, data=2, sequence_parallel=True, micro_batch=1, zero=1),
    "deepseek-v3": Plan(pipeline=8, data=32, expert=32, micro_batch=1, zero=1),
}
"""Plans on 64 and 256 H100s, by model."""


def milliseconds(model: str, plan: Plan) -> tuple[float, float]:
    """CPU time of one step time with its breakdown, and of that with the memory, ms."""
    cluster = clusters.get("dgx-h100").resized(plan.devices)
    training = Training(seq_len=4096, global_batch=512)
    setting = Setting(models.get(model), cluster, training, frameworks.get("megatron-core"))
    times_ms = []
    for _ in range(REPEATS):
        start = time.process_time()
        plans = Plans.of([plan])
        step = predict(setting, plans)
        timed = time.process_time()
        memory(setting, plans, step.stages, step.parameters)
        times_ms.append((timed - start, time.process_time() - start))
    step_time, both = (1e3 * min(column) for column in zip(*times_ms, strict=True))
    return step_time, both


def main() -> None:
    """Print a line a model."""
    for model, plan in CASES.items():
        step, both = milliseconds(model, plan)
        print(f"{model:<14} one prediction {step:5.2f} ms, with memory {both:5.2f} ms ({plan.describe()})")


if __name__ == "__main__":
    main()
