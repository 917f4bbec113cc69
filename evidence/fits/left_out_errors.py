"""Errors of fitted engine constants by group, metric and what the fit left out, as lines and as a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evidence.fits.served_rows import FIRST, MOST, OFFLINE, RATE, REST, Group, Rows
from meshwright.measured.served_errors import FEWEST, FILE, METRICS
from simulator.serving.engines import engines

CONSTANTS = (*("layer_s", "all_reduce_s", "sequence_s", "prefill_factor", "first_token_s", "eager_layer_s"),)
"""Names of the constants of a group, in their order in arrays."""


LAUNCHED_WITHOUT_GRAPHS = ("latent-experts",)
"""Classes of layers whose launches, by other engines' rows, ship with engines that capture all steps: of
servers without graphs only those have rows (Kimi-K2.5's prefill under vLLM on GB200)."""


def changes(group: Group, times: np.ndarray) -> dict[str, float]:
    """Constants by name. Launches bound steps outside of graphs: engines that capture all show none."""
    constants: dict[str, float] = dict(zip(CONSTANTS, times.tolist(), strict=True))
    engine = engines.get(group.engine)
    captures = engine.graph_sizes.value and engine.graphs_mixed.value
    if captures and group.layers not in LAUNCHED_WITHOUT_GRAPHS:
        constants["eager_layer_s"] = 0.0
    return constants


class Cell(NamedTuple):
    """Rows whose errors are counted together."""

    group: Group
    kind: str
    """Of metric."""
    device: str
    folder: str = ""
    """Of the rows' file."""


Off = dict[Cell, list[np.ndarray]]
"""Relative errors by cell."""


def gathered(off: Off, counts: Callable[[Cell], bool]) -> np.ndarray:
    """Errors of some cells."""
    return np.concatenate(
        [np.zeros(0), *(part for cell, parts in off.items() if counts(cell) for part in parts)]
    )


def summary(off: Off) -> str:
    """Median and 90th percentile of the absolute errors, and the bias, by kind of metric, %."""
    kinds = sorted({cell.kind for cell in off})
    return "  ".join(f"{kind} {figures_of(gathered(off, lambda cell: cell.kind == kind))}" for kind in kinds)  # noqa: B023


def figures_of(off: np.ndarray) -> str:
    size = 100 * np.abs(off)
    return (
        f"{np.median(size):.1f} / {np.percentile(size, 90):.1f} / {100 * np.median(off):+.1f} (n {len(off)})"
    )


def write_errors(left: dict[str, Off]) -> None:
    """Write errors by what the fit leaves out, pooled by engine, class of layers and device."""
    lines: list[tuple[object, ...]] = []
    for what, off in left.items():
        pools = {("", "", "")}
        for group, _, device, _ in off:
            family = group.family[0]
            pools |= {(family, "", ""), (family, group.layers, ""), (family, group.layers, device)}
        for metric in METRICS:
            for pool in sorted(pools):
                sizes = np.abs(gathered(off, lambda cell: cell.kind == metric and _in(cell, pool)))  # noqa: B023
                if len(sizes) >= FEWEST:
                    figures = (f"{np.percentile(sizes, share):.3f}" for share in (50, 90))
                    lines.append((what, *pool, metric, *figures, len(sizes)))
    with FILE.open("w", encoding="utf-8", newline="") as file:
        names = "left_out", "engine", "layers", "device", "metric", "median", "p90", "rows"
        csv.writer(file, lineterminator="\n").writerows([names, *lines])


def _in(cell: Cell, pool: tuple[str, str, str]) -> bool:
    """Whether a pool of rows, in which an empty name stands for all, has a cell."""
    key = cell.group.family[0], cell.group.layers, cell.device
    return all(name in ("", other) for name, other in zip(pool, key, strict=True))


HEAD = (
    "| preset | layers, format | rows | us a layer | us a sequence | prefill | first token ms | launch us |",
    "|" + "---|" * 8,
)
COLUMNS = {"TPOT": (REST,), "TTFT": (FIRST,), "tokens/s": (RATE, MOST), "batch latency": (OFFLINE,)}


def table_of_groups(
    times: dict[Group, np.ndarray], rows: dict[Group, list[Rows]], inside: Off, outside: Off
) -> list[str]:
    """Lines of a table: constants of groups, and median errors in the sample and with the source left out."""
    lines = [
        HEAD[0] + "".join(f" {name} %, left out |" for name in COLUMNS),
        HEAD[1] + "---|" * len(COLUMNS),
    ]
    for group, values in sorted(times.items()):
        constants = changes(group, values)
        us, ms = 1e6 * values, 1e3 * values
        count = sum(len(entry.measured) for entry in rows.get(group, []) if entry.counts)
        cells = [
            group.engine,
            f"{group.layers}, {group.format}" + f", {group.generation}" * bool(group.generation),
        ]
        cells += [str(count), f"{us[0]:.0f}", f"{us[2]:.0f}", f"{values[3]:.2f}", f"{ms[4]:.0f}"]
        cells.append(f"{1e6 * constants['eager_layer_s']:.0f}" if constants["eager_layer_s"] else "")
        for kinds in COLUMNS.values():
            cells.append(
                ", ".join(_median(part, group, kinds) for part in (inside, outside) if part).strip(", ")
            )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _median(off: Off, group: Group, kinds: Sequence[str]) -> str:
    """Median of the absolute errors of a group, %; empty without rows."""
    errors = gathered(off, lambda cell: cell.group == group and cell.kind in kinds)
    return f"{100 * np.median(np.abs(errors)):.1f}" if len(errors) else ""
