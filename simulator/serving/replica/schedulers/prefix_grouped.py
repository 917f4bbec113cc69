"""Offline batches by prefix: requests that share one run together, groups with long outputs first."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PrivateAttr

from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.schedulers.chunked import Chunked
from simulator.serving.replica.sequence import Sequence


class PrefixGrouped(Chunked):
    """`Chunked` whose queue is sorted into groups of a common first prefix span.

    Groups come in the order of their output tokens per prompt token, the most first, so that decodes fill
    steps beside later prompts. Output lengths are taken as known, as BatchLLM takes estimates of them.
    """

    name: ClassVar[str] = "prefix-grouped"
    rule: ClassVar[str] = "as chunked, requests of a common prefix together, long outputs first"
    source: ClassVar[str] = "Zheng et al., BatchLLM, arXiv 2412.03594"
    _sorted: dict[int, int] = PrivateAttr(default_factory=dict)
    """Queue length of each rank when it was last sorted."""

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting, key = batcher.waiting, id(batcher.waiting)
        if len(waiting) > max(self._sorted.get(key, 0), 1):
            ordered = grouped(list(waiting))
            waiting.clear()
            waiting.extend(ordered)
        super().fill(batcher, step, now)
        self._sorted[key] = len(waiting)

    def waits(self, batcher: Batcher) -> bool:
        """Any arrival may come to the head of the queue."""
        return False


def grouped(waiting: list[Sequence]) -> list[Sequence]:
    """Sequences sorted into groups; those without a prefix are groups of their own."""
    outputs: dict[int, int] = {}
    prompts: dict[int, int] = {}
    for one in waiting:
        group = _group(one)
        outputs[group] = outputs.get(group, 0) + one.output
        prompts[group] = prompts.get(group, 0) + one.prompt
    return sorted(waiting, key=lambda one: (-outputs[_group(one)] / prompts[_group(one)], _group(one)))


def _group(sequence: Sequence) -> int:
    prefix = sequence.request.prefix
    return prefix[0] if prefix else -1 - sequence.request.serial
