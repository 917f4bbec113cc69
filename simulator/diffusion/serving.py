"""Replicas of a diffusion model under a load: when each prompt's image is ready.

All steps of a model take the same time for one batch, so that a run is arithmetic over batches or steps: no
iteration depends on what a prompt says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from core.records import record
from simulator.diffusion.load import DiffusionLoad
from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.setting import DiffusionSetting

Array = NDArray[np.float64]


@record()
class LoadResult:
    """One run.

    Attributes:
        latencies_s: of each prompt, in order of arrival, shape (prompts,); 0 where an image is shown again.
        span_s: end of the last image.
        busy_s: seconds of all replicas in batches or steps.
        joules: of all devices, idle ones too.
        batch: mean prompts of a batch or step.
    """

    latencies_s: Array
    span_s: float
    busy_s: float
    joules: float
    batch: float

    def share_within(self, seconds: float) -> float:
        """Share of prompts whose image is ready within some seconds."""
        return float(np.mean(self.latencies_s <= seconds))


class BatchTimes:
    """Predicted batches of one to ``workload.batch`` prompts.

    Args:
        setting: of one replica; its batch is the largest.
    """

    def __init__(self, setting: DiffusionSetting) -> None:
        self.largest = setting.workload.batch

        @cache
        def of(prompts: int) -> DiffusionRequest:
            work = setting.workload.model_copy(update={"batch": prompts})
            return predict_request(replace(setting, workload=work))

        self.of = of

    def joules(self, prompts: int) -> float:
        """Energy of a batch, over all devices of the replica."""
        request = self.of(prompts)
        return request.watts * request.times.latency_s


def arrivals_of(load: DiffusionLoad, seed: int) -> list[float]:
    """Times at which prompts arrive, s."""
    return list(islice(load.arrivals.times(np.random.default_rng(seed)), load.requests))


def run_load(setting: DiffusionSetting, load: DiffusionLoad, replicas: int, seed: int) -> LoadResult:
    """Run a load on some replicas.

    Args:
        setting: of one replica; its batch is the most prompts that run together.
        load: arrivals and batching.
        replicas: number of them.
        seed: of the arrivals.

    Raises:
        InfeasibleError: a batch does not fit a device.
        InputError: a layout whose steps no other prompt can join.
    """
    times, arrivals = BatchTimes(setting), arrivals_of(load, seed)
    drawn = np.random.default_rng([seed, 1]).random(len(arrivals)) >= load.similar
    drawn[0] = True
    latencies, last = np.zeros(len(arrivals)), arrivals[-1]
    arrivals = np.array(arrivals)[drawn].tolist()
    times.of(times.largest)  # The largest batch fits, or none runs.
    if load.batching == "steps":
        if setting.layout.pipefusion > 1:
            raise InputError("prompts cannot join a pipeline of patches; allowed: batches", "load.batching")
        ready, busy, joules, batches = _in_steps(setting, times, arrivals, replicas)
    else:
        ready, busy, joules, batches = _in_batches(times, arrivals, replicas)
    latencies[drawn] = np.array(ready) - np.array(arrivals)
    span = max(*ready, last) if load.similar else max(ready)
    idle = setting.cluster.device.idle_watts * setting.devices * max(replicas * span - busy, 0.0)
    return LoadResult(latencies, span, busy, joules + idle, batches)


def _in_batches(
    times: BatchTimes, arrivals: Sequence[float], replicas: int
) -> tuple[list[float], float, float, float]:
    """Whole batches: the replica that is free first takes what waits."""
    free, ready, taken, batches = [0.0] * replicas, [0.0] * len(arrivals), 0, 0
    heapify(free)
    busy = joules = 0.0
    while taken < len(arrivals):
        start = max(heappop(free), arrivals[taken])
        last = taken + 1
        while last < len(arrivals) and last - taken < times.largest and arrivals[last] <= start:
            last += 1
        seconds = times.of(last - taken).times.latency_s
        busy, joules, batches = busy + seconds, joules + times.joules(last - taken), batches + 1
        ready[taken:last] = [start + seconds] * (last - taken)
        heappush(free, start + seconds)
        taken = last
    return ready, busy, joules, len(arrivals) / batches


def _in_steps(
    setting: DiffusionSetting, times: BatchTimes, arrivals: Sequence[float], replicas: int
) -> tuple[list[float], float, float, float]:
    """Equal iterations: prompts are dealt to replicas in turn, and join at the next step."""
    ready = [0.0] * len(arrivals)
    busy = joules = 0.0
    iterations = joined = 0
    steps, alone = max(round(setting.computed_steps), 1), times.of(1)
    ends = alone.times.encoders_s + alone.times.addons_s + alone.times.decoder_s + setting.library.request_s
    for replica in range(replicas):
        waiting = deque(range(replica, len(arrivals), replicas))
        running: dict[int, int] = {}
        now = 0.0
        while waiting or running:
            if not running:
                now = max(now, arrivals[waiting[0]])
            while waiting and len(running) < times.largest and arrivals[waiting[0]] <= now:
                running[waiting.popleft()] = steps
                now, busy, joules = now + ends, busy + ends, joules + ends * alone.watts
            request = times.of(len(running))
            now, busy = now + request.times.step_s, busy + request.times.step_s
            joules += request.times.step_s * request.watts
            iterations, joined = iterations + 1, joined + len(running)
            for prompt in list(running):
                running[prompt] -= 1
                if not running[prompt]:
                    ready[prompt] = now
                    del running[prompt]
    return ready, busy, joules, joined / iterations
