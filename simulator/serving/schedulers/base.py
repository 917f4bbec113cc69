"""Interface of schedulers: fill the next step of a rank, from running and waiting sequences."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from hwmodels.loading import Strict

if TYPE_CHECKING:
    from simulator.serving.batcher import Batcher, PlannedStep


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

    def waits(self, batcher: Batcher) -> bool:
        """Whether a new arrival changes nothing before a running sequence leaves.

        True lets a stretch of decode steps run on through arrivals.
        """
        return bool(batcher.waiting) or batcher.running >= batcher.slots
