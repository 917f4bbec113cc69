"""Memory that plans leave free on every device."""

from __future__ import annotations

import re

from core.errors import InputError
from simulator.setting import Setting
from simulator.uncertainty import default_headroom

UNITS = {"%": 0.01, "": 1.0, "mib": 2.0**20, "gib": 2.0**30, "mb": 1e6, "gb": 1e9}
WORDS = "a share below 1, a percentage (10%) or a size (8GiB)"


def headroom_share(typed: float | str | None, setting: Setting) -> float:
    """Share of a device to leave free.

    Args:
        typed: share, percentage or size as typed; None: the error of the memory model.
        setting: of the plans.

    Raises:
        InputError: not readable, or not below the device's memory.
    """
    if typed is None:
        return default_headroom(setting)
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|[A-Za-z]*)\s*", str(typed))
    unit = match.group(2).lower() if match else "?"
    if match is None or unit not in UNITS:
        raise InputError(f"must be {WORDS}, found {typed!r}", "headroom")
    share = float(match.group(1)) * UNITS[unit]
    if unit not in ("%", ""):
        share /= setting.cluster.device.memory_bytes
    if not share < 1:
        raise InputError(f"must be {WORDS} below the device's memory, found {typed!r}", "headroom")
    return share
