"""Closed loops on the event engine with constants that a fit found without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from evidence.fits.served_rows import Group, Rows
from evidence.serving.served_run import figures_of
from simulator.serving.engines import engines
from simulator.serving.engines.engine import LayerTimes

LATENCIES = ("tpot_ms_mean", "tpot_ms_p50"), ("ttft_ms_p50", "ttft_ms_mean")
"""Of a row, the first that it states."""


def replayed(
    rows: Mapping[Group, list[Rows]],
    entries: Mapping[Group, LayerTimes],
    selected: Callable[[Rows], bool],
    every: int,
    left: str,
) -> Iterator[str]:
    """Lines of medians, 90th percentiles and biases of TPOT and TTFT.

    Args:
        rows: by group.
        entries: constants by group, of a fit without the chosen rows.
        chosen: which rows are run.
        every: of these, one in so many, in the order of their names.
        left: what is left out, for names of presets.
    """
    by_metric: dict[str, list[float]] = defaultdict(list)
    for group, same in rows.items():
        cases = {
            case.case_id: case
            for entry in same
            if entry.collection == "closed_loop" and selected(entry)
            for case in entry.cases
        }
        engine = engine_with(group.engine, entries, left)
        for case_id in sorted(cases)[::every]:
            case = cases[case_id]
            run = case.question.run()
            run.scenario["deployment"]["engine"] = engine
            columns = figures_of(run)
            for names in LATENCIES:
                name = next((name for name in names if name in case.measured), None)
                if name is not None:
                    by_metric[name[:4].upper()].append(columns[name] / case.measured[name] - 1.0)
    for name, errors in sorted(by_metric.items()):
        size = 100 * np.abs(errors)
        bias = 100 * np.median(errors)
        yield f"{name} {np.median(size):.1f} / {np.percentile(size, 90):.1f} / {bias:+.1f} (n {len(errors)})"


def engine_with(name: str, entries: Mapping[Group, LayerTimes], left: str) -> dict[str, object]:
    """An engine's preset with other constants, under a name of its own."""
    engine = engines.get(name)
    fitted = {group[1:]: entry for group, entry in entries.items() if group.engine == name}
    shipped = [
        entry for entry in engine.times if (entry.layers, entry.format, entry.generation) not in fitted
    ]
    return {
        "name": f"{name} without {left}",
        "engine": engine.engine,
        "version": engine.version,
        "based_on": name,
        "times": [entry.model_dump(exclude_none=True) for entry in (*fitted.values(), *shipped)],
    }
