"""GPipe: every forward, then every backward."""

from __future__ import annotations

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    Array,
    PipelineTimes,
    Schedule,
    Task,
    WorkTimes,
    chain,
)


class GPipe(Schedule):
    """All forwards of a step before its first backward (Huang et al., NeurIPS 2019)."""

    name = "gpipe"
    source = "Huang et al., GPipe, NeurIPS 2019, section 2.3"
    has_closed_form = True

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Every micro batch of the step."""
        return m

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Forwards in order, backwards in the same order."""
        self.check(stages, micro_batches, chunks)
        order = [Task(FORWARD, i, 0) for i in range(micro_batches)]
        order += [Task(BACKWARD, i, 0) for i in range(micro_batches)]
        return [order] * stages

    def makespan(self, times: PipelineTimes) -> Array:
        """Two flow shops of equal jobs: one passes all stages, the others the slowest stage. Exact."""
        c = chain(times)
        once, slowest = 2 * c.hop * (c.stages - 1), 0.0
        for ranks in c.rank_times():
            once = once + (c.lengths * ranks).sum(axis=0)
            slowest = slowest + ranks.max(axis=0)
        return once + (c.micro_batches - 1) * slowest
