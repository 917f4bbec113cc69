"""A short list of different plans from a ranking: the recommended plan, and the cost of each restriction.

The first row is a plan that one would launch: of those whose gap to the fastest lies inside the band of their
ratio, one that fits for sure (``SAFE``) and whose mechanisms were all measured (``measured_runs``). Of
those on equal footing with the fastest (``simulator.uncertainty.even_footing``) the simplest is taken, else
the fastest. The best plan of each family that the first row lacks follows. Near duplicates of a row are named
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from core.records import record
from planner.training.confidence import within_band
from planner.training.families import (
    FAMILIES,
    FASTEST,
    LEAST_MEMORY,
    MEMORY_WITHIN,
    differences,
    layouts,
    mechanisms,
)
from planner.training.measured_runs import RunEvidence
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans, concatenate
from simulator.setting import Setting
from simulator.training.memory import memory
from simulator.uncertainty import chance_to_fit, even_footing

POOL = 2048
"""Number of best plans from which a short list is picked."""
NAMED_DUPLICATES = 4
"""Maximum near duplicates named per row."""
MOST_WEIGHED = 200
"""Plans whose memory and evidence are looked up for the first row."""
SAFE = 0.95
"""Chance to fit from which a launch is not expected to run out of memory."""
DUPLICATE_WITHIN = 0.05
"""Maximum slow-down of a named near duplicate over its row, as a share."""
SIMPLEST = "simplest within 10 %"
RECOMMENDED = "recommended"
OTHER = "another layout"


@record()
class ShortlistRow:
    """Reason for a plan's place in the list.

    Attributes:
        families: labels.
        also: near duplicates, as the fields in which they differ.
    """

    families: tuple[str, ...]
    also: tuple[str, ...] = ()


@record()
class _Pick:
    plans: Plans
    value: float
    labels: tuple[str, ...]

    @cached_property
    def plan(self) -> Plan:
        return self.plans.plan(0)


def shortlist(
    setting: Setting,
    pool: Plans,
    values: np.ndarray,
    families: Mapping[str, tuple[Plans, np.ndarray]],
    top: int,
) -> tuple[Plans, tuple[ShortlistRow, ...]]:
    """Pick the rows of a short list.

    Args:
        setting: inputs that all plans share.
        pool: the best plans, in order.
        values: the figure that ranks them, shape (plans,).
        families: the best plan of each family and its value.
        top: maximum number of rows.

    Returns:
        The plans in the order of the rows, and a ``ShortlistRow`` for each.
    """
    first = recommended_row(setting, pool, values)
    picks = [_pick(pool, values, first, (RECOMMENDED, FASTEST) if first == 0 else (RECOMMENDED,))]
    rows = np.flatnonzero(values <= values[0] * (1 + MEMORY_WITHIN))
    peaks = _peaks(setting, pool.take(rows))
    listed = [_pick(pool, values, 0, (FASTEST,))]
    for family in FAMILIES:
        if family.name in families and not family.holds(picks[0].plans)[0]:
            listed.append(_Pick(families[family.name][0], float(families[family.name][1][0]), (family.name,)))
    listed.append(_pick(pool, values, int(rows[np.argmin(peaks)]), (LEAST_MEMORY,)))
    listed.append(_pick(pool, values, int(rows[np.argmin(mechanisms(pool.take(rows)))]), (SIMPLEST,)))
    for pick in sorted(listed, key=lambda pick: pick.value):
        _add(picks, pick)
    picks = _safe_first(setting, _filled(picks[:top], pool, values, top))
    plans = concatenate([pick.plans for pick in picks])
    return plans, tuple(
        ShortlistRow(pick.labels, also) for pick, also in zip(picks, _also(picks, pool, values), strict=True)
    )


def within_reach(values: np.ndarray, share: float = MEMORY_WITHIN) -> float:
    """The slowest of the times, in order, that may have the first row or be a share above the fastest."""
    even = values[even_footing(values[0], values)]
    return max(float(even.max()), float(values[MOST_WEIGHED - 1]), float(values[0]) * (1 + share))


def recommended_row(setting: Setting, pool: Plans, values: np.ndarray) -> int:
    """The plan that one would launch.

    Args:
        setting: of the search.
        pool: the best plans, in order: those on even footing with the first, and ``MOST_WEIGHED`` at least.
        values: the figure that ranks them, shape (plans,).
    """
    simple = mechanisms(pool)
    even = np.flatnonzero(even_footing(values[0], values))
    even = even[np.argsort(simple[even], kind="stable")]
    others = np.delete(np.arange(len(pool)), even)
    weighed = np.concatenate([even, others])[:MOST_WEIGHED]
    capacity = setting.cluster.device.memory_bytes
    safe = chance_to_fit(_peaks(setting, pool.take(weighed)), capacity, setting) >= SAFE
    evidence = RunEvidence(setting)

    def measured(index: int) -> bool:
        return evidence.measured(pool.plan(index))

    even_rows, other_rows = weighed[: len(even)], weighed[len(even) :]
    safe_even, safe_others = even_rows[safe[: len(even)]], other_rows[safe[len(even) :]]
    for rows, fits in (
        (safe_even, measured),
        (safe_others, measured),
        (safe_even, None),
        (safe_others, None),
    ):
        index = next((int(row) for row in rows if fits is None or fits(int(row))), None)
        if index is not None and (rows is safe_even or _close(setting, pool, index)):
            return index
    return next((int(row) for row in even_rows if measured(int(row))), int(even[0]))


def _safe_first(setting: Setting, picks: list[_Pick]) -> list[_Pick]:
    """The rows with one first that fits and is as fast within error, where the first may run out of memory.

    The best plan of a family may be slower than all plans that were weighed. Measured plans go first.
    """
    picked = concatenate([pick.plans for pick in picks])
    safe = chance_to_fit(_peaks(setting, picked), setting.cluster.device.memory_bytes, setting) >= SAFE
    if safe[0] or not safe.any():
        return picks
    fastest = int(np.argmin([pick.value for pick in picks]))
    close = within_band(setting, picked.take(np.array([fastest, *range(len(picks))])))[1:]
    evidence = RunEvidence(setting)
    able = [row for row in range(1, len(picks)) if safe[row] and close[row]]
    index = min(able, key=lambda row: (not evidence.measured(picks[row].plan), row), default=None)
    if index is None:
        return picks
    labelled = [
        _Pick(
            pick.plans, pick.value, tuple(label for label in pick.labels if label != RECOMMENDED) or (OTHER,)
        )
        for pick in picks
    ]
    first = _Pick(picks[index].plans, picks[index].value, (RECOMMENDED, *picks[index].labels))
    return [first, *sorted(labelled[:index] + labelled[index + 1 :], key=lambda pick: pick.value)]


def _close(setting: Setting, pool: Plans, index: int) -> bool:
    """Whether a plan's gap to the fastest lies inside the band of their ratio."""
    return bool(within_band(setting, pool.take(np.array([0, index])))[1])


