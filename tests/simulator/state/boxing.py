"""Transitions of a tensor between split, broadcast and partial, each as one collective with its bytes.

OneFlow calls them boxing, GSPMD resharding (Yuan et al. 2021, OneFlow, section 3.2 and table 2; Xu et al.
2021, GSPMD, section 3). Levels of a plan are the same transitions: gathered parameters go from split to
broadcast, reduced gradients from partial to split.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Literal, NamedTuple

from hwmodels.collectives.traffic import traffic

Placed = Literal["split rows", "split columns", "broadcast", "partial"]
PLACED: tuple[Placed, ...] = ("split rows", "split columns", "broadcast", "partial")
"""How the ranks of a group hold a tensor: a slice each along one of two axes, the whole each, or terms of a
sum."""


class Boxing(NamedTuple):
    """One transition.

    Attributes:
        before, after: how the ranks hold the tensor.
        operation: its collective, as for ``Cluster.collective``; empty: every rank has what it needs.
        sliced: whether the buffer of a rank is its slice of the tensor, or all of it.
    """

    before: Placed
    after: Placed
    operation: str
    sliced: bool = False

    def buffer(self, size: float, ranks: int) -> float:
        """Bytes of the full buffer of each rank, for a tensor of ``size`` bytes."""
        return size / ranks if self.sliced else size

    def sent(self, size: float, ranks: int) -> float:
        """Bytes that each of ``ranks`` ranks sends, for a tensor of ``size`` bytes."""
        if not self.operation:
            return 0.0
        return float(traffic(self.operation, self.buffer(size, ranks), ranks, 1, ()).sum())


def boxing(before: Placed, after: Placed) -> Boxing:
    """The transition between two ways to hold a tensor."""
    split = before.startswith("split"), after.startswith("split")
    if all(split):
        return Boxing(before, after, "" if before == after else "all_to_all", sliced=True)
    operations = {
        (True, "broadcast"): "all_gather",
        (False, "partial"): "",
        ("partial", "broadcast"): "all_reduce",
        ("partial", True): "reduce_scatter",
    }
    keys = (split[0], after), (before, after), (before, split[1])
    return Boxing(before, after, next((operations[key] for key in keys if key in operations), ""))


def boxings() -> Iterator[Boxing]:
    """The twelve transitions that change something."""
    return (boxing(before, after) for before, after in permutations(PLACED, 2))


FORMULAS = {"all_to_all": "(p - 1) / p²", "all_gather": "(p - 1) / p", "reduce_scatter": "(p - 1) / p"}
EXAMPLES = {
    "all_to_all": "Ulysses: heads for sequence",
    "all_gather": "parameters of ZeRO-3; inputs of sequence parallelism",
    "reduce_scatter": "gradients from ZeRO-2 on; outputs of sequence parallelism",
    "all_reduce": "gradients of plain data parallelism; outputs of tensor parallelism",
    "": "a slice, or zeros elsewhere",
}


def boxing_table() -> Iterator[str]:
    """Lines of the table of docs/sync.md, in Markdown."""
    yield "| before | after | collective | bytes sent by a rank, over those of the tensor | example |"
    yield "|---|---|---|---|---|"
    for each in boxings():
        name = each.operation.replace("_", "-") or "none"
        formula = FORMULAS.get(each.operation, "2 (p - 1) / p" if each.operation else "0")
        yield f"| {each.before} | {each.after} | {name} | {formula} | {EXAMPLES[each.operation]} |"
