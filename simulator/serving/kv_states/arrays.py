"""Attention-FFN disaggregation in the array lookups of joined tables: steady states of decoding replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.kv_states.attention_ffn import host_s, shipped_bytes, turn_s, way_s
from simulator.serving.kv_states.base import AttentionDevices
from simulator.serving.steps.case_mechanism import Array, CaseBatch
from simulator.serving.steps.joined import JoinedGrids, JoinedVectors
from simulator.serving.steps.step_arrays import StepCases
from simulator.serving.steps.table import SHORTEST_CONTEXT, IterationTable

Ints = NDArray[np.int64]
NOTHING = np.zeros(2)


class FfnFigures(NamedTuple):
    """Figures of a replica, or arrays of them.

    Attributes:
        batches: micro batches; 0 for a replica that has its attention.
        replicas: attention replicas.
        host_s, way_s: as of `attention_ffn`.
        sent_s: seconds of the link for a token.
    """

    batches: float = 0.0
    replicas: float = 1.0
    host_s: float = 0.0
    way_s: float = 0.0
    sent_s: float = 0.0


class AttentionApart:
    """Steps of replicas, some of which have attention on other devices.

    Args:
        tables: of the replicas.
        sides: attention devices and micro batches of each; None for one that has its attention.
    """

    def __init__(
        self, tables: Sequence[IterationTable], sides: Sequence[tuple[AttentionDevices, int] | None]
    ) -> None:
        there = [table if side is None else side[0].table for table, side in zip(tables, sides, strict=True)]
        pairs = list(zip(tables, sides, strict=True))
        self.here = JoinedVectors([_products(table, side is not None) for table, side in pairs])
        self.there = JoinedVectors(
            [_products(table, side is not None) for table, side in zip(there, sides, strict=True)]
        )
        self.attention = JoinedGrids([table.decodes for table in there])
        figures = [FfnFigures() if side is None else _figures(table, *side) for table, side in pairs]
        self.figures = [np.array(column, float) for column in zip(*figures, strict=True)]

    def on(self, which: Ints) -> AttentionApartOfCases:
        """See `ArrayMechanism.on`."""
        return AttentionApartOfCases(self, which)


def _products(table: IterationTable, apart: bool) -> Array:
    return table.attention_products_s if apart else NOTHING


def _figures(table: IterationTable, devices: AttentionDevices, batches: int) -> FfnFigures:
    sent = shipped_bytes(table.price) / devices.bandwidth
    return FfnFigures(batches, devices.replicas, host_s(table), way_s(table.price, devices), sent)


class AttentionApartOfCases:
    """The same of an array of cases."""

    def __init__(self, apart: AttentionApart, which: Ints) -> None:
        index = int(which) if which.ndim == 0 else which
        self._figures = FfnFigures(*(values[index] for values in apart.figures))
        self._here, self._there = apart.here.at(index), apart.there.at(index)
        self._attention = apart.attention.at(index)
        self._any = bool(np.any(self._figures.batches))

    def seconds(self, times: Callable[[StepCases], Array], batch: CaseBatch, cases: StepCases) -> Array:
        """Seconds of steps; see `CaseMechanism.seconds` and `AttentionFfn.decode_s`."""
        seconds = times(cases)
        if not self._any or np.any(batch.queries):
            return seconds
        figures = self._figures
        decodes = np.maximum(np.asarray(batch.sequences, dtype=np.float64), 1.0)
        batches = np.minimum(np.maximum(figures.batches, 1.0), decodes)
        part = decodes / batches
        shortest = np.full(np.shape(part), float(SHORTEST_CONTEXT))
        here = cases._plain_decode(part, shortest, batch.verified) - figures.host_s
        here = here - self._here(part * batch.verified) - cases.decode_attention(part, shortest)
        share = np.maximum(part / figures.replicas, 1.0)
        there = self._there(share * batch.verified) + self._attention(share, batch.keys)
        sent = part * batch.verified * figures.sent_s
        apart = figures.host_s + turn_s(batches, here, there, sent, figures.way_s, np.maximum)
        return np.where(figures.batches > 0, apart, seconds)
