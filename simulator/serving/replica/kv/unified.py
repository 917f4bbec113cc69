"""KV and adapters in one memory (Sheng et al., S-LoRA's unified paging, arXiv 2311.03285)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.sequence import Sequence


class UnifiedBlocks(PagedBlocks):
    """`PagedBlocks` in which each adapter of an admitted sequence takes blocks while any sequence uses it.

    Args:
        total, block_tokens, keeps_freed: as of `PagedBlocks`.
        adapter: blocks of one adapter.
    """

    __slots__ = ("_users", "adapter")

    def __init__(self, total: int, block_tokens: int, keeps_freed: bool, adapter: int) -> None:
        super().__init__(total, block_tokens, keeps_freed)
        self.adapter = adapter
        self._users: Counter[int] = Counter()

    @property
    def shared(self) -> int:
        """See `PagedBlocks.shared`: blocks of adapters in use."""
        return self.adapter * sum(1 for users in self._users.values() if users)

    def beside(self, sequences: Iterable[Sequence]) -> int:
        """See `PagedBlocks.beside`."""
        return self.adapter * self.block_tokens * len({sequence.request.adapter for sequence in sequences})

    def hold(self, sequence: Sequence, tokens: int, cached: int = 0) -> bool:
        """See `PagedBlocks.hold`; the first blocks of a sequence come with its adapter."""
        if sequence.blocks:
            return super().hold(sequence, tokens, cached)
        name = sequence.request.adapter
        need = 0 if self._users[name] else self.adapter
        if self.blocks(tokens) + need > self.free or not super().hold(sequence, tokens, cached):
            return False
        self.free -= need
        self._users[name] += 1
        return True

    def release(self, sequence: Sequence, tokens: int, preempted: bool = False) -> None:
        """See `PagedBlocks.release`; the last sequence of an adapter takes it along."""
        super().release(sequence, tokens, preempted)
        name = sequence.request.adapter
        self._users[name] -= 1
        if not self._users[name]:
            self.free += self.adapter
