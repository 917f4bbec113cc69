"""Every pipeline schedule side by side: run with ``python -m benchmarks.schedules``.

Prints the table of docs/schedules.md: what each idles and holds with 8 stages and 16 micro batches, where
forward, input gradient and weight gradient take equally long and transfers take no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from evidence.command import command
from simulator.schedules import Schedule, schedules
from simulator.schedules.walk import validate

STAGES, MICRO_BATCHES = 8, 16
UNITS = 3
"""Forward, input gradient and weight gradient of one micro batch on one rank."""


def chunks_of(schedule: Schedule) -> int:
    """The fewest chunks per rank that a schedule runs with."""
    return next(v for v in range(1, STAGES + 1) if schedule.requires(STAGES, MICRO_BATCHES, v))


def row(schedule: Schedule) -> str:
    """One line of the table, in Markdown."""
    chunks = chunks_of(schedule)
    done = validate(schedule, STAGES, MICRO_BATCHES, chunks)
    scale = len(schedule.routes(STAGES, chunks)[0]) / STAGES  # equal times are per chunk
    # Ranks that do not wait for each other between steps start the next one at once.
    seconds = done.period if schedule.post_validation else done.seconds
    idle = seconds / scale / (UNITS * MICRO_BATCHES) - 1
    cells = (
        f"`{schedule.name}`",
        str(chunks),
        f"{idle:.1%}",
        f"{max(done.peak):g}",
        f"{schedule.copies}",
        "split" if schedule.splits_backward else "whole",
        "closed form" if schedule.has_closed_form else "engine",
        schedule.source,
    )
    return f"| {' | '.join(cells)} |"


def rows() -> Iterator[str]:
    """Lines of the table, in Markdown."""
    yield "| schedule | chunks | idle | held | copies | backward | timed by | source |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from map(row, schedules.values())


@command
def main() -> None:
    """Print the table."""
    for line in rows():
        print(line)
