"""Closed form of rollouts: a burst of answers on equal ranks, until the longest one ends.

All answers of a rank get one token a step, so answers end in an order that step times do not change: a rank
with free slots takes the next answer when one ends. The steps between two ends have one number of sequences;
one array call prices those of all ranks. Prompts that a trainer takes as they are done: `prompt_queue.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from simulator.rl.prompt_queue import PromptQueue
from simulator.rl.workload import RlWorkload
from simulator.serving.setting import ServingSetting
from simulator.serving.steps.step_arrays import StepCases
from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]

DRAWS = 4
"""Bursts over which the longest rank is averaged."""
MORE_DRAWS = 16
"""The same beside the event engine, which takes longer than all of them."""
QUEUED, MOST_QUEUED = 8192, 32_768
"""Answers of a step above which a part of the replicas stands for all, and above which even a part takes too
long to play; its drain is short beside the step (`prompt_queue`)."""
SAMPLE = 2048
"""Answers that the tokens of a running one are averaged over."""


def plain_steps(rollouts: ServingSetting) -> IterationTable | None:
    """Step times of an engine that the closed form covers: one pool of plain steps without stages."""
    pool = rollouts.pools[0]
    steps = pool.costs.steps
    covered = len(rollouts.pools) == 1 and pool.pool.pipeline == 1 and type(steps) is IterationTable
    return steps if covered and isinstance(steps, IterationTable) else None


def rollout_seconds(
    rollouts: ServingSetting, steps: IterationTable, workload: RlWorkload, seed: int = 0, draws: int = DRAWS
) -> float:
    """Seconds from the first prompt to the last token of the longest answer, mean over drawn bursts.

    Args:
        rollouts: the engine on its devices, with the burst of some steps.
        steps: of ``plain_steps``.
        workload: prompts and lengths of answers.
        seed: of the drawn lengths.
        draws: bursts.
    """
    return float(_drawn(rollouts, steps, workload, seed, draws).max(axis=1).mean())


def added_seconds(
    rollouts: tuple[ServingSetting, ServingSetting], steps: IterationTable, workload: RlWorkload, draws: int
) -> float:
    """Seconds that answers of one more step add to ranks that never wait: the mean of all ranks.

    Ranks with more tokens than others in one step have fewer in another one.

    Args:
        rollouts: the engine with the burst of a step, and of two.
        steps, workload, draws: as ``rollout_seconds``.
    """
    first_s, both_s = (float(_drawn(each, steps, workload, 0, draws).mean()) for each in rollouts)
    return both_s - first_s


def _drawn(
    rollouts: ServingSetting, steps: IterationTable, workload: RlWorkload, seed: int, draws: int
) -> Array:
    """Seconds of every rank with answers, in drawn bursts; shape (draws, ranks)."""
    pool, random = rollouts.pools[0], np.random.default_rng(seed)
    ranks, answers = pool.pool.replicas * pool.pool.data, int(rollouts.serving.requests)
    each = [count for rank in range(ranks) if (count := (answers + rank) // ranks)]
    outputs = [workload.output.draw(random, count) for _ in range(draws) for count in each]
    return _rank_seconds(rollouts, steps, workload, outputs).reshape(draws, len(each))


def engine_over_closed(
    rollouts: ServingSetting, steps: IterationTable, workload: RlWorkload, served: Mapping[str, Array]
) -> float:
    """Seconds of a burst that the event engine served over the closed form's, of the same answers and ranks.

    Both have the noise of the drawn lengths (some 5 %), so it cancels; what remains is what the closed form
    leaves out (recomputed answers of a full KV memory). Ranks of data-parallel replicas are not recorded:
    there the closed form is that of other bursts.

    Args:
        rollouts: the engine on its devices.
        steps: of ``plain_steps``.
        workload: prompts and lengths of answers.
        served: columns of the engine's records.
    """
    seconds = float(served["last_s"].max())
    if rollouts.pools[0].pool.data > 1:
        return seconds / rollout_seconds(rollouts, steps, workload, draws=MORE_DRAWS)
    order = np.lexsort((served["serial"], served["replica"]))
    ranks = np.flatnonzero(np.diff(served["replica"][order])) + 1
    answers = np.split(served["output"][order].astype(np.int64), ranks)
    return seconds / float(_rank_seconds(rollouts, steps, workload, answers).max())


def _rank_seconds(
    rollouts: ServingSetting, steps: IterationTable, workload: RlWorkload, outputs: list[NDArray[np.int64]]
) -> Array:
    """Seconds of ranks with some answers each, in the order in which they start; shape (ranks,)."""
    parts = [_intervals(lengths, _slots(rollouts, workload, lengths)) for lengths in outputs]
    begins = np.cumsum([0, *(len(part[0]) for part in parts[:-1])])
    intervals, sequences, generated = (np.concatenate(values) for values in zip(*parts, strict=True))
    decodes = intervals * steps.cases.decode_seconds(sequences, workload.input.mean() + generated)
    prompts = {
        count: _prompt_seconds(rollouts, steps.cases, workload, count) for count in set(map(len, outputs))
    }
    return np.add.reduceat(decodes, begins) + [prompts[len(lengths)] for lengths in outputs]


def resume_seconds(
    rollouts: ServingSetting, steps: IterationTable, workload: RlWorkload, most_answers: float = math.inf
) -> float:
    """Seconds in which a rank computes the KV of its running answers again, as after new weights.

    Args:
        rollouts: the engine on its devices.
        steps: of ``plain_steps``.
        workload: prompts and lengths of answers.
        most_answers: answers that run on a rank, where other bounds than those of the engine hold.
    """
    pool, lengths = rollouts.pools[0], workload.output.draw(np.random.default_rng(0), SAMPLE)
    running = _slots(rollouts, workload, lengths)
    answers = int(rollouts.serving.requests) / (pool.pool.replicas * pool.pool.data)
    tokens = min(running, answers, most_answers) * _held(workload, lengths)
    chunk = min(float(pool.options.token_budget), tokens)
    context = _held(workload, lengths)
    each = steps.cases.mixed_seconds(chunk, context / 2, 0.0, 1.0, max(chunk / context, 1.0))
    return float(each) * tokens / chunk


def prompt_queue(
    rollouts: ServingSetting,
    steps: IterationTable,
    workload: RlWorkload,
    most_prompts: int | None,
    busy_s: float,
) -> PromptQueue | None:
    """Rollouts whose prompts go to a trainer as they are done; None: too many answers a replica to play.

    Of many replicas an equal part stands for all, with its part of the prompts.

    Args:
        rollouts: the engine on its devices.
        steps: of ``plain_steps``.
        workload: prompts and lengths of answers.
        most_prompts: prompts that a replica answers at once; None: as many as its KV holds.
        busy_s: of a step's rollouts on busy replicas.
    """
    pool, samples = rollouts.pools[0], workload.samples
    replicas, prompts = pool.pool.replicas * pool.pool.data, math.ceil(workload.prompts * workload.sampled)
    while replicas % 2 == 0 and prompts % 2 == 0 and prompts * samples > QUEUED:
        replicas, prompts = replicas // 2, prompts // 2
    if prompts * samples > MOST_QUEUED:
        return None
    lengths = workload.output.draw(np.random.default_rng(0), DRAWS * prompts * samples)
    of_prompts = lengths.reshape(-1, samples)
    spread = float(of_prompts.max(axis=1).mean() / of_prompts.mean())  # Slots that a prompt leaves empty.
    room = max(int(_slots(rollouts, workload, lengths) * spread / samples), 1)
    on_replica = min(most_prompts or room, room)
    running = np.arange(1.0, on_replica * samples + 2)
    kv_tokens = np.full_like(running, _held(workload, lengths))
    return PromptQueue(
        lengths=of_prompts,
        engine_step_s=np.concatenate([[0.0], steps.cases.decode_seconds(running, kv_tokens)]),
        replicas=replicas,
        in_flight=min(replicas * on_replica, prompts * samples),
        prompt_s=_prompt_seconds(rollouts, steps.cases, workload, samples),
        resume_s=resume_seconds(rollouts, steps, workload, 1.0),
        prompts=prompts,
        busy_s=busy_s,
    )


def _held(workload: RlWorkload, outputs: NDArray[np.int64]) -> float:
    """Tokens of KV that a running answer holds: half of its own, long ones run longer."""
    lengths = outputs.astype(np.float64)
    return workload.input.mean() / workload.samples + float((lengths**2).sum() / lengths.sum()) / 2


def _slots(rollouts: ServingSetting, workload: RlWorkload, outputs: NDArray[np.int64]) -> int:
    """Answers that run together on a rank."""
    pool = rollouts.pools[0]
    room = pool.costs.kv_blocks * pool.options.block_tokens
    return max(min(pool.options.max_sequences, int(room / _held(workload, outputs))), 1)


def _prompt_seconds(rollouts: ServingSetting, cases: StepCases, workload: RlWorkload, answers: int) -> float:
    """Seconds that prompts add to steps: answers to one prompt share it."""
    pool, prompt = rollouts.pools[0], workload.input.mean()
    tokens = answers / workload.samples * prompt
    chunk = min(float(pool.options.token_budget), tokens)
    full = cases.mixed_seconds(chunk, 0.0, 0.0, 1.0, max(chunk / prompt, 1.0))
    return float(full) * tokens / chunk


def _intervals(outputs: NDArray[np.int64], slots: int) -> tuple[Array, Array, Array]:
    """Steps between ends of answers, with their sequences and mean generated tokens.

    Args:
        outputs: tokens of each answer, in the order in which they start.
        slots: answers that run together.

    Returns:
        Steps, sequences and mean tokens generated so far, each of shape (intervals,).
    """
    if slots >= len(outputs):
        ends = np.sort(outputs).astype(np.float64)
        begins = np.concatenate([[0.0], ends[:-1]])
        return ends - begins, np.arange(len(ends), 0.0, -1.0), (begins + ends) / 2
    waiting = iter(outputs[slots:].tolist())
    running = sorted((length, 0) for length in outputs[:slots].tolist())
    steps, sequences, generated = [], [], []
    now, begun = 0, 0  # Steps so far, and the sum of the steps at which the running answers began.
    while running:
        end, start = heappop(running)
        count = len(running) + 1
        if end > now:
            steps.append(end - now)
            sequences.append(count)
            generated.append((now + end) / 2 - begun / count)
            now = end
        begun -= start
        if (length := next(waiting, None)) is not None:
            heappush(running, (now + length, now))
            begun += now
    return tuple(np.array(values, dtype=np.float64) for values in (steps, sequences, generated))  # type: ignore[return-value]
