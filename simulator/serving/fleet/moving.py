"""Moves of running sequences between the replicas of a pool, in stages over shared links.

A live move copies the KV while the sequence decodes: each stage copies what the one before left and what was
decoded meanwhile. When little is left the sequence stops, the rest is copied, and it goes on elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member
from simulator.serving.replica.sequence import Sequence
from simulator.serving.routers.migration import Loan, Migration, Move
from simulator.serving.setting import PoolSetting


@dataclass
class Moved:
    """What the moves of a run did."""

    copied: int = 0
    """Sequences whose KV was copied."""
    recomputed: int = 0
    """Sequences whose KV was computed again on the other replica."""
    dropped: int = 0
    """Moves given up: the sequence ended first, or a replica failed."""
    bytes: float = 0.0
    lent: int = 0
    """Blocks that changed hands without a sequence."""
    stops_s: list[float] = field(default_factory=list)
    """Seconds for which each sequence stood still, without the wait for its next step."""
    lanes: list[tuple[int, float, float, int]] = field(default_factory=list)
    """Source, begin and seconds of every copy, and its tokens."""


class Hosted:
    """A replica as a migration policy sees it; a look leaves its running stretch as it is.

    Args:
        member: advanced to the time of the look.
        opened: whether it takes requests.
        moving: sequences on their way, by identity.
        now: time of the look, s.
    """

    def __init__(self, member: Member, opened: bool, moving: set[int], now: float) -> None:
        self.member, self.open, self._moving = member, opened, moving
        self.index, self.load, self.queue = member.index, member.load, member.queue
        self._steps = steps = member.replica.uncounted(now)
        taken = sum(batcher.growth(steps) for batcher in member.replica.batchers) if steps else 0
        self.free = member.free_blocks - taken
        batcher = member.replica.batchers[0]
        self.unused, self.borrowed = batcher.kv.free - taken, batcher.kv.total - member.pool.costs.kv_blocks
        self.head = batcher.kv.blocks(batcher.waiting[0].target) + 1 if batcher.waiting else 0

    def blocks(self, sequence: Sequence) -> int:
        """See `MovingHost.blocks`."""
        tokens = held_tokens(self.member, sequence) + self._steps
        return self.member.replica.batchers[0].kv.blocks(tokens)

    @cached_property
    def _movable(self) -> list[Sequence]:
        return [
            sequence
            for batcher in self.member.replica.batchers
            for sequence in batcher.sequences()
            if sequence.end_step > batcher.steps
            and sequence.first_s == sequence.first_s
            and id(sequence) not in self._moving
        ]

    def movable(self) -> list[Sequence]:
        """See `MovingHost.movable`."""
        return self._movable


def held_tokens(member: Member, sequence: Sequence) -> int:
    """KV tokens of a sequence that decodes, as of the last settled step."""
    for batcher in member.replica.batchers:
        if sequence.end_step > batcher.steps and sequence in batcher.admitted:
            return sequence.join_kv + batcher.steps - sequence.join_step
    return sequence.loaded


class Moving:
    """Asks the policy of a run, and carries its moves out.

    Args:
        fleet: the run.
        policy: which sequence goes where.
    """

    def __init__(self, fleet: Fleet, policy: Migration) -> None:
        self._fleet, self._policy = fleet, policy
        self._moving: set[int] = set()
        self._busy: set[int] = set()
        """Replicas that take part in a move."""
        self.counts = Moved()

    def run(self, pool: PoolSetting) -> Generator[Any, Any, Any]:
        """Ask the policy every interval until all requests have ended."""
        fleet, clock = self._fleet, self._fleet.clock
        while not fleet.ended:
            yield clock.timeout(self._policy.interval)
            hosts = list(self._hosts(pool, clock.now))
            if any(host.load for host in hosts):
                for move in self._policy.moves(hosts):
                    clock.process(self._move(move))
                for loan in self._policy.loans(hosts):
                    self._lend(loan, clock.now)

    def _hosts(self, pool: PoolSetting, now: float) -> Generator[Hosted, None, None]:
        takers = self._fleet.takers(pool)
        for member in self._fleet.members:
            if member.pool is not pool or not member.up or member.index in self._busy:
                continue
            opened = member in takers
            if not opened and not member.load:
                continue
            member.replica.advance(now)
            self._fleet.touch(member)
            yield Hosted(member, opened, self._moving, now)

    def _settle(self, member: Member, now: float) -> None:
        member.replica.advance(now)
        # A stretch that ran on to a request's time is not cut before it.
        if now >= member.advanced_s:
            member.replica.settle(now)
        self._fleet.touch(member)

    def _lend(self, loan: Loan, now: float) -> None:
        """Let a replica use free blocks of another; its attention over them runs there."""
        source, target = (self._fleet.members[index] for index in (loan.source, loan.target))
        for member, sign in ((source, -1), (target, 1)):
            self._settle(member, now)
            kv = member.replica.batchers[0].kv
            kv.total += sign * loan.blocks
            kv.free += sign * loan.blocks
            self._fleet.touch(member)
        self.counts.lent += loan.blocks
        target.replica.wake(now)
        self._fleet.touch(target)

    def _move(self, move: Move) -> Generator[Any, Any, Any]:
        """Carry a move out; its replicas take part in no other meanwhile."""
        source, target = (self._fleet.members[index] for index in (move.source, move.target))
        self._moving.add(id(move.sequence))
        self._busy |= {source.index, target.index}
        failures = source.failures, target.failures
        live = not self._recomputes(source, target, move.sequence)
        copied: int | None = 0
        if live:
            copied = yield from self._copies(source, target, move.sequence, failures)
        if copied is not None:
            yield from self._stop(source, target, move.sequence, failures, copied if live else None)
        else:
            self.counts.dropped += 1
        self._moving.discard(id(move.sequence))
        self._busy -= {source.index, target.index}

    def _recomputes(self, source: Member, target: Member, sequence: Sequence) -> bool:
        """Whether the KV is computed again on the other replica."""
        how = self._policy.how
        if how == "recompute":
            return True
        if how == "live":
            return False
        tokens = held_tokens(source, sequence)
        last = self._policy.last_blocks * source.pool.options.block_tokens
        route = self._route(source, target)
        copying = min(tokens, last) * source.pool.costs.kv_token_bytes / min(lane.rate for lane in route)
        computing = target.pool.costs.steps.step(((max(tokens, 1), 0),), 0, 0)
        return computing < copying + self._policy.handshake

    def _route(self, source: Member, target: Member) -> Any:
        sides = ((member.pool.cluster, member.rank, member.pool.pool.devices) for member in (source, target))
        return self._fleet.lanes.between(*sides)

    def _copies(
        self, source: Member, target: Member, sequence: Sequence, failures: tuple[int, int]
    ) -> Generator[Any, Any, int | None]:
        """Copy in stages while the sequence decodes; returns the tokens copied, None where it has left or a
        replica has failed."""
        policy, clock = self._policy, self._fleet.clock
        last = policy.last_blocks * source.pool.options.block_tokens
        copied = 0
        for _ in range(policy.stages):
            self._settle(source, clock.now)
            tokens = held_tokens(source, sequence)
            if (source.failures, target.failures) != failures or sequence.end_step < 0:
                return None
            if tokens - copied <= last:
                break
            yield from self._send(source, target, tokens - copied)
            copied = tokens
        return copied

    def _send(self, source: Member, target: Member, tokens: int) -> Generator[Any, Any, Any]:
        """Copy tokens' KV; ends when the links, shared with others, have carried it."""
        clock, links = self._fleet.clock, self._fleet.lanes.links
        bytes_, begin = tokens * source.pool.costs.kv_token_bytes, clock.now
        flow, end = links.send(begin, bytes_, self._route(source, target))
        self.counts.bytes += bytes_
        while end > clock.now:
            yield clock.timeout(end - clock.now)
            links.run(clock.now)
            if flow.left <= 1e-6 * bytes_:
                break
            end = links.end(flow)
        self.counts.lanes.append((source.index, begin, clock.now - begin, tokens))

    def _stop(
        self,
        source: Member,
        target: Member,
        sequence: Sequence,
        failures: tuple[int, int],
        copied: int | None,
    ) -> Generator[Any, Any, Any]:
        """Stop a sequence, copy the tokens behind ``copied`` (None: compute all), and go on elsewhere."""
        fleet, clock = self._fleet, self._fleet.clock
        evicted = None
        if (source.failures, target.failures) == failures:
            source.replica.advance(clock.now)
            evicted = source.replica.evict(sequence, clock.now)
            fleet.touch(source)
        if evicted is None:
            self.counts.dropped += 1
            return
        stopped = max(evicted.ready_s, clock.now)
        yield clock.timeout(stopped - clock.now)
        computing = 0.0
        if copied is None or not evicted.tokens:
            sequence.loaded = 0
            self.counts.recomputed += 1
            computing = target.pool.costs.steps.step(((sequence.target, 0),), 0, 0)
        else:
            self.counts.copied += 1
            if evicted.tokens > copied:
                yield from self._send(source, target, evicted.tokens - copied)
        yield clock.timeout(self._policy.handshake)
        self.counts.stops_s.append(clock.now - stopped + computing)
        fleet.arrive(target, failures[1], sequence, clock.now)
