"""Tenants in fair shares: the one that has been served least for its weight comes first."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.sequence import Sequence


class _Served:
    """Service of the tenants of one rank: weighted tokens, and what running sequences have had of it."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.tokens: dict[int, float] = {}
        self.queued: set[int] = set()
        """Tenants that had sequences in the queue at the last fill."""
        self.last = 0
        """Tenant of the last admission."""
        self.outputs: dict[int, tuple[Sequence, int]] = {}
        """Admitted sequences by serial, and the output tokens that are counted."""


class Fair(Scheduler):
    """`Chunked` whose next sequence is the oldest of the tenant with the least service over its weight.

    The priorities of requests number the tenants. Service counts prompt tokens at admission and output tokens
    as they come. A tenant that returns to the queue starts no lower than those in it, so that idle time saves
    nothing up. Two tenants that always wait differ by at most twice what a sequence, or all KV, can hold.
    ``most_running`` is admission control: a tenant's further sequences wait, though slots be free.
    """

    name: ClassVar[str] = "fair"
    rule: ClassVar[str] = "as chunked, the tenant served least for its weight comes first"
    source: ClassVar[str] = "Sheng et al., Fairness in Serving LLMs (VTC), OSDI 2024, arXiv 2401.00588"
    weights: list[Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default_factory=list, max_length=64, description="fair share of each tenant; default: all equal"
    )
    most_running: list[Annotated[int, Field(ge=1, le=2**20)]] = Field(
        default_factory=list, max_length=64, description="sequences of each tenant in a rank's slots"
    )
    output_cost: float = Field(2.0, ge=0, le=1e3, description="prompt tokens that an output token counts as")

    @cached_property
    def _ranks(self) -> dict[int, _Served]:
        return {}

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        served = self._ranks.setdefault(id(batcher), _Served(batcher))
        self._count_outputs(batcher, served)
        batcher.decode(step)
        tokens = batcher.left(step)
        if batcher.prefilling:
            go_on(batcher, step, tokens)
        if batcher.waiting and not step.preempted:
            self._admit(batcher, step, served, now)
        served.queued = {sequence.priority for sequence in batcher.waiting}
        more_tenants = len(served.queued) > 1 and batcher.running < batcher.slots
        if more_tenants and (step.decodes or step.chunks):
            # Service moves on while blocks are short: another tenant's sequence may fit next. An empty
            # step that says so would be filled again without end.
            step.preempted = True

    def waits(self, batcher: Batcher) -> bool:
        """Another tenant's arrival may be admitted while one's sequences wait."""
        return batcher.running >= batcher.slots

    def _admit(self, batcher: Batcher, step: PlannedStep, served: _Served, now: float) -> None:
        """Admit the oldest sequence of the tenant to come until one finds no room."""
        waiting, running = batcher.waiting, self._running(batcher)
        self._lift(served, {sequence.priority for sequence in waiting})
        while waiting and batcher.running < batcher.slots:
            oldest: dict[int, Sequence] = {}
            for sequence in waiting:
                tenant = sequence.priority
                if running.get(tenant, 0) < self._most(tenant):
                    oldest.setdefault(tenant, sequence)
            if not oldest:
                return
            tenant = min(oldest, key=lambda number: (served.tokens[number], number))
            head, rest = oldest[tenant], [sequence for sequence in waiting if sequence is not oldest[tenant]]
            waiting.clear()
            waiting.append(head)
            admit(batcher, step, batcher.left(step) - step.prompt, now, not batcher.chunks_prompts)
            is_admitted = not waiting
            waiting.extend(rest)
            if not is_admitted:
                return
            served.last = tenant
            running[tenant] = running.get(tenant, 0) + 1
            if head.request.serial not in served.outputs:
                served.tokens[tenant] += head.prompt / self._weight(tenant)
                served.outputs[head.request.serial] = head, 0

    @staticmethod
    def _lift(served: _Served, queued: set[int]) -> None:
        """Bring tenants that return to the queue up to those in it, or to the last that was served."""
        tokens = served.tokens
        there = [tokens[tenant] for tenant in served.queued & queued]
        floor = min(there) if there else tokens.get(served.last, 0.0)
        for tenant in queued - served.queued:
            tokens[tenant] = max(tokens.get(tenant, 0.0), floor)

    def _count_outputs(self, batcher: Batcher, served: _Served) -> None:
        """Add the output tokens since the last fill to their tenants' service."""
        for serial, (sequence, counted) in list(served.outputs.items()):
            generated = sequence.generated
            if sequence.end_step > batcher.steps:
                pace = 1.0 if batcher.drafts is None else batcher.drafts.pace
                generated += int((batcher.steps - sequence.join_step) * pace)
            elif sequence.end_step >= 0:
                generated = sequence.output
            generated = max(min(generated, sequence.output), counted)
            tenant = sequence.priority
            served.tokens[tenant] += (generated - counted) * self.output_cost / self._weight(tenant)
            if generated == sequence.output:
                del served.outputs[serial]
            else:
                served.outputs[serial] = sequence, generated

    @staticmethod
    def _running(batcher: Batcher) -> dict[int, int]:
        """Sequences in slots by tenant."""
        running: dict[int, int] = {}
        for sequence in batcher.sequences():
            running[sequence.priority] = running.get(sequence.priority, 0) + 1
        return running

    def _weight(self, tenant: int) -> float:
        return self.weights[tenant] if tenant < len(self.weights) else 1.0

    def _most(self, tenant: int) -> float:
        return self.most_running[tenant] if tenant < len(self.most_running) else float("inf")
