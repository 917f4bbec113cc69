"""Interface of schedulers: fill the next step of a rank, from running and waiting sequences."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from core.loading import Strict
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep


class Scheduler(Strict):
    """One policy. Its fields are its parameters (`scheduler_options`).

    Attributes:
        name: name in options.
        rule: description for people.
        source: publication.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]

    @abstractmethod
    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """Put decodes and prompt chunks into a step, admit waiting sequences, preempt running ones."""

    def plan(self, batcher: Batcher, now: float) -> PlannedStep | None:
        """The next step of a rank; None without sequences to run.

        ``fill`` is asked where sequences wait or prompts are partly computed; else all decodes run.
        """
        if batcher.waiting or batcher.prefilling:
            step = PlannedStep()
            self.fill(batcher, step, now)
        elif batcher.decodes:
            step = PlannedStep()
            batcher.decode(step)
        else:
            return None
        while step.preempted and not (step.decodes or step.chunks):
            # All sequences of the step were preempted; their blocks are free now.
            copied = step.copied
            step = PlannedStep()
            step.copied = copied
            self.fill(batcher, step, now)
        return step if step.decodes or step.chunks or step.leaving else None

    def waits(self, batcher: Batcher) -> bool:
        """Whether a new arrival changes nothing before a running sequence leaves.

        True lets a stretch of decode steps run on through arrivals.
        """
        return bool(batcher.waiting) or batcher.running >= batcher.slots
