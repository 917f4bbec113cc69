"""Linear attention: chunked scans over whole sequences, and decode steps over states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.chip import Chip
from hwmodels.kernels.linear_attention import (
    STATE_BYTES,
    ChunkedScan,
    ScanCalls,
    States,
    scan_seconds,
    state_step_seconds,
)
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.robust import Number
from profiles.points import Points

COLUMNS = ("batch", "sequence", "heads", "key_heads", "key_dim", "value_dim", "chunk", "delta")


def _scan(form: ChunkedScan, chip: Chip, points: Points) -> Array:
    return scan_seconds(form, chip, ScanCalls(*floats(points, *COLUMNS)), backward=False)


def _step(form: ChunkedScan, chip: Chip, points: Points) -> Array:
    states = States(*floats(points, "batch", "heads", "key_dim", "value_dim"))
    return state_step_seconds(form, chip, states, STATE_BYTES, in_l2=True)


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["heads"], points["key_heads"], points["batch"])


GENERIC = ChunkedScan(block_s=5e-6, chunk_s=1.5e-6, wave_quantisation=0.7, l2_gain=0.3)

SCANS = FittedOperation(
    "scans",
    "scan",
    GENERIC,
    (
        Number("overhead_s", 1e-6, 1e-4, 0),
        Number("compute_efficiency", 0.003, 1.0, 0),
        Number("memory_efficiency", 0.02, 1.0, 0),
        Number("l2_gain", 0.01, 12.0),
        Number("l2_fraction", 0.05, 3.0),
        Number("overlap_exponent", 0.8, 12.0),
        Number("block_s", 1e-8, 1e-4),
        Number("chunk_s", 1e-8, 1e-4),
        Number("blocks", 0.2, 16.0),
        Number("wave_quantisation", 0.01, 1.0),
    ),
    _scan,
    _key,
    variants=({}, {"state_passes": 0.0}),
    starts=(
        {},
        {
            "blocks": 1.0,
            "wave_quantisation": 0.9,
            "overlap_exponent": 4.0,
            "block_s": 1.4e-5,
            "chunk_s": 2.4e-6,
        },
        {
            "blocks": 4.0,
            "wave_quantisation": 0.2,
            "compute_efficiency": 0.12,
            "l2_gain": 2.0,
            "chunk_s": 1e-6,
        },
        {"blocks": 2.0, "chunk_s": 2.5e-6, "compute_efficiency": 1.0},
        {"compute_efficiency": 0.08},
    ),
)
"""Points have the columns of `COLUMNS`."""

STATE_STEPS = FittedOperation(
    "scans",
    "state_step",
    GENERIC.model_copy(update={"decode_l2_gain": 1.0}),
    (
        Number("decode_overhead_s", 1e-6, 5e-5, 0),
        Number("decode_memory_efficiency", 0.05, 1.0, 0),
        Number("decode_l2_gain", 0.001, 12.0, 0),
        Number("decode_l2_fraction", 0.05, 3.0, 0),
    ),
    _step,
    _key,
)
"""Points have columns batch, heads, key_dim and value_dim."""
