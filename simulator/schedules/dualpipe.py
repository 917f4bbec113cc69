"""DualPipe: both directions at once, forwards of one overlapped with backwards of the other."""

from __future__ import annotations

from collections import deque

from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT, Array, Task, WorkTimes
from simulator.schedules.bidirectional import Bidirectional


class DualPipe(Bidirectional):
    """DeepSeek-V3's schedule: two replicas of the parameters, eight phases on every rank."""

    name = "dualpipe"
    rule = (
        "an even number of stages, two chunks per rank (one per direction) and an even number of micro "
        "batches, at least twice the stages"
    )
    source = "DeepSeek-V3 technical report (arXiv 2412.19437), section 3.2.1; github.com/deepseek-ai/DualPipe"
    splits_backward = True
    overlaps_passes = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """An even number of stages, one chunk per direction, two micro batches per stage."""
        return (p >= 2) & (p % 2 == 0) & (m >= 2 * p) & (m % 2 == 0) & (v == 2)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """p + 1 micro batches (section 3.2.1, table 2)."""
        return p + 1

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The eight phases; direction 0 starts at the end of the pipeline that is nearer to the rank."""
        self.check(stages, micro_batches, chunks)
        return [_rank_order(stages, micro_batches, rank) for rank in range(stages)]


class _Order:
    """One rank's order; direction 0 is the one that starts at the rank's own end of the pipeline."""

    def __init__(self, flip: int) -> None:
        self.flip = flip
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.stored: deque[Task] = deque()
        self.tasks: list[Task] = []

    def forward(self, direction: int) -> None:
        chunk = direction ^ self.flip
        self.tasks.append(Task(FORWARD, 2 * self.forwards[chunk] + chunk, chunk))
        self.forwards[chunk] += 1

    def backward(self, direction: int, store: bool = False) -> None:
        """An input gradient, its weight gradient at once or stored for later."""
        chunk = direction ^ self.flip
        micro_batch = 2 * self.backwards[chunk] + chunk
        self.backwards[chunk] += 1
        self.tasks.append(Task(BACKWARD, micro_batch, chunk))
        if store:
            self.stored.append(Task(WEIGHT, micro_batch, chunk))
        else:
            self.tasks.append(Task(WEIGHT, micro_batch, chunk))

    def weight(self) -> None:
        self.tasks.append(self.stored.popleft())


def _rank_order(stages: int, micro_batches: int, rank: int) -> list[Task]:
    half = stages // 2
    inner = min(rank, stages - 1 - rank)
    outer = half - inner - 1
    order = _Order(flip=int(rank >= half))
    for _ in range(2 * outer):
        order.forward(0)
    for _ in range(inner + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(outer):
        order.backward(1, store=True)
        order.weight()
        order.forward(1)
    for _ in range(micro_batches // 2 - stages + inner + 1):
        order.forward(0)
        order.backward(1)
        order.forward(1)
        order.backward(0)
    for _ in range(outer):
        order.backward(1)
        order.forward(1)
        order.backward(0)
    store = False
    for i in range(inner + 1):
        store = store or (i == (inner + 1) // 2 and inner % 2 == 1)
        order.backward(1, store)
        store = store or (i == (inner + 1) // 2 and inner % 2 == 0)
        order.backward(0, store)
    for _ in range(outer):
        order.weight()
        order.backward(0, store=True)
    while order.stored:
        order.weight()
    return order.tasks
