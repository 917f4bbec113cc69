"""Constants of the links between a machine's devices, from measured collectives.

Each family of operations gets a start, a time per hop and a time per byte, by non-negative least squares on
relative errors. Libraries that change their protocol with the size are followed on average only; the shipped
links are fitted protocol by protocol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from hwmodels.collectives.calibration import FAMILIES
from profiles.fitting.robust import scipy_function
from profiles.points import Points

Array = NDArray[np.floating]

NAMES = {"alltoall": "all_to_all", "send_recv": "send_receive"}
"""Names of operations in point files that differ from the model's."""

NEVER = {"start_s": 1e3, "step_s": 0.0, "efficiency": 1.0}
"""A protocol that is never chosen."""

ROUNDS = 20
LEAST = 3


def fit_links(points: Points, name: str, provenance: str) -> tuple[float, dict[str, Any]]:
    """Fit the links inside one machine.

    Args:
        points: of the table of collectives; those between nodes are passed over.
        name: of the link calibration.
        provenance: source of the points.

    Returns:
        B/s that a device sends over the links at best, and the definition of a ``LinkCalibration``.

    Raises:
        InputError: fewer than three sizes of every operation.
    """
    inside = points.where(points["n_nodes"] == 1)
    operations = inside["op"].astype(str)
    fitted: dict[str, Array] = {}
    errors: dict[str, str] = {}
    for operation in np.unique(operations):
        part = inside.where(operations == operation)
        family = FAMILIES.get(NAMES.get(str(operation), str(operation)))
        if family and len(part) >= LEAST:
            fitted[family], wrong = _fit(family, part)
            quantiles = (100 * float(np.quantile(wrong, share)) for share in (0.5, 0.9))
            errors[family] = " / ".join(f"{value:.1f}" for value in quantiles) + f" ({len(part)} rows)"
    if not fitted:
        raise InputError(
            f"{len(inside)} collectives inside a node are too few; {LEAST} sizes of one are needed"
        )
    bandwidth = 1.0 / min(each[2] for each in fitted.values())
    longest = fitted[max(fitted, key=lambda family: fitted[family][2])]
    content: dict[str, Any] = {"name": name, "provenance": provenance, "errors": errors}
    for family in dict.fromkeys(FAMILIES.values()):
        content[family] = _protocols(fitted.get(family, longest), bandwidth)
    return float(f"{bandwidth:.4g}"), content


def _fit(family: str, points: Points) -> tuple[Array, Array]:
    """Return start, time per hop and time per byte, and the relative errors left."""
    nnls = scipy_function("nnls")
    seconds, size = points["time_us"] * 1e-6, points["n_gpus"].astype(float)
    hops = np.where(family == "send_receive", 1.0, size - 1) * (2 if family == "all_reduce" else 1)
    sent = points["bytes"] * (hops / size if family != "send_receive" else 1.0)
    several = len(np.unique(size)) > 1
    columns = np.stack([np.ones_like(seconds), hops * several, sent], axis=1) / seconds[:, None]
    scale = np.maximum(columns.max(axis=0), 1e-300)
    wrong = np.ones_like(seconds)
    constants = np.zeros(3)
    for _ in range(ROUNDS):
        # Iterated weights turn squares into absolute errors, which a disturbed point pulls less.
        weight = 1.0 / np.sqrt(np.maximum(wrong, 0.02))
        constants = nnls(columns / scale * weight[:, None], weight)[0] / scale
        wrong = np.abs(columns @ constants - 1.0)
    return np.maximum(constants, (1e-9, 0.0, 1e-15)), wrong


def _protocols(constants: Array, bandwidth: float) -> dict[str, Any]:
    start, hop, per_byte = (float(value) for value in constants)
    rounded = {"start_s": start, "step_s": hop, "efficiency": 1.0 / (per_byte * bandwidth)}
    simple = {key: float(f"{value:.4g}") for key, value in rounded.items()}
    return {"ll": NEVER, "ll128": NEVER, "simple": simple}
