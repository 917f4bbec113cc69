"""How long one prediction takes: the step time of a plan with its breakdown, and its memory.

The best of some repeats in CPU time of one core; the setting (model, cluster, framework) is loaded before. A
setting prices the layers of a plan once: the first prediction of a plan with other layers takes longer.

python -m benchmarks.prediction
"""

from __future__ import annotations

import time
from dataclasses import replace

from evidence.command import command
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


def seconds(setting: Setting, plan: Plan) -> tuple[float, float]:
    """CPU time of one step time with its breakdown, and of that with the memory, s."""
    start = time.process_time()
    plans = Plans.of([plan])
    step = predict(setting, plans)
    timed = time.process_time()
    memory(setting, plans, step.stages, step.parameters)
    return timed - start, time.process_time() - start


def milliseconds(model: str, plan: Plan) -> tuple[float, float, float]:
    """Least CPU time of one step time, of that with the memory, and of the first step time, ms."""
    cluster = clusters.get("dgx-h100").resized(plan.devices)
    training = Training(seq_len=4096, global_batch=512)
    setting = Setting(models.get(model), cluster, training, frameworks.get("megatron-core"))
    other, times, firsts = plan.model_copy(update={"micro_batch": 2}), [], []
    for _ in range(REPEATS):
        fresh = replace(setting)
        predict(fresh, Plans.of([other]))
        firsts.append(seconds(fresh, plan)[0])
        times.append(seconds(fresh, plan))
    step_time, both = (1e3 * min(column) for column in zip(*times, strict=True))
    return step_time, both, 1e3 * min(firsts)


@command
def main() -> None:
    """Print a line a model."""
    for model, plan in CASES.items():
        step, both, first = milliseconds(model, plan)
        print(
            f"{model:<14} one prediction {step:5.2f} ms, with memory {both:5.2f} ms, "
            f"the first of its layers {first:5.2f} ms ({plan.describe()})"
        )
