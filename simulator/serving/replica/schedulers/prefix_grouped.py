"""Offline batches by prefix: requests that share one run together, groups with long outputs first."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.schedulers.ordered import Ordered
from simulator.serving.replica.sequence import Sequence


class PrefixGrouped(Ordered):
    """`Chunked` whose queue is sorted into groups of a common first prefix span.

    Groups come in the order of their output tokens per prompt token, the most first, so that decodes fill
    steps beside later prompts. Output lengths are taken as known, as BatchLLM takes estimates of them.
    """

    name: ClassVar[str] = "prefix-grouped"
    rule: ClassVar[str] = "as chunked, requests of a common prefix together, long outputs first"
    source: ClassVar[str] = "Zheng et al., BatchLLM, arXiv 2412.03594"

    def order(self, waiting: list[Sequence]) -> list[Sequence]:
        """See `Ordered.order`."""
        return grouped(waiting)


def grouped(waiting: list[Sequence]) -> list[Sequence]:
    """Sequences sorted into groups; those without a prefix are groups of their own."""
    outputs: dict[int, int] = {}
    prompts: dict[int, int] = {}
    for sequence in waiting:
        group = _group(sequence)
        outputs[group] = outputs.get(group, 0) + sequence.output
        prompts[group] = prompts.get(group, 0) + sequence.prompt
    return sorted(
        waiting,
        key=lambda sequence: (-outputs[_group(sequence)] / prompts[_group(sequence)], _group(sequence)),
    )


def _group(sequence: Sequence) -> int:
    prefix = sequence.request.prefix
    return prefix[0] if prefix else -1 - sequence.request.serial
