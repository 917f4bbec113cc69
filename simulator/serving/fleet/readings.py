"""What routers read of a fleet's replicas, kept up to date as their states change.

A read costs the replicas that have changed since the last one, and operations on arrays of all replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from simulator.serving.fleet.member import Member
from simulator.serving.replica.kv import PrefixBlocks
from simulator.serving.routers.base import Column, Targets
from simulator.serving.routers.record import SentPrefixes
from simulator.serving.state.owners import Owners
from simulator.serving.steps.decode_rows import DecodeRows
from simulator.serving.steps.table import IterationTable
from simulator.serving.workload.request import Request

OF_QUEUES = frozenset(("queue", "queued_s", "queued_output"))
"""Properties of a replica that are 0 where no sequence waits."""


class Readings(Targets):
    """`Targets` whose arrays are kept, where there are many.

    The fleet adds the index of a replica to ``changed`` when its state may have changed; a replica that
    fails, leaves or joins needs new readings.

    Args:
        members: replicas, in the order of the arrays.
        record: of the router.
    """

    members: list[Member]

    def __init__(self, members: Iterable[Member], record: SentPrefixes | None = None) -> None:
        super().__init__(list(members), record)
        self.rows = {member.index: row for row, member in enumerate(self.members)}
        self.changed: set[int] = set()
        self._columns: dict[str, Column] = {}
        self._queued = set(range(len(self.members)))
        """Rows of the replicas with sequences waiting at the last read."""
        self._caches = [(row, kv) for row, member in enumerate(self.members) for kv in member.replica.caches]
        self._alone = all(kv.alone for _, kv in self._caches)
        self._in_blocks = all(type(kv) is PrefixBlocks for _, kv in self._caches)

    def column(self, name: str) -> Column:
        """See `Targets.column`."""
        if self.few:
            return super().column(name)
        if name == "pending" and not self._alone:
            return super().column(name)
        columns = self._columns
        if self.changed:
            self._read(row for index in self.changed if (row := self.rows.get(index)) is not None)
            self.changed.clear()
        if name not in columns:
            columns[name] = super().column(name)
        return columns[name]

    def _read(self, rows: Iterable[int]) -> None:
        """Read the columns of replicas again; those of a queue where sequences wait or waited."""
        members, queued, columns = self.members, self._queued, self._columns.items()
        always = [column for column in columns if column[0] not in OF_QUEUES]
        of_queues = [column for column in columns if column[0] in OF_QUEUES]
        for row in rows:
            member = members[row]
            for name, values in always:
                values[row] = getattr(member, name)
            if of_queues and (member.queue or row in queued):
                for name, values in of_queues:
                    values[row] = getattr(member, name)
                if member.queue:
                    queued.add(row)
                else:
                    queued.discard(row)

    def cached(self, request: Request) -> Column:
        """See `Targets.cached`."""
        if self._in_blocks and not self.few and self._prefixes is not None:
            return self.in_memory(request)
        return super().cached(request)

    @cached_property
    def _prefixes(self) -> tuple[PrefixBlocks, Owners, Column] | None:
        """The first prefix cache, owners of units, and the row of each cache; None where they differ."""
        caches = [(row, kv) for row, kv in self._caches if isinstance(kv, PrefixBlocks)]
        if len(caches) < len(self._caches) or len({kv.unit_tokens for _, kv in caches}) > 1:
            return None
        owners = Owners()
        for _, kv in caches:
            kv.list_units(owners)
        return caches[0][1], owners, np.array([row for row, _ in caches])

    def in_memory(self, request: Request) -> Column:
        """See `Targets.in_memory`."""
        if self.few or self._prefixes is None:
            return super().in_memory(request)
        kv, owners, rows = self._prefixes
        tokens = np.zeros(len(self), np.int64)
        units = kv.units(request)[: (request.prompt - 1) // kv.unit_tokens]
        for count, mask in owners.leading(units):
            tokens[rows[owners.numbers(mask)]] = count * kv.unit_tokens
        return tokens

    @cached_property
    def _decode_rows(self) -> DecodeRows | None:
        """Decode steps of all replicas; None where their step times differ or are no table."""
        pools = {id(member.pool): member.pool for member in self.members}
        steps = next(iter(pools.values())).costs.steps
        if len(pools) > 1 or type(steps) is not IterationTable:
            return None
        fits = self.members[0].pool.options.max_sequences <= steps.max_sequences
        return DecodeRows(steps) if fits else None

    def seconds(self, request: Request) -> tuple[Column, Column]:
        """See `Targets.seconds`."""
        if self.few or self._decode_rows is None:
            return super().seconds(request)
        pool, running = self.members[0].pool, self.column("running")
        slots = pool.options.max_sequences
        batch = np.minimum(running + self.column("queue") + 1, slots)
        token_s = self._decode_rows.seconds(batch, self.column("batch_tokens") + request.prompt)
        full_s = token_s * self.column("queued_output") / slots
        waits = np.where(running >= slots, self.column("queued_s") + full_s, self.column("queued_s"))
        prompt_s = pool.costs.steps.step(((request.prompt, 0),), 0, 0)
        return waits, prompt_s + request.output * token_s

    @cached_property
    def _adapters(self) -> tuple[Owners, Column] | None:
        """Owners of adapters, and the row of each store; None where requests have none."""
        stores = [(row, member.adapters) for row, member in enumerate(self.members) if member.adapters]
        if len(stores) < len(self):
            return None
        owners = Owners()
        for _, store in stores:
            store.list_adapters(owners)
        return owners, np.array([row for row, _ in stores])

    def holders(self, request: Request) -> Column:
        """See `Targets.holders`."""
        if self.few or self._adapters is None:
            return super().holders(request)
        owners, rows = self._adapters
        return rows[owners.numbers(owners.masks.get(request.adapter, 0))]
