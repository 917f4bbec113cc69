"""Latency targets as people write them: 0.5, ``500ms``, ``p99=2s``."""

from __future__ import annotations

import re

from core.errors import InputError, shown

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def target(text: str, where: str) -> tuple[float, float | None]:
    """Seconds, and the share of the requests that must meet them, or None.

    Raises:
        InputError: not readable.
    """
    name, equals, value = text.rpartition("=")
    number = re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?|\.\d{1,9})\s*(ms|s)?", value.strip())
    if number is None or (equals and name.strip() not in SHARES) or not float(number[1]) > 0:
        raise InputError(
            f"must be seconds (0.5, 500ms) or {'/'.join(SHARES)}=seconds, found {shown(text)}", where
        )
    seconds = float(number[1]) / (1000 if number[2] == "ms" else 1)
    return seconds, SHARES[name.strip()] if equals else None


def one_share(*shares: float | None) -> float | None:
    """The share that targets state.

    Raises:
        InputError: two different ones.
    """
    stated = {share for share in shares if share is not None}
    if len(stated) > 1:
        raise InputError("targets hold for one share of the requests; give --ttft and --tpot the same")
    return next(iter(stated), None)