def _pick(pool: Plans, values: np.ndarray, index: int, labels: tuple[str, ...]) -> _Pick:
    return _Pick(pool.take(np.array([index])), float(values[index]), labels)


def _add(picks: list[_Pick], pick: _Pick) -> None:
    """Append a plan, or its labels where the plan has a row.

    The fastest plan needs no row of its own where it is a near duplicate of the recommended one.
    """
    for index, row in enumerate(picks):
        if row.plan == pick.plan:
            labels = tuple(dict.fromkeys(row.labels + pick.labels))
            picks[index] = _Pick(row.plans, row.value, labels)
            return
    both = layouts(concatenate([picks[0].plans, pick.plans]))
    if pick.labels != (FASTEST,) or both[0] != both[1]:
        picks.append(pick)


def _filled(picks: list[_Pick], pool: Plans, values: np.ndarray, top: int) -> list[_Pick]:
    """Add the next best layouts that no row shows, and sort the rows after the first."""
    ids = layouts(concatenate([pick.plans for pick in picks] + [pool]))
    seen = set(ids[: len(picks)].tolist())
    for index, layout in enumerate(ids[len(picks) :].tolist()):
        if len(picks) >= top:
            break
        if layout not in seen:
            seen.add(layout)
            picks.append(_pick(pool, values, index, (OTHER,)))
    return [picks[0], *sorted(picks[1:], key=lambda pick: pick.value)]


def _also(picks: list[_Pick], pool: Plans, values: np.ndarray) -> list[tuple[str, ...]]:
    """Near duplicates of each row, the best first, rows excluded."""
    ids = layouts(concatenate([pick.plans for pick in picks] + [pool]))
    rows = [pick.plan for pick in picks]
    named: list[tuple[str, ...]] = []
    for number, (pick, layout) in enumerate(zip(picks, ids, strict=False)):
        if layout in ids[:number]:
            named.append(())
            continue
        close = (ids[len(picks) :] == layout) & (values <= pick.value * (1 + DUPLICATE_WITHIN))
        nearest = [pool.plan(int(index)) for index in np.flatnonzero(close)[: NAMED_DUPLICATES + len(rows)]]
        others = [differences(pick.plan, other) for other in nearest if other not in rows]
        named.append(tuple(others[:NAMED_DUPLICATES]))
    return named


def _peaks(setting: Setting, plans: Plans) -> np.ndarray:
    stages = Stages.of(setting, plans)
    return memory(setting, plans, stages, parameters(setting, plans, stages)).peak
