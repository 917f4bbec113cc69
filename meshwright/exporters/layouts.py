"""Layers on pipeline chunks in Megatron's layout string: ``Et*3|t*3|...|t*2L``."""

from __future__ import annotations

import re

from core.errors import InputError, shown
from simulator.layout.stages import Spread
from simulator.plan import Plan, Plans
from simulator.setting import Setting

MOST_CHUNKS = 4096


def layout_of(setting: Setting, plan: Plan) -> str:
    """The layout string of a plan: E embedding, t layer, m multi-token prediction, L loss."""
    lengths = [round(length) for length in Spread.of(setting, Plans.of(plan)).lengths]
    chunks = [f"t*{count}" if count > 1 else "t" * count for count in lengths]
    extra = setting.mtp_layers
    if extra:
        chunks[-1] = f"t*{lengths[-1] - extra}" + "m" * extra
    chunks[0] = "E" + chunks[0]
    chunks[-1] += "L"
    return "|".join(chunks)


def lengths_of(layout: str, where: str) -> list[int]:
    """Layers of each chunk of a layout string, in the order of the model.

    Raises:
        InputError: it is none.
    """
    text = _expanded(layout.replace(",", "").replace(" ", ""), where)
    chunks = text.split("|")
    if len(chunks) > MOST_CHUNKS or not re.fullmatch(r"[EtmL|]+", text):
        raise InputError(
            f"must be a layout of E, t, m, L and | of at most {MOST_CHUNKS} stages; found {shown(layout)}",
            where,
        )
    return [chunk.count("t") for chunk in chunks]


def _expanded(text: str, where: str) -> str:
    """The string with repetitions (``t*3``, ``(tt|)*15``) written out."""
    if len(text) > 10 * MOST_CHUNKS:
        raise InputError(f"must be a pipeline layout, found {len(text):,} characters", where)
    while repeated := re.search(r"(?:\(([EtmL|]*)\)|([EtmL|]))\*(\d{1,4})", text):
        part = repeated[1] if repeated[1] is not None else repeated[2]
        text = text[: repeated.start()] + part * int(repeated[3]) + text[repeated.end() :]
        if len(text) > 10 * MOST_CHUNKS:
            raise InputError(
                f"must be a pipeline layout of at most {MOST_CHUNKS} stages, found a longer one", where
            )
    return text


def ends_of(lengths: list[int], chunks_per_rank: int, where: str) -> tuple[int, int]:
    """``first_stage_layers`` and ``last_stage_layers`` of a layout.

    Raises:
        InputError: unequal layers between the ends, which plans do not express.
    """
    stages = len(lengths) // chunks_per_rank
    totals = [sum(lengths[rank::stages]) for rank in range(stages)]
    inner = lengths[1:-1]
    if len(set(totals)) == 1 and len(set(lengths)) == 1:
        return 0, 0
    if len(set(totals[1:-1])) > 1 or (chunks_per_rank > 1 and len(set(inner)) > 1):
        raise InputError(f"stages between the ends hold unequal layers: {shown(totals)}", where)
    even = sum(lengths) // stages
    if chunks_per_rank > 1 and totals[0] == totals[-1] == even:
        # Equal stages of unequal chunks: the ends are stated, or the layers would have to divide.
        return totals[0], totals[-1]
    first, last = (0 if total == even else total or -1 for total in (totals[0], totals[-1]))
    return first, last
