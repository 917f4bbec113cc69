"""The micro batch, chunks of a stage and recomputation of a published row that does not state them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.errors import InputError
from meshwright.validation.rows import SkippedRow
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory

LARGEST = 64
"""Sequences of the largest micro batch tried."""

NEAR = 1e-6
"""Relative difference below which peaks count as equal."""


def least_recomputed(setting: Setting, plan: Plan) -> Plan:
    """The plan with the least recomputation whose peak fits; with full recomputation if none does."""
    plans = [plan.model_copy(update={"recompute": kind}) for kind in ("none", "selective", "full")]
    arrays = Plans.of(plans)
    try:
        step = predict(setting, arrays)
    except InputError:
        return plan
    footprint = memory(setting, arrays, step.stages, step.parameters)
    fits = footprint.peak <= setting.cluster.device.memory_bytes
    return plans[int(np.argmax(fits))] if fits.any() else plans[-1]


def tuned(setting: Setting, plan: Plan, chunks: Sequence[int] = (), micro_batch: int | None = None) -> Plan:
    """The plan with the fastest micro batch that fits, as tuning would find.

    Args:
        setting: of the row.
        plan: its plan, with a micro batch of 1 where the row states none.
        chunks: chunks of a stage to choose from too, where the row leaves them open.
        micro_batch: sequences of a micro batch that the row states; by default it states none.

    Raises:
        Skipped: no micro batch fits, or the schedule has no closed form to choose by.
    """
    sequences, rest = divmod(setting.training.global_batch, plan.data)
    if rest:
        raise SkippedRow("global batch does not divide by data")
    sizes = [size for size in range(1, min(sequences, LARGEST) + 1) if sequences % size == 0]
    if micro_batch is not None:
        sizes = [micro_batch]
    changes: list[dict[str, Any]] = []
    if not chunks or 1 in chunks:
        changes += [{"micro_batch": size} for size in sizes]
    # Megatron interleaves micro batches in rounds of one a stage.
    changes += [
        {"micro_batch": size, "virtual_pipeline": count, "schedule": "interleaved"}
        for size in sizes
        for count in chunks
        if count > 1 and sequences // size % plan.pipeline == 0
    ]
    if len(changes) <= 1:
        return plan.model_copy(update=changes[0]) if changes else plan
    plans = Plans.of(plan.model_copy(update=change) for change in changes)
    try:
        step = predict(setting, plans)
    except InputError:
        raise SkippedRow("micro_batch not stated") from None
    footprint = memory(setting, plans, step.stages, step.parameters)
    fits = footprint.peak <= setting.cluster.device.memory_bytes
    if chunks and not fits.any():  # it ran: the plan that is nearest to fit
        fits = footprint.peak <= footprint.peak.min() * (1 + NEAR)
    if not fits.any():
        raise SkippedRow("micro_batch not stated")
    return plans.plan(int(np.argmin(np.where(fits, step.time, np.inf))))
