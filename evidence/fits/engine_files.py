"""Constants of a fit as entries of the engines' files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from evidence.fits.left_out_errors import Off, changes, gathered
from evidence.fits.served_rows import FIRST, Group, Rows
from simulator.serving.engines import engines
from simulator.serving.engines.engine import FOLDER, HAS_TILE, LayerTimes
from simulator.serving.engines.figure import Figure

SOURCE = "evidence/fits/fit_engines.py"
"""Source of entries that the fit writes."""


def write_all(times: Mapping[Group, np.ndarray], rows: Mapping[Group, Sequence[Rows]], outside: Off) -> None:
    """Put constants into the engines' files, with the median error on models left out."""
    entries: dict[str, list[LayerTimes]] = defaultdict(list)
    for group, values in times.items():
        off = gathered(outside, lambda cell: cell.group == group and cell.kind != FIRST)  # noqa: B023
        median = round(float(np.median(np.abs(off))), 3) if len(off) else None
        entries[group.engine].append(entry_of(group, values, rows.get(group, []), median))
    for name, fitted in entries.items():
        write(name, fitted)


def write(name: str, entries: list[LayerTimes]) -> None:
    """Replace the entries of an engine's file, but for those of classes that were not fitted."""
    path = FOLDER / f"{name}.yaml"
    head, _, tail = path.read_text().partition("times:\n")
    unfitted = []
    for line in tail.splitlines():
        match = re.search(r"layers: ([\w-]+), format: ([\w-]+),(?: generation: (\w+),)?", line)
        key = match and (match[1], match[2], match[3] or "")
        if match and key not in {(e.layers, e.format, e.generation) for e in entries}:
            unfitted.append(line)
    path.write_text(head + "times:\n" + "\n".join([_entry(e) for e in entries] + unfitted) + "\n")


def _entry(e: LayerTimes) -> str:
    """One line of an engine's file."""
    return (
        f"  - {{layers: {e.layers}, format: {e.format}, "
        + (f"generation: {e.generation}, " if e.generation else "")
        + f"layer_s: {e.layer_s:.2e}, all_reduce_s: {e.all_reduce_s:.2e}, sequence_s: {e.sequence_s:.2e}, "
        + (f"eager_layer_s: {e.eager_layer_s:.2e}, " if e.eager_layer_s else "")
        + (f"first_token_s: {e.first_token_s:.4f}, " if e.first_token_s else "")
        + f"prefill_factor: {e.prefill_factor:.2f}, "
        + ("reads_kv_per_head: true, " if e.reads_kv_per_head else "")
        + (f"latents_s: {_figure(e.latents_s)}, " if e.latents_s != HAS_TILE else "")
        + f"kind: {e.kind}, rows: {e.rows}, "
        + (f"left_out_error: {e.left_out_error:.3f}, " if e.left_out_error is not None else "")
        + f'source: "{e.source}"}}'
    )


def _figure(figure: Figure[float]) -> str:
    return f'{{value: {figure.value:.2g}, kind: {figure.kind}, source: "{figure.source}"}}'


def entry_of(group: Group, times: np.ndarray, rows: Sequence[Rows], error: float | None) -> LayerTimes:
    """The entry of an engine's file."""
    engine = engines.get(group.engine)
    old = [e for e in engine.times if (e.layers, e.format, e.generation) == group[1:]]
    return LayerTimes(
        reads_kv_per_head=bool(old and old[0].reads_kv_per_head),
        latents_s=old[0].latents_s if old else HAS_TILE,
        layers=group.layers,
        format=group.format,
        generation=group.generation,
        kind="derived",
        source=SOURCE,
        rows=sum(len(run.measured) for run in rows if run.counts),
        left_out_error=error,
        **changes(group, np.round(times, 8)),
    )
