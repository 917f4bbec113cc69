"""Step times under a power cap: the clock falls until a step draws no more than the cap.

A step that draws less than the cap runs at the full clock. Otherwise its time is interpolated between clocks,
at the cap. Where the lowest clock still draws more, the device also pauses: a step takes as long as its
energy needs at the cap, with idle power in the pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from hwmodels.clocks import LEAST_SHARE
from simulator.serving.steps.case_mechanism import ArrayMechanism, CaseBatch
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays, StepCases
from simulator.serving.steps.step_times import Chunk, RankBatch, Stretch
from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]
Times = Callable[[IterationTable], float]

CLOCKS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, LEAST_SHARE)
"""Clocks that have their own table, as shares of the full clock."""
LEAST_CAP = 1.1
"""Lowest cap as a multiple of a device's idle power."""


class CappedTable(IterationTable):
    """`StepTimes` and steady-state times of a replica whose devices have a power cap.

    Args:
        price: the full price, at the full clock.
        cap_w: power cap of one device, W.
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
        self.free = self.power
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

    def at_clock(self, share: float) -> IterationTable:
        """The table at a clock."""
        if share not in self._lower:
            price = self.price
            clock = share * price.cluster.device.clock_hz / price.cluster.device.clock_share
            pool = price.pool.model_copy(update={"clock_mhz": 1e-6 * clock})
            lower = StepPrice(price.model, price.cluster, pool, price.engine)
            self._lower[share] = IterationTable(lower, *self._range)
        return self._lower[share]

    def _capped(self, times: Times, tokens: float, decodes: float, kv_tokens: float) -> float:
        """Seconds of a step under the cap.

        Args:
            times: seconds of the step by a table.
            tokens, decodes, kv_tokens: of the step over the replica, as `PowerModel.watts` takes them.
        """
        devices = self.price.pool.devices

        def seconds_at(share: float | None) -> Array:
            return np.asarray(times(self if share is None else self.at_clock(share)), dtype=np.float64)

        def drawn_at(share: float | None, seconds: Array) -> Array:
            model = self.free if share is None else self.at_clock(share).power
            return model.watts(tokens, decodes, kv_tokens, seconds / self.stages, hosts=False) / devices

        device_share, idle = self.price.cluster.device.clock_share, self.free.idle_w
        return float(under_cap(seconds_at, drawn_at, self.cap_w, device_share, idle))

    # Scalar interface: the event engine

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
        """Seconds of decode steps up to the next knot of the table, at the clock of the first step."""
        first, growth, steps = super().stretch(decodes, kv_tokens, queries)
        capped = self._capped(
            lambda table: IterationTable.stretch(table, decodes, kv_tokens, queries)[0],
            decodes * queries,
            decodes,
            kv_tokens,
        )
        return capped, growth * capped / first, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one step of attention ranks that share experts; see `StepTimes`."""
        decodes = sum(batch.decodes for batch in ranks)
        tokens = decodes * queries + sum(chunk[0] for batch in ranks for chunk in batch.prefills)
        if not tokens:
            return 0.0
        kv_tokens = sum(batch.kv_tokens for batch in ranks)
        return float(
            self._capped(
                lambda table: IterationTable.lockstep(table, ranks, queries), tokens, decodes, kv_tokens
            )
        )

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one step by part."""
        parts = super().parts(prefills, decodes, kv_tokens)
        capped = self.step(prefills, decodes, kv_tokens)
        total = sum(parts.values())
        return {name: seconds * capped / total for name, seconds in parts.items()} if total else parts

    # Array interface: steady states

    @cached_property
    def cases(self) -> StepCases:
        """Step times of arrays of cases, all on this kind of replica."""
        return step_arrays([self]).cases()


class Caps:
    """Power caps in the array lookups of joined tables.

    Args:
        tables: one table per kind of replica.
    """

    def __init__(self, tables: Sequence[CappedTable]) -> None:
        self._tables = tables
        self._lower: dict[float, StepArrays] = {}
        self.free = [table.free for table in tables]
        """Power without the cap."""
        self.cap_w = np.array([table.cap_w for table in tables], dtype=np.float64)
        self.devices = np.array([table.price.pool.devices for table in tables], dtype=np.float64)
        self.clock = np.array([table.price.cluster.device.clock_share for table in tables], dtype=np.float64)

    def on(self, which: NDArray[np.int64]) -> CapsOfCases:
        """See `ArrayMechanism.on`."""
        return CapsOfCases(self, which)

    def at_clock(self, share: float) -> StepArrays:
        """The tables at a clock."""
        if share not in self._lower:
            self._lower[share] = StepArrays([table.at_clock(share) for table in self._tables])
        return self._lower[share]


class CapsOfCases:
    """Power caps of an array of cases."""

    def __init__(self, caps: Caps, which: NDArray[np.int64]) -> None:
        self._caps = caps
        index = int(which) if which.ndim == 0 else which
        self._cap_w, self._devices, self._clock = caps.cap_w[index], caps.devices[index], caps.clock[index]

    def seconds(self, times: Callable[[StepCases], Array], batch: CaseBatch, cases: StepCases) -> Array:
        """Seconds of steps under the caps; see `CappedTable`."""
        decodes = np.asarray(batch.sequences, dtype=np.float64) * cases.ranks
        filled = cases.ranks if batch.ranks is None else np.asarray(batch.ranks)
        tokens = np.asarray(batch.queries, dtype=np.float64) * filled + decodes * batch.verified
        kv_tokens = decodes * np.asarray(batch.keys)

        def at(share: float | None) -> StepCases:
            if share is None:
                return cases
            return self._caps.at_clock(share).cases(cases.which).spreading(cases.spread)

        def drawn_at(share: float | None, seconds: Array) -> Array:
            models = self._caps.free if share is None else at(share).arrays.power
            figures = tokens, decodes, kv_tokens, seconds / cases.stages
            return cases.watts_by(models, *figures) / self._devices

        idle = cases.idle_watts / self._devices
        return under_cap(lambda share: times(at(share)), drawn_at, self._cap_w, self._clock, idle)


def under_cap(
    seconds_at: Callable[[float | None], Array],
    drawn_at: Callable[[float | None, Array], Array],
    cap_w: Array | float,
    device_share: Array | float,
    idle_w: Array | float,
) -> Array:
    """Seconds of steps under a power cap.

    Args:
        seconds_at: step time, s, at a share of the highest clock; None is the clock in use.
        drawn_at: power of a device at a share of the highest clock and a step time, W.
        cap_w: power cap of a device, W.
        device_share: clock in use, as a share of the highest.
        idle_w: idle power of a device, W.
    """
    before = seconds_at(None)
    drawn = drawn_at(None, before)
    seconds, above = before, drawn > cap_w
    for share in CLOCKS:
        if not above.any():
            return seconds
        lower = share < np.asarray(device_share)
        if not lower.any():
            continue
        after = np.maximum(seconds_at(share), before)
        less = np.minimum(drawn_at(share, after), drawn)
        part = np.clip((drawn - cap_w) / np.maximum(drawn - less, 1e-9), 0.0, 1.0)
        seconds = np.where(above & lower, before + part * (after - before), seconds)
        above = above & ((less > cap_w) | ~lower)
        before, drawn = np.where(lower, after, before), np.where(lower, less, drawn)
    return np.where(above, seconds * (drawn - idle_w) / (np.asarray(cap_w) - idle_w), seconds)


def step_arrays(tables: Sequence[IterationTable], *more: ArrayMechanism) -> StepArrays:
    """Joined tables of replicas, all or none of them under a power cap, with further mechanisms after it."""
    capped = [table for table in tables if isinstance(table, CappedTable)]
    caps = [Caps(capped)] if len(capped) == len(tables) else []
    return StepArrays(tables, [*caps, *more])


def iteration_table(
    price: StepPrice,
    max_tokens: int,
    max_sequences: int,
    max_context: int,
    longest_chunk: int | None = None,
    like: IterationTable | None = None,
    ranks: IterationTable | None = None,
    spread: IterationTable | None = None,
) -> IterationTable:
    """The table of a replica, under its pool's power cap if it has one that can bind.

    Args:
        price: the full price.
        max_tokens, max_sequences, max_context, longest_chunk, like, ranks, spread: as in `IterationTable`;
            under a cap the last four are unused.

    Raises:
        InputError: the cap is not above the device's idle power, or its clock is not known.
    """
    cap, device = price.pool.power_cap_w, price.cluster.device
    if cap is None or cap >= device.tdp_watts:
        limits = max_tokens, max_sequences, max_context
        return IterationTable(
            price, *limits, like=like, longest_chunk=longest_chunk, ranks=ranks, spread=spread
        )
    return CappedTable(price, cap, max_tokens, max_sequences, max_context)
