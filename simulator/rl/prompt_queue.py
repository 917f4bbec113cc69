"""Prompts in flight, a bounded queue of finished ones, and a trainer that takes them: steps under staleness.

Running answers get one token a step of the engine, on equal replicas that share them evenly. A prompt is done
with its longest answer; the trainer takes prompts in the order in which they are done. Of a version of the
weights no more prompts start than a step and its staleness allow, those that were left from the version
before counted in. Source: verl 0062357f, recipe/fully_async_policy/fully_async_rollouter.py.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from core.records import record

WARM = 2
"""Steps before those that are counted."""
COUNTED = 3
"""Steps whose mean is taken."""


@record()
class PromptQueue:
    """Rollouts whose prompts go to the trainer as they are done.

    Attributes:
        lengths: tokens of the answers of each prompt, in the order in which prompts start; after the last
            the first follows.
        engine_step_s: seconds of an engine's step by answers that run on a replica.
        replicas: of the engine.
        in_flight: prompts that all replicas answer at once.
        prompt_s: seconds that a prompt's own tokens add to its replica.
        resume_s: seconds in which a replica computes the KV of a running answer again.
        prompts: of a step.
        busy_s: of a step's rollouts on busy replicas, with these seconds of steps.
    """

    lengths: NDArray[np.int64]
    engine_step_s: NDArray[np.float64]
    replicas: int
    in_flight: int
    prompt_s: float
    resume_s: float
    prompts: int
    busy_s: float

    @property
    def running(self) -> float:
        """Mean answers that run on a replica: a prompt's longest one runs on alone."""
        spread = float(self.lengths.mean() / self.lengths.max(axis=1).mean())
        return self.in_flight / self.replicas * self.lengths.shape[1] * spread

    def step_seconds(
        self,
        trainer_s: float,
        weights_s: float,
        busy_s: float,
        staleness: float,
        pulls: float,
        running: str,
    ) -> float:
        """Mean seconds between two moves of weights in the steady state.

        Args:
            trainer_s: of the trainer's work of a step.
            weights_s: of a move, in which neither role works.
            busy_s: of a step's rollouts on busy replicas; others than ``self.busy_s`` scale the engine.
            staleness: prompts that may start beyond those of a step, as a share of them.
            pulls: times that the trainer takes prompts in a step.
            running: what running answers do at a move: keep their KV, recompute it, or finish first.
        """
        engine = _Engine(self, busy_s / self.busy_s, running == "recompute")
        trainer = _Trainer(self.prompts, max(math.ceil(pulls), 1), trainer_s)
        most_started = max(int((1.0 + staleness) * self.prompts), self.prompts)
        moves: list[float] = []
        now, draining = 0.0, False
        while len(moves) < WARM + COUNTED:
            while not draining and engine.started < most_started and len(engine.left) < self.in_flight:
                engine.start(now)
            if not draining:
                trainer.take(now, engine.done)
            if draining and (running != "finish" or not engine.left):
                draining = False
                now += weights_s
                moves.append(now)
                engine.renew(now)
                continue
            ends = engine.next_end(now)
            if ends <= trainer.until:
                engine.end()
                now = ends
            else:
                engine.advance(now, trainer.until)
                now = trainer.until
                draining = trainer.finish()
        return (moves[-1] - moves[WARM - 1]) / COUNTED


@dataclass
class _Engine:
    """All replicas. Time runs in steps of the engine, one token of each running answer."""

    queue: PromptQueue
    scale: float
    recomputes: bool
    steps: float = 0.0
    ready: float = 0.0  # Until then replicas compute prompts, or KV again.
    ends: list[tuple[float, int]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    begun: int = 0
    started: int = 0
    done: deque[int] = field(default_factory=deque)

    @property
    def _step_s(self) -> float:
        on_replica = -(-len(self.ends) // self.queue.replicas)
        return self.scale * float(self.queue.engine_step_s[on_replica])

    def start(self, now: float) -> None:
        """Start the answers of the next prompt."""
        answers = self.queue.lengths[self.begun % len(self.queue.lengths)]
        for length in answers.tolist():
            heappush(self.ends, (self.steps + length, self.begun))
        self.left[self.begun] = len(answers)
        self.begun += 1
        self.started += 1
        self.ready = max(self.ready, now) + self.scale * self.queue.prompt_s / self.queue.replicas

    def next_end(self, now: float) -> float:
        """When the next answer ends."""
        if not self.ends:
            return math.inf
        return max(now, self.ready) + (self.ends[0][0] - self.steps) * self._step_s

    def advance(self, now: float, until: float) -> None:
        """Generate until some time, with no end of an answer before it."""
        if self.ends:
            self.steps += max(until - max(now, self.ready), 0.0) / self._step_s

    def end(self) -> None:
        """End the next answer, and its prompt with the last one."""
        self.steps, prompt = heappop(self.ends)
        self.left[prompt] -= 1
        if not self.left[prompt]:
            del self.left[prompt]
            self.done.append(prompt)

    def renew(self, now: float) -> None:
        """Go on with new weights."""
        self.started = len(self.left) + len(self.done)
        again = len(self.ends) / self.queue.replicas * self.queue.resume_s if self.recomputes else 0.0
        self.ready = now + self.scale * again


@dataclass
class _Trainer:
    """Takes an equal part of a step's prompts at a time."""

    prompts: int
    pulls: int
    seconds: float
    taken: int = 0
    until: float = math.inf

    def take(self, now: float, done: deque[int]) -> None:
        """Begin with the next part, if it is there and the trainer is free."""
        part = self.prompts * (self.taken + 1) // self.pulls - self.prompts * self.taken // self.pulls
        if self.until < math.inf or len(done) < part:
            return
        for _ in range(part):
            done.popleft()
        self.until = now + self.seconds / self.pulls

    def finish(self) -> bool:
        """End a part; whether it is the last one of a step."""
        self.until = math.inf
        self.taken = (self.taken + 1) % self.pulls
        return self.taken == 0
