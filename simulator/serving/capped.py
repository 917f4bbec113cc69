"""Step times under a power cap: the clock falls until a step draws no more than the cap.

A step that draws less than the cap runs at the full clock. Otherwise its time is interpolated between clocks,
at the cap. Where the lowest clock still draws more, the device also pauses: a step takes as long as its
energy needs at the cap, with idle power in the pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.clocks import LEAST_SHARE
from hwmodels.errors import InputError
from simulator.serving.price import StepPrice
from simulator.serving.step_times import Chunk, RankBatch, Stretch
from simulator.serving.table import IterationTable

Array = NDArray[np.float64]
Times = Callable[[IterationTable], ArrayLike]

CLOCKS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, LEAST_SHARE)
"""Clocks with a table of their own, over the full one."""
LEAST_CAP = 1.1
"""Lowest cap, over a device's idle power."""


class CappedTable(IterationTable):
    """`StepTimes` and steady-state times of a replica whose devices have a power cap.

    Args:
        price: the full price, at the full clock.
        cap_w: of one device.
        max_tokens, max_sequences, max_context: as of `IterationTable`.

    Raises:
        InputError: the cap is not above the device's idle power.
    """

    def __init__(
        self, price: StepPrice, cap_w: float, max_tokens: int, max_sequences: int, max_context: int
    ) -> None:
        super().__init__(price, max_tokens, max_sequences, max_context)
        self._range = max_tokens, max_sequences, max_context
        self._lower: dict[float, IterationTable] = {}
        self._free = self.power
        self.power = replace(self.power, cap_w=cap_w)
        self.cap_w = cap_w
        device = price.cluster.device
        least = LEAST_CAP * device.idle_watts
        if cap_w < least:
            raise InputError(
                f"must be at least {least:,.0f} W on {device.name}, {LEAST_CAP:g} times its idle power; "
                f"found {cap_w:g} W",
                "power_cap_w",
            )

    def _at(self, share: float) -> IterationTable:
        """The table at a clock."""
        if share not in self._lower:
            price = self.price
            clock = share * price.cluster.device.clock_hz / price.cluster.device.clock_share
            pool = price.pool.model_copy(update={"clock_mhz": 1e-6 * clock})
            lower = StepPrice(price.model, price.cluster, pool, price.engine)
            self._lower[share] = IterationTable(lower, *self._range)
        return self._lower[share]

    def _capped(self, times: Times, tokens: ArrayLike, decodes: ArrayLike, kv_tokens: ArrayLike) -> Array:
        """Seconds of steps under the cap.

        Args:
            times: seconds of the steps by a table.
            tokens, decodes, kv_tokens: of the steps over the replica, as `PowerModel.watts` takes them.
        """
        devices, own = self.price.pool.devices, self.price.cluster.device.clock_share

        def drawn_at(table: IterationTable, seconds: Array) -> Array:
            model = self._free if table is self else table.power
            return model.watts(tokens, decodes, kv_tokens, seconds / self.stages, hosts=False) / devices

        before = np.asarray(times(self), dtype=np.float64)
        drawn = drawn_at(self, before)
        found, above = before, drawn > self.cap_w
        for share in CLOCKS:
            if not above.any():
                return found
            if share >= own:
                continue
            lower = self._at(share)
            after = np.maximum(np.asarray(times(lower), dtype=np.float64), before)
            less = np.minimum(drawn_at(lower, after), drawn)
            part = np.clip((drawn - self.cap_w) / np.maximum(drawn - less, 1e-9), 0.0, 1.0)
            found = np.where(above, before + part * (after - before), found)
            above = above & (less > self.cap_w)
            before, drawn = after, less
        idle = self._free.idle_w
        return np.where(above, found * (drawn - idle) / (self.cap_w - idle), found)

    # By plain numbers: the event engine

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one step; see `StepTimes`."""
        tokens = decodes * queries + sum(new for new, _ in prefills)
        if not tokens:
            return 0.0
        return float(
            self._capped(
                lambda table: IterationTable.step(table, prefills, decodes, kv_tokens, queries),
                tokens,
                decodes,
                kv_tokens,
            )
        )

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Seconds of decode steps from here to the next knot of the table, at the clock of the first."""
        first, growth, steps = super().stretch(decodes, kv_tokens, queries)
        capped = self._capped(
            lambda table: IterationTable.stretch(table, decodes, kv_tokens, queries)[0],
            decodes * queries,
            decodes,
            kv_tokens,
        )
        return float(capped), growth * float(capped) / first, steps

    def lockstep(self, ranks: Sequence[RankBatch]) -> float:
        """Seconds of one step of attention ranks that share experts; see `StepTimes`."""
        decodes = sum(batch.decodes for batch in ranks)
        tokens = decodes + sum(chunk[0] for batch in ranks for chunk in batch.prefills)
        if not tokens:
            return 0.0
        kv_tokens = sum(batch.kv_tokens for batch in ranks)
        return float(
            self._capped(lambda table: IterationTable.lockstep(table, ranks), tokens, decodes, kv_tokens)
        )

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one step by part."""
        found = super().parts(prefills, decodes, kv_tokens)
        capped = self.step(prefills, decodes, kv_tokens)
        total = sum(found.values())
        return {name: seconds * capped / total for name, seconds in found.items()} if total else found

    # By arrays: steady states

    def decode_seconds(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Seconds of decode steps; see `IterationTable.decode_seconds`."""
        whole = np.asarray(sequences, dtype=np.float64) * self.price.pool.data
        return self._capped(
            lambda table: IterationTable.decode_seconds(table, sequences, keys),
            whole,
            whole,
            whole * np.asarray(keys),
        )

    def mixed_seconds(
        self,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        chunks: ArrayLike = 1.0,
        ranks: ArrayLike | None = None,
    ) -> Array:
        """Seconds of steps with prefill chunks; see `IterationTable.mixed_seconds`."""
        data = self.price.pool.data
        whole = np.asarray(sequences, dtype=np.float64) * data
        prompts = np.asarray(queries, dtype=np.float64) * (data if ranks is None else np.asarray(ranks))
        return self._capped(
            lambda table: IterationTable.mixed_seconds(
                table, queries, before, sequences, keys, chunks, ranks
            ),
            prompts + whole,
            whole,
            whole * np.asarray(keys),
        )


def iteration_table(
    price: StepPrice, max_tokens: int, max_sequences: int, max_context: int
) -> IterationTable:
    """The table of a replica, under its pool's power cap if it has one that can bind.

    Raises:
        InputError: the cap is not above the device's idle power, or its clock is not known.
    """
    cap, device = price.pool.power_cap_w, price.cluster.device
    if cap is None or cap >= device.tdp_watts:
        return IterationTable(price, max_tokens, max_sequences, max_context)
    return CappedTable(price, cap, max_tokens, max_sequences, max_context)
