"""Routes of pipelines that run both ways at once; every rank holds two replicas' worth of chunks."""

from __future__ import annotations

from simulator.schedules.base import Route, Schedule, vee_route


def both_ways(route: Route, stages: int, chunks: int) -> tuple[Route, Route]:
    """A route and its mirror image, in which rank r plays rank p - 1 - r with the next chunks."""
    mirror = tuple((stages - 1 - rank, chunk + chunks // 2) for rank, chunk in route)
    return route, mirror


class Bidirectional(Schedule):
    """Micro batches go down and up the ranks in turn; half the chunks of a rank belong to each direction."""

    copies = 2

    def routes(self, stages: int, chunks: int) -> tuple[Route, ...]:
        """One route from each end."""
        return both_ways(vee_route(stages, chunks // 2), stages, chunks)

    def route_index(self, micro_batch: int, micro_batches: int) -> int:
        """Even micro batches go down, odd ones up."""
        return micro_batch % 2
